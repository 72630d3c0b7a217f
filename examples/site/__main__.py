"""A site on one machine: PostgreSQL, three servers of one federation, a cluster of Dask, and the demo on it.

    python examples/site            # starts all, runs the demo, draws site.png, ends all
    python examples/site --keep     # leaves it up until Ctrl-C, and says what to try

Tasks write simulated events and reconstruct them, each run at one of the servers. Others select pairs of
muons for one transaction; meanwhile a server is killed. Needs PostgreSQL's programs and the extras `dask` and
`plots`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jobs
from machines import SERVERS, STOPS, THREADS, WORKERS, Site

import femtobarn as fb
from femtobarn_demo.calibration import PROMPT, put_nominal
from femtobarn_demo.sources import START

try:
    from distributed import Client, Future, wait
    from picture import Accident, draw
except ModuleNotFoundError as error:
    sys.exit(f'{error.name} is not installed: pip install "femtobarn[dask,plots]"')

RUNS, EVENTS = 6, 100
"""Runs, and the events of each."""

PART = 25
"""Tags that one task selects from."""

ADVICE = """
The site is up. In another terminal, with `{python}` as Python:

  femtobarn servers {one}
  femtobarn ls {two}
  femtobarn cat {three} skim/pairs --where 'mass > 100'
  femtobarn move-database {one} run1 two
  femtobarn drain {one} three
  xrdcp {one}/run2.root .
  python -c 'import femtobarn as fb; print(fb.open("{two}")["skim/pairs"].describe())'

Pages: http://127.0.0.1:{port}/   logs: {logs}   Dask: Client(scheduler_file="{scheduler}")
Ctrl-C ends everything, and removes its files."""


@dataclass
class Story:
    """Prints what is done, with the seconds since the begin."""

    began: float = field(default_factory=time.monotonic)

    def tell(self, what: str, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {what:12}  {text}", flush=True)


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(prog="python examples/site", description="A site on one machine.")
    parser.add_argument("--keep", action="store_true", help="leave it up until Ctrl-C")
    parser.add_argument("--picture", type=Path, default=Path("site.png"), help="its file (site.png)")
    options = parser.parse_args()
    for number in STOPS:
        signal.signal(number, signal.default_int_handler)
    is_up = False
    try:
        with tempfile.TemporaryDirectory(prefix="site-") as folder, Site(Path(folder)) as site:
            run(site, options.picture)
            if options.keep:
                is_up = True
                print(advice(site), flush=True)
                signal.pause()
    except KeyboardInterrupt:
        print("all has ended", flush=True)
        return 0 if is_up else 130
    return 0


def run(site: Site, picture: Path) -> None:
    """Start the site, and run the demo on it."""
    story = Story()
    site.start()
    entry = site.url(SERVERS[0])
    with Client(scheduler_file=site.scheduler_file) as client, fb.open(entry) as fed:
        site.wait(lambda: len(client.scheduler_info()["workers"]) == len(WORKERS))
        client.upload_file(jobs.__file__)
        story.tell("site", f"{len(SERVERS)} servers, {len(WORKERS)} workers with {THREADS} threads each")
        take_data(site, client, fed, story)
        site.femtobarn("servers", entry)
        selected, accident = select_pairs(site, client, fed, story)
        pairs = fed[jobs.SKIM].arrays(library="np")
        of_run = {run: fed.home(f"run{run}-{PROMPT}") or "" for run in range(1, RUNS + 1)}
        draw(picture, pairs, of_run, selected, accident)
        story.tell("picture", f"{picture}: the mass of {len(pairs['mass'])} pairs, and when tasks ran")
        print(work_of_servers(site, fed, selected))


def take_data(site: Site, client: Client, fed: fb.Federation, story: Story) -> None:
    """Let tasks write and reconstruct events, each run at another server than the one before."""
    put_nominal(fed, START)
    runs = range(1, RUNS + 1)
    urls = [site.url(SERVERS[run % len(SERVERS)]) for run in runs]
    sizes = client.gather(client.map(jobs.take_run, urls, runs, [EVENTS] * RUNS, pure=False))
    text = f"{RUNS * EVENTS:,} events of {RUNS} runs, {sum(sizes) / 1e6:.0f} MB"
    story.tell("acquisition", f"{text}: a task for each run writes and reconstructs it")


def select_pairs(
    site: Site, client: Client, fed: fb.Federation, story: Story
) -> tuple[list[tuple[str, jobs.Selected]], Accident]:
    """Let tasks write pairs of muons for one transaction, and kill a server when half of them have ended."""
    tags = [fed[f"run{run}-{PROMPT}/tags"] for run in range(1, RUNS + 1)]
    # Of each run one part after the other, so that at any time tasks read from all servers.
    parts = [part for group in zip(*(view.partitions(PART) for view in tags), strict=True) for part in group]
    database, container = jobs.SKIM.split("/")
    with fed.transaction(message="a skim") as txn:
        txn.database(database, create=True).container(container, jobs.Pair, create=True)
    with fed.transaction(message="pairs of muons") as txn:
        txn.database(database).container(container)
        fork = txn.fork()
        homes = [fed.home(part.view.name.partition("/")[0]) or "" for part in parts]
        # A transaction fails with a server at which it locks, so this is one of those that are only read.
        victim = next(name for name in SERVERS if name not in (SERVERS[0], fed.home(database)))

        def submit(which: slice) -> list[Future]:
            mine = parts[which]
            return list(client.map(jobs.select, [fork] * len(mine), mine, pure=False))

        half = len(parts) // 2
        futures = submit(slice(half))
        client.gather(futures)
        story.tell("selection", f"{half} of {len(parts)} tasks have ended")
        site.kill(victim)
        accident = Accident(victim, time.time())
        futures += submit(slice(half, None))
        # Until its lease is over, clients wait for a server that does not answer; then they fail.
        site.wait(lambda: not any(server.alive for server in fed.servers() if server.name == victim))
        wait(futures)
        site.femtobarn("servers", site.url(SERVERS[0]))
        failed = [future for future in futures if future.status == "error"]
        text = (
            f"{len(parts) - len(failed)} have ended, {len(failed)} have failed: they read at server {victim}"
        )
        story.tell("selection", text)
        site.start_servers(victim)
        accident.came = time.time()
        client.retry(failed)
        selected = client.gather(futures)
        txn.merge([each.receipt for each in selected], tasks=[part.key for part in parts])
    count = len(fed[jobs.SKIM])
    story.tell("selection", f"all {len(parts)} tasks have ended: {count} pairs in one commit, each once")
    return list(zip(homes, selected, strict=True)), accident


def work_of_servers(site: Site, fed: fb.Federation, selected: list[tuple[str, jobs.Selected]]) -> str:
    """Return a table of what each server has and did; one that was killed counts from its new start."""
    lines = [f"{'server':8}{'databases':>10}{'tasks':>7}{'MB read':>9}{'MB written':>12}"]
    for server in fed.servers():
        with urllib.request.urlopen(f"http://127.0.0.1:{site.ports[server.name]}/api/status") as answer:
            totals: dict[str, Any] = json.load(answer)["totals"]
        tasks = sum(home == server.name for home, _ in selected)
        sizes = f"{totals['bytes_read'] / 1e6:9.1f}{totals['bytes_written'] / 1e6:12.1f}"
        lines.append(f"{server.name:8}{server.databases:10}{tasks:7}{sizes}")
    return "\n".join(lines)


def advice(site: Site) -> str:
    """Return what to try next."""
    return ADVICE.format(
        **{name: site.url(name) for name in SERVERS},
        python=sys.executable,
        port=site.ports[SERVERS[0]],
        logs=site.folder,
        scheduler=site.scheduler_file,
    )


if __name__ == "__main__":
    sys.exit(main())

"""The tables of a benchmark run, made from its JSON alone: `report.py RUN.json` prints the page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def page(run: Json) -> str:
    """docs/performance.md."""
    machine, versions = run["machine"], run["versions"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    commit = f"`{run['commit'][:12]}`{' with changes' if run['changed'] else ''}"
    return f"""# Performance

`make bench` wrote this page: do not edit it. Commit {commit}, {run["time"][:10]};
{machine["processor"]}, {machine["cores"]} cores, {machine["memory_gib"]} GiB; {named}.

Ours and the peer ran in turns, {run["rounds"]} times each, in processes of their own on one core; rates are
medians. The ratio is ours to the peer's, in the seconds that the table names. What is measured how is said in
[benches/README.md](../benches/README.md).

{table(run)}
## All sides

{details(run)}"""


def table(run: Json) -> str:
    """One line for each figure."""
    lines = ["| work | Femtobarn | peer | ratio | target | |", "|---|---|---|---|---|---|"]
    for figure in run["figures"]:
        by = figure["by"]
        ours = rate(figure["rates"][figure["ours"]][by], by)
        if figure["peer"] is None:
            peer, ratio, target = "", "", f"{rate(figure['target'], by)}"
        else:
            peer = f"{figure['peer']} {rate(figure['rates'][figure['peer']][by], by)}"
            ratio, target = f"{figure['ratio']:.2f}", f"{figure['target']:g}"
        if figure["cpu_most"] is not None:
            ratio += f", CPU {figure['cpu_multiple']:.2f} times"
            target += f", CPU at most {figure['cpu_most']:g} times"
        verdict = "reached" if figure["reached"] else "**missed**"
        lines.append(f"| {figure['title']} | {ours} | {peer} | {ratio} | {target} | {verdict} |")
    return "\n".join(lines) + "\n"


def details(run: Json) -> str:
    """Every side of every figure, in both kinds of seconds."""
    lines = ["| work | side | items/s | items/CPU s | MB/s | MB/CPU s |", "|---|---|---|---|---|---|"]
    for figure in run["figures"]:
        for name, rates in figure["rates"].items():
            sample = figure["samples"][name][0]
            megabytes = sample["bytes"] / max(sample["items"], 1) / 1e6
            cells = [number(rates["wall"]), number(rates["cpu"])]
            cells += [number(rates[by] * megabytes) for by in ("wall", "cpu")]
            lines.append(f"| {figure['title']} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rate(value: float, by: str) -> str:
    """A rate with its unit."""
    return f"{number(value)}/{'CPU s' if by == 'cpu' else 's'}"


def number(value: float) -> str:
    """Three significant digits, with thousands apart."""
    if value >= 1000:
        digits = 10 ** max(0, len(str(int(value))) - 3)
        return f"{round(value / digits) * digits:,}"
    return f"{value:.3g}"


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text())))

"""The tables of a benchmark run, from its JSON alone: `report.py RUN.json` prints them."""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

WORDS = {"reached": "reached", "missed": "**missed**", "unknown": ""}
BUSY_SHARE = 0.1
"""The share of samples taken beside other processes from which a run is called one on a busy machine."""


def renewed(document: str, part: str, text: str) -> str:
    """Return a document with the text of a part of it replaced; the text around it stays."""
    start, end = f"<!-- {part}: written by `make bench` -->", f"<!-- end of {part} -->"
    before, rest = document.split(start)
    return f"{before}{start}\n\n{text}\n{end}{rest.split(end)[1]}"


def tables(run: Json) -> str:
    """All chapters: verdicts first, then every side of every figure."""
    parts = [provenance(run), verdicts(run)]
    for chapter in run["chapters"]:
        parts.append(f"## {chapter['title']}\n\n{chapter['intro']}\n")
        parts += [figure(each) for each in chapter["figures"]]
    return "\n".join(parts)


def provenance(run: Json) -> str:
    """Commit, date, machine and versions of a run."""
    machine = run["machine"]
    named = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    commit = f"`{run['commit'][:12]}`{' with changes' if run['changed'] else ''}"
    return (
        f"Commit {commit}, {run['time'][:10]}; {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}; {named}.\n"
        f"{taken(run)} of each side, taken by turns. {quietness(run)}\n"
    )


def quietness(run: Json) -> str:
    """What else ran on the machine."""
    if "busy" not in run:
        return "It was not recorded what else ran on the machine."
    sides = [side for chapter in run["chapters"] for figure in chapter["figures"] for side in figure["sides"]]
    samples = [sample for side in sides for sample in side["samples"]]
    beside = sum("busy" in sample for sample in samples)
    repeated = sum(len(side["repeated"]) for side in sides)
    words = [f"{beside:,} of {len(samples):,} samples were taken while other processes ran"]
    words += [f"{repeated:,} were taken again for that reason"] if repeated else []
    text = f"{', '.join(words)}."
    if run["busy"] or beside > BUSY_SHARE * len(samples):
        because = f" ({'; '.join(run['busy'])})" if run["busy"] else ""
        return f"**Measured on a busy machine**{because}: {text}"
    return text[0].upper() + text[1:]


def taken(run: Json) -> str:
    """How many samples a side has, as a text."""
    figures = [figure for chapter in run["chapters"] for figure in chapter["figures"]]
    counts = {len(side["samples"]) for figure in figures for side in figure["sides"] if side["samples"]}
    ends = sorted({min(counts, default=0), max(counts, default=0)})
    return "One run" if ends == [1] else f"Medians of {' to '.join(map(str, ends))} runs"


def verdicts(run: Json) -> str:
    """One line for each target."""
    lines = ["| figure | target | asked | measured | |", "|---|---|---|---|---|"]
    for chapter in run["chapters"]:
        for each in chapter["figures"]:
            for target in each["targets"]:
                because = f": {target['missed']}" if target["missed"] and verdict(target) == "missed" else ""
                words = [bounds(target), number(target["value"]), WORDS[verdict(target)] + because]
                cells = [each["title"], target["text"], *words]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def verdict(target: Json) -> str:
    """Whether a target is reached, missed or, for lack of samples, unknown."""
    if math.isnan(target["value"]):
        return "unknown"
    return "reached" if target["reached"] else "missed"


def bounds(target: Json) -> str:
    """The bounds of a target, in words."""
    words = [("at least", target["at_least"]), ("at most", target["at_most"])]
    return ", ".join(f"{word} {number(bound)}" for word, bound in words if bound is not None)


def figure(each: Json) -> str:
    """A figure's table."""
    if not any(side["samples"] for side in each["sides"]):
        body = "No side was measured.\n"
    else:
        body = curve(each) if any(side["points"] for side in each["sides"]) else rates(each)
    note = f"\n{each['note']}\n" if each["note"] else ""
    return f"### {each['title']}\n\n{body}{note}"


def rates(each: Json) -> str:
    """One line for each side."""
    columns = [column for column in COLUMNS if any(column[1](side) is not None for side in each["sides"])]
    heads = [
        "side",
        *([each["x"]] if each["x"] else []),
        f"{each['unit']}/s",
        "/CPU s",
        *(c[0] for c in columns),
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for side in each["sides"]:
        name = f"**{side['name']}**" if side["role"] == "ours" else side["name"]
        name += " (limit)" if side["role"] == "limit" else ""
        cells = [
            name,
            *([f"{side['x']:g}"] if each["x"] else []),
            number(side["rate"]),
            number(side["cpu_rate"]),
        ]
        for _, value in columns:
            found = value(side)
            cells.append("" if found is None else number(found))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def curve(each: Json) -> str:
    """One line for each point of the curves."""
    sides = [side for side in each["sides"] if side["points"]]
    lines = [
        f"| {each['x']} | {' | '.join(side['name'] for side in sides)} |",
        "|---" * (len(sides) + 1) + "|",
    ]
    at = sorted({x for side in sides for x, _ in side["points"]})
    for x in at:
        found = [dict(map(tuple, side["points"])).get(x) for side in sides]
        cells = " | ".join("" if y is None else number(y) for y in found)
        lines.append(f"| {x:,.0f} | {cells} |")
    return "\n".join(lines) + f"\n\nin {each['y']}\n"


def median(side: Json, *keys: str) -> list[float] | None:
    """Medians of a side's samples, or None if a sample lacks one of the keys or has zero there."""
    samples = side["samples"]
    if not samples or not all(sample.get(key) for sample in samples for key in keys):
        return None
    return [statistics.median(sample[key] for sample in samples) for key in keys]


def megabytes_a_second(side: Json) -> float | None:
    """MB of payload per second."""
    found = median(side, "bytes", "wall_s")
    return None if found is None else found[0] / found[1] / 1e6


def cpu_for_100_mb(side: Json) -> float | None:
    """CPU seconds per 100 MB of payload."""
    found = median(side, "bytes", "cpu_s")
    return None if found is None else found[1] / found[0] * 1e8


def disk_over_payload(side: Json) -> float | None:
    """Bytes on disk per byte of payload."""
    found = median(side, "disk_bytes", "bytes")
    return None if found is None else found[0] / found[1]


def memory(side: Json) -> float | None:
    """Peak memory of a process, MB."""
    found = median(side, "memory_bytes")
    return None if found is None else found[0] / 1e6


def slowest(side: Json) -> float | None:
    """99 % quantile of response times, microseconds."""
    found = median(side, "p99_us")
    return None if found is None else found[0]


def threads(side: Json) -> float | None:
    """Number of threads of a server."""
    found = median(side, "threads")
    return None if found is None else found[0]


def failed(side: Json) -> float | None:
    """Per cent of the work that failed."""
    shares = [sample["failed"] for sample in side["samples"] if "failed" in sample]
    return 100 * statistics.median(shares) if shares else None


COLUMNS = [
    ("MB/s", megabytes_a_second),
    ("CPU s/100 MB", cpu_for_100_mb),
    ("disk/payload", disk_over_payload),
    ("memory, MB", memory),
    ("p99, us", slowest),
    ("threads", threads),
    ("failed, %", failed),
]


def number(value: float) -> str:
    """A number to three significant digits, with separated thousands."""
    if math.isnan(value):
        return "not measured"
    if abs(value) >= 1000:
        digits = 10 ** max(0, len(str(int(value))) - 3)
        return f"{round(value / digits) * digits:,}"
    return f"{value:.3g}"


if __name__ == "__main__":
    print(tables(json.loads(Path(sys.argv[1]).read_text())))

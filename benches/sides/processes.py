"""The processes of the machine and the CPU time that they have taken, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
INIT = 1
"""The process that inherits orphans."""
OF_THE_KERNEL = 0x200000
"""PF_KTHREAD, the flag of the kernel's own threads."""


@dataclass(frozen=True)
class Process:
    """A process: its command, its parent, and its CPU seconds with those of its children that have ended."""

    name: str
    parent: int
    seconds: float


def processes() -> dict[int, Process]:
    """Return all processes but the kernel's threads, by their ids."""
    found: dict[int, Process] = {}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            head, _, tail = (each / "stat").read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        # The fields 4, 9 and 14 to 17 of proc(5): the parent, the flags; user and system, of itself and of
        # ended children. Those of the process that inherits orphans may be anybody's.
        fields, number = tail.split(), int(each.name)
        ticks = sum(map(int, fields[11 : 13 if number == INIT else 15]))
        if not int(fields[6]) & OF_THE_KERNEL:
            found[number] = Process(head.partition("(")[2], int(fields[1]), ticks / TICKS)
    return found


def tree(root: int, among: dict[int, Process]) -> set[int]:
    """Return the ids of a process and its descendants."""
    found = {root}
    while added := {number for number, each in among.items() if each.parent in found} - found:
        found |= added
    return found


def tree_seconds(root: int) -> float:
    """CPU seconds of a process and its descendants; those that have ended are in their parents' times."""
    running = processes()
    return sum(running[each].seconds for each in tree(root, running) & running.keys())

"""What is wrong at the end: what clients saw, what they were told against what is there, and a full check.

An operation has one entry at most. It has one if it was acknowledged, and none if it was refused; with any
other error, and in a client that was killed, it may have one. Nothing else has an entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import femtobarn as fb

from .clients import ACCOUNTS, BULK, BULK_ROWS, DEPOSIT, LEDGERS, TOLERATED
from .log import Operation

__all__ = ["check_bulk", "check_folders", "check_ledger", "check_ledgers", "check_money", "operation_faults"]

REFUSED = ("conflict", "busy")
Key = tuple[int, int]
"""A client and the number of its operation."""


def operation_faults(operations: Iterable[Operation]) -> Iterator[str]:
    """Yield what clients saw that cannot be, or were told that no failing server causes."""
    for each in operations:
        if each.outcome not in ("ok", *TOLERATED):
            yield f"{each.kind} {each.client}, operation {each.number}: {each.outcome}: {each.text}"


def check_ledger(kind: str, entries: Sequence[Key], operations: Iterable[Operation]) -> Iterator[str]:
    """Yield operations of a kind that were lost or doubled, and entries that nobody may have made."""
    there = Counter(entries)
    for key, count in there.items():
        if count > 1:
            yield f"{kind} {key[0]}: operation {key[1]} was committed {count} times"
    told = {(each.client, each.number): each.outcome for each in operations if each.kind == kind}
    last: dict[int, int] = {}
    for client, number in told:
        last[client] = max(last.get(client, 0), number)
    for (client, number), outcome in told.items():
        if outcome == "ok" and (client, number) not in there:
            yield f"{kind} {client}: operation {number} was acknowledged, and is lost"
        if outcome in REFUSED and (client, number) in there:
            yield f"{kind} {client}: operation {number} was refused ({outcome}), and is there"
    for client, number in there:
        # The operation behind the last one that a client has told of is that in which it was killed.
        if (client, number) not in told and number != last.get(client, 0) + 1:
            yield f"{kind} {client}: there is an operation {number}, which it has not begun"


def ledger_of(fed: fb.Federation, kind: str) -> list[Key]:
    """Return the entries of a kind of client."""
    entries = fed[LEDGERS[kind]].arrays(["client", "number"])
    return list(zip(entries.client.to_list(), entries.number.to_list(), strict=True))


def check_ledgers(fed: fb.Federation, operations: Sequence[Operation]) -> Iterator[str]:
    """Yield what is wrong with the entries of all kinds."""
    for kind in LEDGERS:
        yield from check_ledger(kind, ledger_of(fed, kind), operations)


def check_bulk(fed: fb.Federation) -> Iterator[str]:
    """Yield operations of bulk appends of which a part is missing, in the databases that are kept."""
    entries = set(ledger_of(fed, "bulk"))
    for name in fed:
        if name.startswith(BULK):
            hits = fed[name].arrays(["client", "number"])
            rows = Counter(zip(hits.client.to_list(), hits.number.to_list(), strict=True))
            for key, count in rows.items():
                if count != BULK_ROWS or key not in entries:
                    yield f"{name} has {count} rows of operation {key[1]} of client {key[0]}"


def check_money(fed: fb.Federation) -> Iterator[str]:
    """Yield whether money was made or lost."""
    money = sum(fed[f"{bank}/accounts"].arrays(library="np")["balance"].sum() for bank in ("bank1", "bank2"))
    if money != 2 * ACCOUNTS * DEPOSIT:
        yield f"all accounts have {money}, and not {2 * ACCOUNTS * DEPOSIT}"


def check_folders(folders: Iterable[Path]) -> Iterator[str]:
    """Yield the problems that a full check finds in the folders of servers."""
    for folder in folders:
        with fb.open(folder) as fed:
            report = fed.check(full=True)
            yield from (f"{folder.parent.name}: {problem}" for problem in report.problems)

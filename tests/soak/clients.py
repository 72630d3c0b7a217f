"""The clients: programs of one kind each, which do one operation after the other until they are told to stop.

What a client writes has its `Entry` in the same transaction, so that each operation that was acknowledged
can be counted at the end. What it reads it compares with what has to be so in every snapshot: money is
neither made nor lost, links lead to the object that was written with them, equal commits have equal bytes
at all servers.
"""

from __future__ import annotations

import random
import signal
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import numpy as np

import femtobarn as fb

from .log import Operation, write_operation

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ACCOUNTS",
    "BULK",
    "BULK_ROWS",
    "DEPOSIT",
    "KINDS",
    "LEDGERS",
    "TOLERATED",
    "Assignment",
    "prepare",
    "run_client",
]

TOLERATED = ("conflict", "busy", "unavailable", "storage")
"""Kinds of errors that servers which fail may cause. The first two say that nothing was committed."""

WRONG = "wrong"
"""The outcome of an operation that saw what cannot be."""

PATIENCE_SECONDS = 20.0
"""For which a client keeps trying a server that does not answer."""

CACHE_BYTES = 16 << 20
"""Of the pages of each client, so that they are there before the run is over."""
ACCOUNTS, DEPOSIT = 10, 1000
BULK, BULK_ROWS, BULK_STEPS, BULK_RUNS = "bulk-", 2000, 10, 3
"""Databases of bulk appends: how names begin, rows of an operation, operations of each, how many are kept."""
NEWEST = 200
"""Objects at the end of a container that a reader looks at."""
RANGE_BYTES = 256 * 1024
SECOND = 10**9


@fb.persistent
class Entry:
    """That an operation was committed."""

    client: fb.uint32
    number: fb.uint64


@fb.persistent
class Account:
    """Of a bank."""

    balance: fb.int64


@fb.persistent
class Hit:
    """What is appended in bulk."""

    client: fb.uint32
    number: fb.uint64
    x: fb.float64


@fb.persistent
class Raw:
    """What tags link to."""

    client: fb.uint32
    number: fb.uint64
    samples: list[fb.float32]


@fb.persistent
class Tag:
    """An entry that links to an object of another database."""

    client: fb.uint32
    number: fb.uint64
    raw: fb.link[Raw]


@fb.persistent
class Gain:
    """A condition."""

    value: fb.float64


LEDGERS: Mapping[str, str] = {
    "small": "small/ledger",
    "bulk": "ledgers/bulk",
    "links": "tags/tags",
    "updates": "bank2/ledger",
    "conditions": "ledgers/conditions",
}
"""The kinds of clients that write, each with the container of its entries."""


@dataclass(frozen=True)
class Assignment:
    """What a client process is to do."""

    kind: str
    client: int
    urls: tuple[str, ...]
    """The federation at its servers; the first one is opened, or else the next."""
    log: Path
    pause: float
    """Seconds between two operations."""
    stop: Path
    """It ends when this file is there; an event of `multiprocessing` hangs once a waiter was killed."""


def prepare(url: str) -> None:
    """Make what all clients share, in a federation without anything."""
    with fb.open(url) as fed:
        with fed.transaction() as txn:
            for kind, path in LEDGERS.items():
                database, name = path.split("/")
                txn.database(database, create=True).container(
                    name, Tag if kind == "links" else Entry, create=True
                )
            txn.database("raw", create=True).container("raw", Raw, create=True)
            txn.database("bank1", create=True)
            for bank in ("bank1", "bank2"):
                accounts = txn.database(bank).container("accounts", Account, create=True)
                accounts.extend({"balance": np.full(ACCOUNTS, DEPOSIT)})
            txn.database("gains", create=True)
            txn.series("gains/gain", Gain, create=True)
        fed.set_retention(keep_commits=100)


def append_small(fed: fb.Federation, client: int, number: int) -> None:
    """Commit one object."""
    with fed.transaction() as txn:
        append_entry(txn, "small", client, number)


def append_entry(txn: fb.Transaction, kind: str, client: int, number: int) -> None:
    """Append the entry of an operation."""
    database, name = LEDGERS[kind].split("/")
    txn.database(database).container(name).append(Entry(client=client, number=number))


def append_bulk(fed: fb.Federation, client: int, number: int) -> None:
    """Append many objects to the newest database; now and then make a new one, and drop the oldest."""
    if number % BULK_STEPS == 1:
        names = sorted(row["name"] for row in fed.databases() if row["name"].startswith(BULK))
        for name in names[:-BULK_RUNS]:
            with fed.transaction() as txn:
                txn.drop(name)
    name = f"{BULK}{client:05}-{(number - 1) // BULK_STEPS:05}"
    with fed.transaction() as txn:
        hits = txn.database(name, create=True).container("hits", Hit, create=True)
        ids = {"client": np.full(BULK_ROWS, client), "number": np.full(BULK_ROWS, number)}
        hits.extend({**ids, "x": np.random.default_rng(number).random(BULK_ROWS)})
        append_entry(txn, "bulk", client, number)


def append_links(fed: fb.Federation, client: int, number: int) -> None:
    """Commit two objects in two databases, of which one links to the other, and follow links."""
    with fed.transaction() as txn:
        samples = [float(sample) for sample in range(number % 50)]
        raw = txn.database("raw").container("raw").append(Raw(client=client, number=number, samples=samples))
        tags = txn.database("tags").container("tags")
        tags.append(Tag(client=client, number=number, raw=raw))
    view = fed["tags/tags"]
    for index in (len(view) - 1, random.randrange(len(view))):
        tag: Any = view[index]
        assert (tag.raw.client, tag.raw.number) == (tag.client, tag.number), (
            f"tag {index} links to another object"
        )
        assert len(tag.raw.samples) == tag.number % 50, f"the object of tag {index} has other samples"


def transfer(fed: fb.Federation, client: int, number: int) -> None:
    """Move money from an account to one in another database."""
    first, second, amount = random.randrange(ACCOUNTS), random.randrange(ACCOUNTS), random.randrange(100)
    with fed.transaction() as txn:
        for bank, index, change in (("bank1", first, -amount), ("bank2", second, amount)):
            accounts = txn.database(bank).container("accounts")
            account: Any = txn[f"{bank}/accounts"][index]
            accounts.update(index, balance=account.balance + change)
        append_entry(txn, "updates", client, number)


def put_condition(fed: fb.Federation, client: int, number: int) -> None:
    """Put a condition, and look it up."""
    with fed.transaction() as txn:
        txn.series("gains/gain").put(Gain(value=float(number)), since=number * SECOND, channel=client)
        append_entry(txn, "conditions", client, number)
    found = fed.conditions()["gains/gain"].at(number * SECOND, channel=client)
    assert found is not None, f"the condition {number} of channel {client} is not valid"
    assert found.value == number, f"condition {number} of channel {client} has the value {found.value}"


def read_snapshot(fed: fb.Federation, client: int, number: int) -> None:
    """Read one snapshot over `root://`: accounts, entries and links in bulk."""
    snap = fed.snapshot()
    money = sum(snap[f"{bank}/accounts"].arrays(library="np")["balance"].sum() for bank in ("bank1", "bank2"))
    assert money == 2 * ACCOUNTS * DEPOSIT, f"commit {snap.csn} has {money} in all accounts"
    entries = snap["small/ledger"][-NEWEST:].arrays(["client", "number"])
    pairs = list(zip(entries.client.to_list(), entries.number.to_list(), strict=True))
    assert len(set(pairs)) == len(pairs), f"commit {snap.csn} has an entry twice"
    tags = snap["tags/tags"][-NEWEST:].arrays(["number", "raw.number"])
    assert tags.number.to_list() == tags.raw.number.to_list(), f"commit {snap.csn} has a wrong link"


def fetch_file(fed: fb.Federation, client: int, number: int, urls: tuple[str, ...]) -> None:
    """Fetch the same part of a ROOT file from two servers by HTTP."""
    snap = fed.snapshot()
    parts = []
    for url in random.sample(urls, 2):
        where = f"{url.replace('root://', 'http://').replace('//lhc', '/lhc')}/bank1.root?fb.csn={snap.csn}"
        request = urllib.request.Request(where, headers={"Range": f"bytes=0-{RANGE_BYTES - 1}"})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            parts.append(answer.read())
    assert parts[0] == parts[1], f"two servers have other bytes of bank1 as of commit {snap.csn}"
    assert parts[0].startswith(b"root"), "what is served is no ROOT file"


KINDS: Mapping[str, Callable[..., None]] = {
    "small": append_small,
    "bulk": append_bulk,
    "links": append_links,
    "updates": transfer,
    "conditions": put_condition,
    "reader": read_snapshot,
    "http": fetch_file,
}
"""The operation of each kind of client."""


def run_client(assignment: Assignment) -> None:
    """Be a client, until it is to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    random.seed(assignment.client)
    operate = KINDS[assignment.kind]
    more = (assignment.urls,) if operate is fetch_file else ()
    number = 0
    with assignment.log.open("a") as log, opened(assignment) as fed:
        while not assignment.stop.exists():
            number += 1
            began = time.monotonic()
            outcome, text = "ok", ""
            try:
                operate(fed, assignment.client, number, *more)
            except fb.FemtobarnError as error:
                outcome, text = error.kind, str(error)
            except HTTPError as error:
                outcome = "unavailable" if error.code in (502, 503, 504) else WRONG
                text = repr(error)
            except (OSError, HTTPException) as error:
                outcome, text = "unavailable", repr(error)
            except Exception as error:
                outcome, text = WRONG, repr(error)
            ended = time.monotonic()
            told = (assignment.kind, assignment.client, number, ended, ended - began, outcome, text)
            write_operation(log, Operation(*told))
            time.sleep(assignment.pause)


@contextmanager
def opened(assignment: Assignment) -> Iterator[fb.Federation]:
    """The federation at the first server that answers."""
    urls = list(assignment.urls)
    while True:
        try:
            fed = fb.open(urls[0], timeout=PATIENCE_SECONDS, cache_bytes=CACHE_BYTES)
            break
        except fb.FemtobarnError as error:
            if error.kind not in TOLERATED:
                raise
            if assignment.stop.exists():
                raise SystemExit(0) from None
            time.sleep(0.2)
            urls.append(urls.pop(0))
    with fed:
        yield fed

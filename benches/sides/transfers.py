"""Transfers between accounts: each transaction reads two numbers of one container or table, and updates them.

    transfers.py femtobarn|sqlite create FOLDER
    transfers.py femtobarn|sqlite run    FOLDER_OR_URL PROCESS SECONDS

Prints one JSON object, as README.md says. `check` is the sum of all accounts, which no transfer changes.
`median_us` and `p99_us`, the 99 % quantile, are of the times that transfers take.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ACCOUNTS, BALANCE = 1000, 1_000_000
# Longest wait for the turn to write (s).
PATIENCE = 60
Transfer = Callable[[int, int, int], None]
Engine = Callable[[str], tuple[Transfer, Callable[[], int]]]


def main() -> int:
    """Make the accounts, or transfer for some seconds."""
    engine, action, where, *more = sys.argv[1:]
    if action == "create":
        {"femtobarn": create_femtobarn, "sqlite": create_sqlite}[engine](Path(where))
        return 0
    process, seconds = int(more[0]), float(more[1])
    engines: dict[str, Engine] = {"femtobarn": femtobarn, "sqlite": sqlite}
    transfer, total = engines[engine](where)
    chosen = random.Random(process)
    transfer(0, 1, 0)
    print("ready", flush=True)
    sys.stdin.readline()
    times = []
    start, cpu = time.perf_counter(), time.process_time()
    last = start
    while last - start < seconds:
        giver, taker = chosen.sample(range(ACCOUNTS), 2)
        transfer(giver, taker, chosen.randrange(100))
        now = time.perf_counter()
        times.append(now - last)
        last = now
    cpu = time.process_time() - cpu
    median, p99 = np.quantile(times, (0.5, 0.99)) * 1e6
    sample = {"items": len(times), "bytes": 16 * len(times), "wall_s": last - start, "cpu_s": cpu}
    print(json.dumps({**sample, "check": total(), "median_us": median, "p99_us": p99}))
    return 0


# ---- Femtobarn


def create_femtobarn(folder: Path) -> None:
    """Make a federation with one container."""
    import femtobarn as fb

    @fb.persistent
    class Account:
        balance: fb.int64

    with fb.create(folder).transaction() as txn:
        accounts = txn.database("bank", create=True).container("accounts", Account, create=True)
        accounts.extend({"balance": np.full(ACCOUNTS, BALANCE)})


def femtobarn(where: str) -> tuple[Transfer, Callable[[], int]]:
    """The function that transfers, and the one that adds all accounts up."""
    import femtobarn as fb

    fed = fb.open(where)

    def transfer(giver: int, taker: int, amount: int) -> None:
        with fed.transaction(lock_timeout=PATIENCE) as txn:
            accounts = txn.database("bank").container("accounts")
            left, right = accounts[giver].balance, accounts[taker].balance
            accounts.update(giver, balance=left - amount)
            accounts.update(taker, balance=right + amount)

    return transfer, lambda: int(np.asarray(fed["bank/accounts"].arrays("balance").balance).sum())


# ---- SQLite


def create_sqlite(folder: Path) -> None:
    """Make a database with one table."""
    folder.mkdir()
    database = sqlite3.connect(folder / "bank.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode = wal")
    database.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER)")
    database.execute("BEGIN")
    rows = ((number, BALANCE) for number in range(ACCOUNTS))
    database.executemany("INSERT INTO accounts VALUES (?, ?)", rows)
    database.execute("COMMIT")
    database.close()


def sqlite(where: str) -> tuple[Transfer, Callable[[], int]]:
    """The function that transfers, and the one that adds all accounts up."""
    database = sqlite3.connect(Path(where) / "bank.sqlite", isolation_level=None, timeout=PATIENCE)
    database.execute("PRAGMA synchronous = full")
    balance = "SELECT balance FROM accounts WHERE id = ?"
    change = "UPDATE accounts SET balance = ? WHERE id = ?"

    def transfer(giver: int, taker: int, amount: int) -> None:
        database.execute("BEGIN IMMEDIATE")
        (left,) = database.execute(balance, (giver,)).fetchone()
        (right,) = database.execute(balance, (taker,)).fetchone()
        database.execute(change, (left - amount, giver))
        database.execute(change, (right + amount, taker))
        database.execute("COMMIT")

    return transfer, lambda: int(database.execute("SELECT sum(balance) FROM accounts").fetchone()[0])


if __name__ == "__main__":
    sys.exit(main())

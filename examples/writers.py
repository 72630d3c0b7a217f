"""Four processes that write to one federation at once, each to a database of its own."""

import multiprocessing
import tempfile

import numpy as np

import femtobarn as fb


@fb.persistent
class Event:
    number: fb.uint64


def fill(location: str, worker: int) -> None:
    with fb.open(location) as fed:
        for batch in range(5):
            with fed.transaction(message=f"worker {worker}, batch {batch}") as txn:
                events = txn.database(f"part{worker}", create=True).container("events", Event, create=True)
                events.extend({"number": np.arange(batch * 1000, (batch + 1) * 1000, dtype="u8")})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        location = f"{folder}/lhc.fed"
        fb.create(location).close()
        with multiprocessing.get_context("spawn").Pool(4) as pool:
            pool.starmap(fill, [(location, worker) for worker in range(4)])
        with fb.open(location) as fed:
            for database in fed.databases():
                print(database["name"], len(fed[f"{database['name']}/events"]))
            print(fed.head(), "commits")


if __name__ == "__main__":
    main()

"""A server in this process, read by uproot over root:// as of any commit."""

import tempfile

import uproot

import femtobarn as fb


@fb.persistent
class Event:
    number: fb.uint64


def fill(fed: fb.Federation, first: int) -> None:
    with fed.transaction() as txn:
        events = txn.database("run7", create=True).container("events", Event, create=True)
        events.extend({"number": range(first, first + 1000)})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        fb.create(f"{folder}/lhc.fed").close()
        # All users of this machine may write; docs/serving.md describes access by tokens.
        with fb.serve(f"{folder}/lhc.fed", port=0, address="127.0.0.1", anonymous="all") as server:
            with fb.open(server.url("/lhc.fed")) as fed:  # works from any machine
                fill(fed, 0)
                fill(fed, 1000)
            for csn in (1, 2):
                with uproot.open(server.url(f"/lhc.fed/run7.root?fb.csn={csn}")) as file:
                    print(f"commit {csn}: {file['events'].num_entries} events")


if __name__ == "__main__":
    main()

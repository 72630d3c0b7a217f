"""An update, and the state before it: every commit stays readable by its number or tag."""

import tempfile

import femtobarn as fb


@fb.persistent
class Run:
    number: fb.uint32
    quality: str


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, fb.create(f"{folder}/lhc.fed") as fed:
        with fed.transaction(message="two runs") as txn:
            runs = txn.database("runs", create=True).container("runs", Run, create=True)
            runs.extend({"number": [1, 2], "quality": ["unknown", "unknown"]})
        fed.tag("first look")

        with fed.transaction(message="run 2 is good") as txn:
            txn.database("runs").container("runs").update([1], {"quality": ["good"]})

        print("now:", [run.quality for run in fed["runs/runs"]])
        print("then:", [run.quality for run in fed.snapshot(tag="first look")["runs/runs"]])
        for commit in fed.history():
            print(commit["csn"], commit["message"])


if __name__ == "__main__":
    main()

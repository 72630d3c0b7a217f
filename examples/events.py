"""Writes events, reads them back as awkward arrays, and reads the sealed file with uproot."""

import tempfile

import awkward as ak
import numpy as np
import uproot

import femtobarn as fb


@fb.persistent
class Event:
    run: fb.uint32
    energy: fb.float64
    pt: list[fb.float32]


def main() -> None:
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder, fb.create(f"{folder}/lhc.fed") as fed:
        counts = random.poisson(3, 10_000)
        pt = ak.unflatten(random.exponential(20, counts.sum()).astype("f4"), counts)
        with fed.transaction(message="run 7") as txn:
            events = txn.database("run7", create=True).container("events", Event, create=True)
            events.extend(
                {"run": np.full(10_000, 7, "u4"), "energy": random.normal(91, 2.5, 10_000), "pt": pt}
            )
            events.append(Event(run=7, energy=13_000.0, pt=[6_500.0, 6_500.0]))

        view = fed["run7/events"]
        print(len(view), "events; the last:", view[-1])
        print("selected:", len(view.arrays(["energy", "pt"], where="energy > 1000")))

        fed.seal("run7")
        with uproot.open(f"{folder}/lhc.fed/databases/run7.root") as file:
            energy = file["events"].arrays()["energy"]
            print("uproot reads", len(energy), "events, the largest energy is", ak.max(energy))


if __name__ == "__main__":
    main()

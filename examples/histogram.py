"""Imports a ROOT file with a TTree, and draws the mass of its muon pairs.

python examples/histogram.py nano_dimuon.root mass.png
"""

import sys
import tempfile

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import femtobarn as fb


def main(file: str, picture: str) -> None:
    with tempfile.TemporaryDirectory() as folder, fb.create(f"{folder}/lhc.fed") as fed:
        fed.import_tree(file, "Events", database="data")
        muons = fed["data/Events"].arrays("Muon", where="len(Muon) == 2")["Muon"]
        first, second = muons[:, 0], muons[:, 1]
        mass = np.sqrt(
            2 * first.pt * second.pt * (np.cosh(first.eta - second.eta) - np.cos(first.phi - second.phi))
        )
        print(len(mass), "pairs")

        figure, axes = plt.subplots(layout="constrained")
        axes.hist(mass, bins=60, range=(0, 120), histtype="step")
        axes.set(xlabel="mass of the pair [GeV]", ylabel="events")
        figure.savefig(picture)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/histogram.py FILE.root PICTURE.png")
    main(*sys.argv[1:])

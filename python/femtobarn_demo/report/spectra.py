"""Spectra: masses of muon pairs, transverse momenta of jets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from femtobarn.jagged import Array
from femtobarn_reports.style import BLUE, CORAL, GREY, INK, SAND, TEAL, clean, picture

__all__ = [
    "draw_dimuon_spectrum",
    "draw_jet_momenta",
    "draw_jet_response",
    "draw_z_peak",
    "invariant_mass",
]

SIZE = (5.6, 3.9)
"""Size of every picture (inches); two fit side by side."""

Z_MASS = 91.188
"""Mass of the Z boson (GeV)."""

RESONANCES = {"ρ, ω": 0.78, "φ": 1.02, "J/ψ": 3.097, "ψ(2S)": 3.686, "Υ": 9.46, "Z": Z_MASS}
"""Particles that decay to pairs of muons, and their masses (GeV)."""


def invariant_mass(first: Mapping[str, Array], second: Mapping[str, Array]) -> Array:
    """Mass of pairs of particles from ``pt``, ``eta``, ``phi`` and ``mass`` (GeV), shape (pairs,)."""
    total = np.zeros((4, len(first["pt"])))
    for particle in (first, second):
        pt, eta, phi, mass = (np.asarray(particle[n], np.float64) for n in ("pt", "eta", "phi", "mass"))
        momentum = np.stack([pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)])
        total += np.stack([np.sqrt(mass**2 + (momentum**2).sum(axis=0)), *momentum])
    squared: Array = np.maximum(total[0] ** 2 - (total[1:] ** 2).sum(axis=0), 0.0)
    return np.sqrt(squared)


def draw_z_peak(masses: Array) -> Figure:
    """Draw the masses of muon pairs (GeV) around that of the Z boson."""
    figure = picture(*SIZE)
    axes = figure.subplots()
    counts, edges = np.histogram(masses, bins=60, range=(60.0, 120.0))
    centres = 0.5 * (edges[1:] + edges[:-1])
    axes.fill_between(edges, np.append(counts, 0), step="post", color=BLUE, alpha=0.16, linewidth=0)
    axes.errorbar(
        centres, counts, yerr=np.sqrt(counts), fmt="o", ms=3.4, color=BLUE, elinewidth=0.9, capsize=0
    )
    axes.axvline(Z_MASS, color=CORAL, linewidth=1.1, linestyle=(0, (4, 3)))
    axes.annotate(
        "Z  91.19 GeV",
        (Z_MASS, 1.0),
        (7, -4),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="top",
        color=CORAL,
        fontsize=10,
    )
    axes.set(xlim=(60, 120), ylim=(0, None))
    clean(axes, x="mass of the muon pair (GeV)", y="pairs per GeV")
    return figure


def draw_dimuon_spectrum(masses: Array) -> Figure:
    """Draw the masses of muon pairs (GeV) over the whole range, with the names of the resonances."""
    figure = picture(*SIZE)
    axes = figure.subplots()
    edges = np.geomspace(0.3, 200.0, 66)
    counts, _ = np.histogram(masses, bins=edges)
    axes.stairs(counts, edges, color=TEAL, fill=True, alpha=0.22)
    axes.stairs(counts, edges, color=TEAL, linewidth=1.3)
    top = max(float(counts.max(initial=1)), 1.0)
    for name, mass in RESONANCES.items():
        height = counts[np.searchsorted(edges, mass) - 1]
        if height >= 0.12 * top:
            axes.annotate(
                name,
                (mass, height),
                (0, 6),
                textcoords="offset points",
                ha="center",
                color=INK,
                fontsize=10,
                fontweight="bold",
            )
    axes.set(xscale="log", xlim=(0.3, 200.0), ylim=(0, 1.15 * top))
    axes.set_xticks([1, 10, 100], ["1", "10", "100"])
    axes.tick_params(which="minor", length=0)
    clean(axes, x="mass of the muon pair (GeV)", y="pairs per bin")
    return figure


def draw_jet_momenta(leading: Array, every: Array) -> Figure:
    """Draw the transverse momenta (GeV) of the hardest jet in each event, and of all jets."""
    figure = picture(*SIZE)
    axes = figure.subplots()
    edges = np.linspace(0.0, max(200.0, float(np.max(leading, initial=0.0))), 51)
    counts, hardest = np.histogram(every, edges)[0], np.histogram(leading, edges)[0]
    axes.stairs(counts, edges, color=SAND, fill=True, alpha=0.30, label="all jets")
    axes.stairs(counts, edges, color=SAND, linewidth=1.2)
    axes.stairs(hardest, edges, color=BLUE, linewidth=1.6, label="the hardest jet")
    axes.set(xlim=(0, edges[-1]))
    if counts.any():
        axes.set(yscale="log", ylim=(0.7, 2.0 * int(counts.max())))
    axes.legend(loc="upper right")
    clean(axes, x="transverse momentum (GeV)", y="jets per bin")
    return figure


def draw_jet_response(leading: Array, scale: Array) -> Figure:
    """Draw the ratio of the hardest jet's transverse momentum to that of the simulated hard process."""
    figure = picture(*SIZE)
    axes = figure.subplots()
    ratio = leading[scale > 0] / scale[scale > 0]
    counts, edges = np.histogram(ratio, 40, (0.0, 2.0))
    axes.stairs(counts, edges, color=TEAL, fill=True, alpha=0.75)
    axes.axvline(1.0, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 2), ylim=(0, None))
    clean(axes, x="hardest jet / hard process", y="events per bin")
    if len(ratio):
        text = f"median {np.median(ratio):.2f}"
        axes.text(0.97, 0.95, text, transform=axes.transAxes, ha="right", va="top", color=INK)
    return figure

"""Columns to the numbers that are drawn: directions, curvatures and positions, in metres, GeV and radians.

Each form of :class:`Rule` has a function that returns its numbers by name, or None if the fields of the items
are not enough for it. An item that cannot be drawn, such as one with a momentum of zero, has NaN.

=====  ==========================================================================================
form   numbers
=====  ==========================================================================================
point  x, y, z
track  x, y, z of its vertex; phi, cot (of the polar angle), curvature (1/m, positive: to the right), pt
cone   phi, eta, pt
tower  phi, eta, pt, the transverse energy; and x, y, z if it has a position
arrow  phi, pt
=====  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .columns import Columns, Numbers
from .rules import Rule

__all__ = ["Form", "geometry_of"]

CURVATURE = 0.299792458
"""Inverse radius of a track times its transverse momentum, in a field of 1 T (GeV/m)."""

Form = dict[str, Numbers]


def geometry_of(columns: Columns, rule: Rule, states: Columns | None = None) -> Form | None:
    """Return the numbers of a rule's form, or None if the items lack them.

    Parameters
    ----------
    states
        The states of tracks at their vertex, in models that keep them beside the tracks.
    """
    if rule.columns is not None:
        try:
            columns.add(rule.columns(columns))
        except KeyError:
            return None
    if rule.form == "track" and states is not None:
        return _track_of_states(states, rule)
    return FORMS[rule.form](columns, rule)


def _point(columns: Columns, rule: Rule) -> Form | None:
    found = columns.position()
    return None if found is None else _scaled(found, rule)


def _track(columns: Columns, rule: Rule) -> Form | None:
    found = columns.momentum()
    if found is None:
        return None
    pt, phi, eta = found
    charge = columns.number("charge")
    with np.errstate(all="ignore"):  # A momentum of zero, or along the beam.
        bent = np.zeros_like(pt) if charge is None else charge * CURVATURE * rule.field / pt
        cot = np.sinh(eta)
    vertex, z0 = columns.triple("vertex.", "v"), columns.number("z0")
    if vertex is None:
        vertex = (np.zeros_like(pt), np.zeros_like(pt), np.zeros_like(pt) if z0 is None else z0)
    return {**_scaled(vertex, rule), "phi": phi, "cot": cot, "curvature": bent, "pt": pt}


def _track_of_states(states: Columns, rule: Rule) -> Form | None:
    """Return helices of EDM4hep: distances, azimuth, curvature and slope at a reference point."""
    names = ("d0", "z0", "phi", "omega", "tanlambda")
    d0, z0, phi, omega, slope = (states.number(name) for name in names)
    reference = states.triple("referencepoint.")
    if d0 is None or z0 is None or phi is None or omega is None or slope is None or reference is None:
        return None
    vertex = (reference[0] - d0 * np.sin(phi), reference[1] + d0 * np.cos(phi), reference[2] + z0)
    curvature = omega / rule.unit
    with np.errstate(divide="ignore"):
        pt = CURVATURE * rule.field / np.abs(curvature)
    return {**_scaled(vertex, rule), "phi": phi, "cot": slope, "curvature": curvature, "pt": pt}


def _cone(columns: Columns, rule: Rule) -> Form | None:
    found = columns.momentum()
    return None if found is None else dict(zip(("pt", "phi", "eta"), found, strict=True))


def _tower(columns: Columns, rule: Rule) -> Form | None:
    energy, place = columns.number("energy", "e"), columns.position()
    if place is not None and energy is not None:
        x, y, z = place
        radius = np.hypot(x, y)
        with np.errstate(divide="ignore", invalid="ignore"):
            eta = np.arcsinh(z / np.where(radius > 0, radius, np.nan))
        direction = {"phi": np.arctan2(y, x), "eta": eta, "pt": energy / np.cosh(eta)}
        return {**_scaled(place, rule), **direction}
    return _cone(columns, rule)


def _arrow(columns: Columns, rule: Rule) -> Form | None:
    found = columns.across()
    return None if found is None else dict(zip(("pt", "phi"), found, strict=True))


def _scaled(place: tuple[Numbers, Numbers, Numbers], rule: Rule) -> Form:
    return {name: values * rule.unit for name, values in zip("xyz", place, strict=True)}


FORMS: dict[str, Callable[[Columns, Rule], Form | None]] = {
    "point": _point,
    "track": _track,
    "cone": _cone,
    "tower": _tower,
    "arrow": _arrow,
}
"""The functions of all forms."""

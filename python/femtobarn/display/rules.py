"""The drawing rules: the form of each collection in a drawing, by the names and fields of its items.

A rule that comes first goes first. Its pattern is compared with the class of the items, and with the name of
the field that holds them; it is for collections whose fields make its form. Collections without a rule are
drawn, too, if they have momenta or positions (:data:`OTHERS`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._exceptions import InvalidError, near_misses

if TYPE_CHECKING:
    from .columns import Columns, Numbers

__all__ = ["OTHERS", "PARTICLES", "RULES", "Rule", "rule_of"]

MILLIMETRE, CENTIMETRE = 0.001, 0.01

FORM_NAMES = ("arrow", "cone", "point", "tower", "track")


@dataclass(frozen=True)
class Rule:
    """A drawing rule: the form in which collections are drawn.

    Parameters
    ----------
    kind
        Word for one item: "jet".
    form
        "track" is a helix or a line from a vertex, "cone" a jet, "tower" an energy on the calorimeter's
        surface or at a position, "arrow" a momentum across the beam, "point" a position.
    names
        Regular expression for the class of the items, or the field that holds them; case does not matter.
    colour
        As in ``"#ffcf56"``.
    shown
        Whether items are drawn before the user asks for them.
    unit
        Metres in a unit of their lengths.
    field
        Field that bends tracks whose curvature is not stored (T), unless an object states its own.
    radius
        Radius of cones in pseudorapidity and azimuth.
    indices
        Members that are indices, and the field that they count in: a collection of the same object, or a
        link to an object with one collection.
    columns
        Further members, computed from those that are stored.

    Raises
    ------
    InvalidError
        If there is no such form, or `names` is not a regular expression.

    Examples
    --------
    >>> from femtobarn.display import RULES, Rule
    >>> RULES.insert(0, Rule("shower", "tower", r"Shower|.*Showers", "#5fd38d", unit=0.01))
    >>> RULES.pop(0).form
    'tower'
    """

    kind: str
    form: str
    names: str
    colour: str
    shown: bool = True
    unit: float = 1.0
    field: float = 3.8
    radius: float = 0.4
    indices: Mapping[str, str] = dataclasses.field(default_factory=dict)
    columns: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.form not in FORM_NAMES:
            raise InvalidError(f"there is no form {self.form!r}{near_misses(self.form, FORM_NAMES)}")
        try:
            re.compile(self.names)
        except re.error as error:
            raise InvalidError(f"{self.names!r} is not a regular expression: {error}") from None

    def matches(self, class_name: str, name: str) -> bool:
        """Tell whether the rule is for a collection with these names."""
        plain = class_name.partition("@")[0]
        return any(re.fullmatch(self.names, each, re.IGNORECASE) for each in (plain, name))


def _cells(eta_max: float, cells_phi: int) -> Callable[[Columns], dict[str, Numbers]]:
    """Return what computes directions of GIOD's cells, which lie on a square grid (``femtobarn_demo``)."""
    pitch = 2 * np.pi / cells_phi

    def directions(columns: Columns) -> dict[str, Numbers]:
        row, column = np.divmod(columns.numbers["cell"], 1024)
        return {"eta": (row + 0.5) * pitch - eta_max, "phi": (column + 0.5) * pitch}

    return directions


RULES: list[Rule] = [
    # GIOD: lengths in metres.
    Rule("track", "track", r"Track", "#7f8fb3",
         indices={"pixels": "pixel_hits", "strips": "strip_hits", "vertex": "vertices"}),
    Rule("vertex", "point", r"Vertex", "#ffffff"),
    Rule("hit", "point", r"PixelHit|StripHit", "#6c7a99"),
    Rule("muon hit", "point", r"MuonHit", "#ff6f61"),
    Rule("electromagnetic cell", "tower", r"EcalCell", "#5fd38d", columns=_cells(3.0, 360)),
    Rule("hadronic cell", "tower", r"HcalCell", "#4f9df7", columns=_cells(5.0, 72)),
    Rule("cluster", "tower", r"Cluster", "#a3e635", shown=False,
         indices={"ecal": "ecal_cells", "hcal": "hcal_cells"}),
    # NanoAOD: lengths in centimetres. Delphes has the same names, and others beside them.
    Rule("vertex", "point", r"PV", "#ffffff", unit=CENTIMETRE),
    Rule("vertex", "point", r"OtherPV|SV|PVBS|GenVtx", "#c3cbdb", unit=CENTIMETRE),
    Rule("missing momentum", "arrow", r"(PF|Puppi)?MET|MissingET|Tag", "#ff5fa8"),
    Rule("missing momentum", "arrow", r".*MET|GenMissingET|DeepMET.*", "#a8577f", shown=False),
    Rule("jet", "cone", r"(FatJet|.*AK8.*|.*Jets?(08|15))", "#ffcf56", shown=False, radius=0.8),
    Rule("jet", "cone", r"(Sub|Gen|SoftActivity|CorrT1MET|Calo|Track|ParticleFlow).*Jets?\w*", "#b8a15a",
         shown=False),
    Rule("jet", "cone", r"\w*Jets?", "#ffcf56"),
    Rule("generated particle", "track", r"MCParticle(Data)?", "#8d97ab", shown=False, unit=MILLIMETRE,
         field=3.5),
    Rule("generated particle", "track", r"(Gen|LHE)\w*|Particle|TauProd", "#8d97ab", shown=False),
    Rule("trigger object", "track", r"TrigObj|L1\w*", "#8d97ab", shown=False),
    Rule("muon", "track", r"\w*Muons?", "#ff6f61"),
    Rule("electron", "track", r"\w*Electrons?", "#5ce1e6"),
    Rule("photon", "track", r"(Fsr)?Photons?", "#ffe08a"),
    Rule("tau", "track", r"\w*Taus?", "#c792ea"),
    Rule("candidate", "track", r"\w*PFCands?\w*|IsoTrack", "#7f8fb3"),
    Rule("tower", "tower", r"Towers?", "#4f9df7"),
    # EDM4hep: lengths in millimetres.
    Rule("track", "track", r"SiTracks(CT)?", "#7f8fb3", shown=False, unit=MILLIMETRE, field=3.5),
    Rule("track", "track", r"TrackData", "#7f8fb3", unit=MILLIMETRE, field=3.5),
    Rule("particle", "track", r"PandoraPFOs|ReconstructedParticles", "#b9c3d9", field=3.5),
    Rule("particle", "track", r"ReconstructedParticleData", "#b9c3d9", shown=False, field=3.5),
    Rule("cluster", "tower", r"ClusterData", "#5fd38d", unit=MILLIMETRE),
    Rule("vertex", "point", r"PrimaryVert(ex|ices)", "#ffffff", unit=MILLIMETRE),
    Rule("vertex", "point", r"VertexData", "#c3cbdb", shown=False, unit=MILLIMETRE),
    Rule("hit", "point", r"(Sim)?TrackerHit\w*", "#6c7a99", unit=MILLIMETRE),
    Rule("calorimeter hit", "tower", r"(Sim|Raw)?CalorimeterHit\w*", "#5fd38d", unit=MILLIMETRE),
]  # fmt: skip
"""The rules, in the order in which they are tried. Programs insert their own."""

OTHERS = (Rule("item", "track", r".*", "#5ce1e6"), Rule("item", "point", r".*", "#5ce1e6"))
"""Rules for all other collections."""

PARTICLES = {11: ("electron", "#5ce1e6"), 13: ("muon", "#ff6f61"), 22: ("photon", "#ffe08a")}
"""Kinds and colours of particles, by the absolute values of their PDG codes."""


def rule_of(class_name: str, name: str, makes_form: Callable[[Rule], bool]) -> Rule | None:
    """Return the first rule for a collection, or None.

    Parameters
    ----------
    makes_form
        Tells whether the fields of the items are enough for the form of a rule.
    """
    found = (rule for rule in (*RULES, *OTHERS) if rule.matches(class_name, name))
    return next((rule for rule in found if makes_form(rule)), None)

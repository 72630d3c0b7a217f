"""The classes of reconstructed events: tracks, clusters, jets, and the tag that selects by them.

Each event has one object of each class. An object links to a whole raw collection and refers to points and
cells by their indices in it, which take a tenth of the bytes of links. The few constituents of jets have a
link each.
"""

from __future__ import annotations

from femtobarn.definitions import Definition, array_of, define, element_link, link, list_of, record

__all__ = ["CONTAINERS", "RECONSTRUCTED_CLASSES"]

_TRACK = record(
    "Track",
    ("pt", "float32", "transverse momentum, GeV"),
    ("eta", "float32", "pseudorapidity"),
    ("phi", "float32", "azimuth at the beam line, rad"),
    ("charge", "int8"),
    ("d0", "float32", "distance from the beam line, m"),
    ("z0", "float32", "position along the beam line, m"),
    ("covariance", array_of("float32", 15), "lower triangle for d0, phi, curvature (1/m), z0, pz / pt"),
    ("chi2", "float32"),
    ("freedom", "uint16", "degrees of freedom"),
    ("vertex", "int16", "index of the vertex, -1 for none"),
    ("muon", "bool", "matched to hits in the muon stations"),
    ("pixels", list_of("uint32"), "indices of its points in PixelHits"),
    ("strips", list_of("uint32"), "indices of its points in StripHits"),
)

_VERTEX = record("Vertex", ("z", "float32", "m"), ("tracks", "uint16", "number of tracks"))

_TRACKS = define(
    "Tracks",
    ("run", "uint32"),
    ("event", "uint64"),
    ("raw", link("RawEvent")),
    ("pixel_hits", link("PixelHits")),
    ("strip_hits", link("StripHits")),
    ("vertices", list_of(_VERTEX), "the primary one first"),
    ("tracks", list_of(_TRACK)),
)

_CLUSTER = record(
    "Cluster",
    ("energy", "float32", "GeV"),
    ("em", "float32", "its electromagnetic part, GeV"),
    ("had", "float32", "its hadronic part, GeV"),
    ("eta", "float32"),
    ("phi", "float32", "rad"),
    ("width", "float32", "in pseudorapidity"),
    ("towers", "uint16"),
    ("ecal", list_of("uint32"), "indices of its cells in EcalCells"),
    ("hcal", list_of("uint32"), "indices of its cells in HcalCells"),
)

_CLUSTERS = define(
    "Clusters",
    ("run", "uint32"),
    ("event", "uint64"),
    ("raw", link("RawEvent")),
    ("ecal_cells", link("EcalCells")),
    ("hcal_cells", link("HcalCells")),
    ("clusters", list_of(_CLUSTER)),
)

_JET = record(
    "Jet",
    ("pt", "float32", "GeV"),
    ("eta", "float32"),
    ("phi", "float32", "rad"),
    ("mass", "float32", "GeV"),
    ("tracks", list_of(element_link("Tracks"))),
    ("clusters", list_of(element_link("Clusters"))),
)

_JETS = define(
    "Jets",
    ("run", "uint32"),
    ("event", "uint64"),
    ("raw", link("RawEvent")),
    ("jets", list_of(_JET), "anti-kT, radius 0.4, the hardest first"),
)

_TAG = define(
    "Tag",
    ("run", "uint32"),
    ("event", "uint64"),
    ("n_tracks", "uint16"),
    ("n_vertices", "uint16"),
    ("n_clusters", "uint16"),
    ("n_jets", "uint16", "above 20 GeV"),
    ("n_muons", "uint16"),
    ("lead_track_pt", "float32", "GeV"),
    ("lead_jet_pt", "float32", "GeV"),
    ("dijet_mass", "float32", "of the two hardest jets, GeV"),
    ("ht", "float32", "sum of the jets' transverse momenta, GeV"),
    ("met", "float32", "missing transverse momentum, GeV"),
    ("met_phi", "float32", "rad"),
    ("raw", link("RawEvent")),
    ("tracks", link("Tracks")),
    ("clusters", link("Clusters")),
    ("jets", link("Jets")),
)

RECONSTRUCTED_CLASSES: tuple[Definition, ...] = (_TRACKS, _CLUSTERS, _JETS, _TAG)
"""All classes of a reconstructed event, targets of links first."""

CONTAINERS: dict[str, str] = {"Tracks": "tracks", "Clusters": "clusters", "Jets": "jets", "Tag": "tags"}
"""The container that holds the objects of each class in a database."""

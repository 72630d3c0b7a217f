"""Importers: files of other formats as class definitions and batches of arrays.

TTree files are read through uproot. Jagged branches become lists, NanoAOD's ``nX`` and ``X_*`` and the
members of podio's and ATLAS's collections become collections of records::

    source = open_tree("nano_dimuon.root")
    source.definition            # {"name": "Events", "fields": [..., {"name": "Muon", "type": {"list": ...
    for batch in source.batches():
        container.extend(batch)

RNTuple files are not imported but attached, as they are. Needs the extra `io`.
"""

from femtobarn.importers.samples import Sample, Samples
from femtobarn.importers.trees import Skipped, TreeSource, open_tree, open_trees, require_matches

__all__ = ["Sample", "Samples", "Skipped", "TreeSource", "open_tree", "open_trees", "require_matches"]

"""Importers: TTrees of ROOT files as class definitions and batches of arrays.

uproot reads the files. Jagged branches become lists. NanoAOD's ``nX`` and ``X_*``, and the members of podio's
and ATLAS's collections, become collections of records::

    source = open_tree("nano_dimuon.root")
    source.definition            # {"name": "Events", "fields": [..., {"name": "Muon", "type": {"list": ...
    for batch in source.batches():
        container.extend(batch)

Files with RNTuples need no import: they can be attached. Needs the extra `io`.

- ``files``: a ROOT file and its trees. ``branches``: the branches of a tree, and the path of each in the
  class.
- ``types``: layouts of awkward as types. ``baskets``: branches of plain numbers, read without uproot.
- ``assembly``: columns assembled into fields. ``cross_references``: indices that refer to elements of the
  same object; ``container_keys``: the keys by which some of them name a collection.
- ``trees``: a tree as a source of objects.
- ``samples``: sample files that experiments have published.
"""

from femtobarn.importers.samples import Sample, Samples
from femtobarn.importers.trees import Skipped, TreeSource, open_tree, open_trees, require_matches

__all__ = ["Sample", "Samples", "Skipped", "TreeSource", "open_tree", "open_trees", "require_matches"]

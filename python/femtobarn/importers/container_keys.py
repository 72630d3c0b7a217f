"""Keys by which records of podio and ATLAS name collections.

podio numbers the collections of a file, and keeps the numbers in the tree ``podio_metadata``. A key of ATLAS
is the lowest 30 bits of the 64-bit cyclic redundancy check of the name of a container and the number of its
class, which the file does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from femtobarn.importers.files import TreeFile

__all__ = ["KeyTables", "atlas_keys"]

CLASS_NUMBERS = {
    "TruthEventContainer": 1200227006,
    "TruthParticleContainer": 1237340765,
    "TruthVertexContainer": 1239726567,
    "TrackParticleContainer": 1287425431,
    "VertexContainer": 1092961325,
    "CaloClusterContainer": 1219821989,
    "ElectronContainer": 1087532415,
    "PhotonContainer": 1105575213,
    "EgammaContainer": 1087548811,
    "MuonContainer": 1178459224,
    "TauJetContainer": 1177172564,
    "TauTrackContainer": 1306133771,
    "JetContainer": 1244316195,
    "BTaggingContainer": 1264356158,
    "IParticleContainer": 1241842700,
}
"""Numbers of the classes of ATLAS's containers, as they declare them, without ``xAOD::``."""

POLYNOMIAL = 0x95AC9329AC4BC9B5
"""Of the redundancy check, lowest bit first."""

KEY_MASK = (1 << 30) - 1


class KeyTables:
    """The collections of a tree by their keys.

    Parameters
    ----------
    file, tree
        The file, and the name of the tree in it.
    """

    def __init__(self, file: TreeFile, tree: str) -> None:
        self._file, self._tree = file, tree
        self._known: dict[str, dict[int, str]] = {}

    def of(self, convention: str, collections: Mapping[str, str]) -> dict[int, str]:
        """Return the fields that are collections, by the keys of a convention, ``"podio"`` or ``"atlas"``.

        Parameters
        ----------
        collections
            Names in the file by the names of the fields.
        """
        if convention not in self._known:
            fields = {name: made for made, name in collections.items()}
            keys = self._podio if convention == "podio" else atlas_keys(fields)
            self._known[convention] = {key: fields[name] for key, name in keys.items() if name in fields}
        return self._known[convention]

    @cached_property
    def _podio(self) -> dict[int, str]:
        if "podio_metadata" not in self._file.trees:
            return {}
        metadata = self._file.tree("podio_metadata")
        places = (
            (f"{self._tree}___CollectionTypeInfo", "collectionID", "name"),
            (f"{self._tree}___idTable", "m_collectionIDs", "m_names"),
        )
        for branch, *members in places:
            children = {child.name.rpartition(".")[2]: child for child in _children(metadata, branch)}
            if set(members) <= set(children):
                keys, names = (children[each].array(library="np")[0] for each in members)
                return dict(zip(map(int, keys), map(str, names), strict=True))
        return {}


def _children(tree: Any, name: str) -> list[Any]:
    return next((list(branch.branches) for branch in tree.branches if branch.name == name), [])


def atlas_keys(names: Mapping[str, str]) -> dict[int, str]:
    """Return the names of containers by the keys that they have if they are of one of the known classes.

    Examples
    --------
    >>> atlas_keys({"PrimaryVertices": ""})[936461719]
    'PrimaryVertices'
    """
    keys = {}
    for name in names:
        checked = _checked(name.encode(), (1 << 64) - 1)
        for number in CLASS_NUMBERS.values():
            keys[_checked(number.to_bytes(4, "little"), checked) & KEY_MASK] = name
    return keys


def _table() -> tuple[int, ...]:
    """Return the contribution of each byte to the redundancy check."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE = _table()


def _checked(data: bytes, before: int) -> int:
    """Return the redundancy check of bytes that follow others."""
    for byte in data:
        before = _TABLE[(before ^ byte) & 0xFF] ^ before >> 8
    return before

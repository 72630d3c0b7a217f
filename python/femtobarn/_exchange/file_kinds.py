"""Kinds of files that are imported, by the suffixes of their names."""

from __future__ import annotations

from pathlib import Path

__all__ = ["EVENTS", "KINDS", "STREAMS", "kind_of", "stem_of"]

KINDS = {
    ".root": "root",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "tsv",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".lhe": "lhe",
    ".hepmc": "hepmc",
    ".hepmc3": "hepmc",
}
"""The kind of file that each suffix stands for."""

STREAMS = ("csv", "tsv", "lhe", "hepmc")
"""Kinds of text files: gzip may compress them, and the number of their objects is known only at the end."""

EVENTS = ("lhe", "hepmc")
"""Kinds of files of events, whose containers are not named after the file."""


def kind_of(path: Path) -> str | None:
    """Return the kind of a file, or None if its suffix is not known.

    >>> kind_of(Path("ttbar.lhe.gz")), kind_of(Path("ttbar.parquet.gz"))
    ('lhe', None)
    """
    kind = KINDS.get(_uncompressed(path).suffix.lower())
    return kind if kind in STREAMS or _uncompressed(path) == path else None


def stem_of(path: Path) -> str:
    """Return the name of a file without its suffixes.

    >>> stem_of(Path("mc/ttbar.lhe.gz"))
    'ttbar'
    """
    return _uncompressed(path).stem if kind_of(path) else path.stem


def _uncompressed(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path

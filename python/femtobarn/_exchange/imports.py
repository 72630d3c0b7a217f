"""The methods of a federation that import files of other formats; they load the importers when called."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._exceptions import path_text

if TYPE_CHECKING:
    from .._bars import ProgressOption
    from .._query.paths import Expressions
    from .import_target import Imported, ImportTarget
    from .tree_imports import Files

__all__ = ["Imports"]


class Imports:
    """Imports of trees, tables and generated events; a part of :class:`femtobarn.Federation`."""

    def import_tree(
        self: ImportTarget,
        path: str | os.PathLike[str],
        tree: str | None = None,
        *,
        database: str | None = None,
        container: str | None = None,
        class_name: str | None = None,
        only: list[str] | None = None,
        grouping: bool = True,
        again: bool = False,
        jobs: int = 1,
        batch_bytes: int = 64_000_000,
        links: bool = True,
        progress: ProgressOption = None,
    ) -> Imported:
        """Copy one TTree of a ROOT file, or all of them, into containers, in one transaction.

        Parameters
        ----------
        path
            A ROOT file.
        tree
            Name of the tree; all trees of the file if not given.
        database, container, class_name, only, grouping, again, jobs, batch_bytes, links, progress
            As for :meth:`import_trees`.

        Returns
        -------
        Imported
            The result for the named tree; without a name, for the main tree of the file: the one with a usual
            name, such as ``Events``, or else the largest.
        """
        from .tree_imports import main_tree

        files = [(path_text(path), None)]
        trees = None if tree is None else [tree]
        chosen = (trees, database, container, class_name, only, grouping, again, jobs, batch_bytes, links)
        return main_tree(_imported(self, files, chosen, progress))

    def import_trees(
        self: ImportTarget,
        files: Files,
        trees: Sequence[str] | None = None,
        *,
        database: str | None = None,
        container: str | None = None,
        class_name: str | None = None,
        only: list[str] | None = None,
        grouping: bool = True,
        again: bool = False,
        jobs: int = 1,
        batch_bytes: int = 64_000_000,
        links: bool = True,
        progress: ProgressOption = None,
    ) -> list[Imported]:
        """Copy TTrees of ROOT files into containers, all files in one transaction.

        Trees that go into one container get one class. A field that some files lack is optional, and missing
        in the objects of those files: a trigger that a file does not record has not failed to fire. An
        existing container gets a newer version of its class if a file has other fields. The container
        ``imports`` of each database records the files, trees and entries imported into it.

        Parameters
        ----------
        files
            ROOT files, globs such as ``"dy/**/*.root"``, or ``FILE:TREE``: one, or a list.
        trees
            Names of the trees; every tree that can be imported if not given.
        database
            Database to import into, made if it does not exist; by default one for each file, named after it.
        container
            Container to append to, made if it does not exist; by default named after the tree. ``{tree}`` in
            the name stands for the name of the tree.
        class_name
            Class of the objects of a new container, by default named after the tree; ``{tree}`` as above.
        only
            Globs of branches to import; all if not given.
        grouping
            Whether branches with a common prefix, such as ``Muon_``, become collections and records.
        again
            Whether to import trees that were imported before.
        jobs
            Processes that read while this one writes. With 1 a thread reads, which is enough for numbers.
            A script that gives more needs ``if __name__ == "__main__":``.
        batch_bytes
            Size of one read, uncompressed; each job needs a few times as much memory.
        links
            Whether indices of elements of the same object become links, stored as the numbers that they are.
        progress
            Called with the objects imported so far and in all; True shows a bar (terminals, notebooks).

        Returns
        -------
        list
            The result for each tree.

        Raises
        ------
        ExistsError
            If a tree was imported before, or is given twice; copies of a file count as the file.
        InvalidError
            If the trees of one container have a field of different types; the text names it.
        NotFoundError
            If a file or a tree does not exist, or a glob matches nothing.
        """
        from .tree_imports import expand_files

        chosen = (trees, database, container, class_name, only, grouping, again, jobs, batch_bytes, links)
        return _imported(self, expand_files(files), chosen, progress)

    def import_file(
        self: ImportTarget,
        path: str | os.PathLike[str],
        *,
        database: str | None = None,
        container: str | None = None,
        class_name: str | None = None,
        ntuple: str | None = None,
        expressions: Expressions = None,
        again: bool = False,
        progress: ProgressOption = None,
    ) -> Imported:
        """Copy a table, an RNTuple of a ROOT file, or events of a generator into a container.

        Data that LHE and HepMC files have once become an object of the container ``runs``, to which their
        events link; with ``container="mc"`` it is called ``mc_runs``.

        Parameters
        ----------
        path
            A ``.parquet``, ``.arrow``, ``.feather``, ``.csv``, ``.tsv``, ``.h5``, ``.hdf5``, ``.root``,
            ``.lhe``, ``.hepmc`` or ``.hepmc3`` file; ``.gz`` may follow the suffixes of texts. ``FILE:NAME``
            names the RNTuple, or the dataset or group of an HDF5 file.
        database
            Database to import into, made if it does not exist; by default named after the file.
        container
            Container to append to, made if it does not exist; by default named after the file, the RNTuple or
            the dataset, and ``events`` for LHE and HepMC files.
        class_name
            Class of the objects, by default named as the container, or ``LHEEvent`` and ``HepMCEvent``.
        ntuple
            Name of the RNTuple or the dataset, if the file has more than one.
        expressions
            Fields to import, as for :meth:`View.arrays`; all if not given.
        again
            Whether to import the file even if it was imported before.
        progress
            Called with the objects imported so far and the objects in all; for CSV, LHE and HepMC files with
            the bytes that were read, and the size of the file. True shows a bar, on a terminal or in a
            notebook.

        Raises
        ------
        ExistsError
            If the file was imported before.
        InvalidError
            If a column is of a type that cannot be stored, or a line of a CSV file has another number of
            values than the first; the text names it.
        NotFoundError
            If the file, the RNTuple or the dataset does not exist; near misses are named.
        CorruptError
            If the file is damaged, or was not written to its end.
        UnsupportedError
            If the package that reads the file is not installed.

        Examples
        --------
        >>> import femtobarn as fb, pandas as pd, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> pd.DataFrame({"n": [1, 2, 3]}).to_parquet(folder + "/numbers.parquet")
        >>> fed = fb.create(folder + "/lhc.fed")
        >>> fed.import_file(folder + "/numbers.parquet", database="d").container
        'd/numbers'
        >>> fed["d/numbers"][2].n
        3
        """
        from .file_imports import FileOptions, import_file

        options = FileOptions(database, container, class_name, ntuple, expressions, again, progress)
        return import_file(self, Path(path_text(path)), options)


def _imported(
    target: ImportTarget, files: Any, chosen: tuple[Any, ...], progress: ProgressOption
) -> list[Imported]:
    """Import trees of files as chosen by the arguments of :class:`TreeOptions`."""
    from .import_plan import TreeOptions
    from .tree_imports import import_trees

    return import_trees(target, files, TreeOptions(*chosen), progress)

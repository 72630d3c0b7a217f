"""Opens conditions: of a federation by its path or servers, or in snapshot files without a federation."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._conditions.conditions_files import ATTACHED_AS, ConditionsFile
from ._conditions.jobs import Job
from ._exceptions import CorruptError, NotFoundError
from ._federations import create
from ._federations import open as open_federation
from ._femtobarn import FederationHandle

__all__ = ["conditions", "open_conditions"]


def conditions(
    path: str | os.PathLike[str] | Sequence[str],
    global_tag: str | None = None,
    *,
    csn: int | None = None,
    **options: Any,
) -> Job:
    """Open a federation, and the conditions of a global tag in it.

    Short for ``fb.open(path, **options).conditions(global_tag, csn=csn)``, for jobs that need nothing else of
    the federation. With several servers, only those that have reached the job's commit are asked.

    Parameters
    ----------
    path, options
        As for :func:`open`.
    global_tag, csn
        As for ``fed.conditions(...)``.

    Raises
    ------
    NotFoundError
        If there is no such federation or tag.
    UnavailableError
        If no server can be reached.
    InvalidError, DeniedError, UnsupportedError
        As :func:`open`.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> folder = tempfile.mkdtemp() + "/lhc.fed"
    >>> fed = fb.create(folder)
    >>> @fb.persistent
    ... class Gain:
    ...     value: fb.float64
    >>> with fed.transaction() as txn:
    ...     oid = txn.series("tpc/gain", Gain, create=True).put(Gain(value=1.5), since=0)
    >>> fb.conditions(folder)["tpc/gain"].at(150).value
    1.5
    """
    return open_federation(path, **options).conditions(global_tag, csn=csn)


def open_conditions(path: str | os.PathLike[str]) -> ConditionsFile:
    """Open a snapshot file of conditions, without federation and network.

    The root hash is verified now, and each series when it is first used.

    Parameters
    ----------
    path
        A file that :meth:`Job.write_snapshot` or :meth:`Job.write_job_file` wrote.

    Raises
    ------
    NotFoundError
        If there is no such file.
    CorruptError
        If the file is truncated or damaged.
    InvalidError
        If it is not a snapshot file.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> fed = fb.create(folder + "/lhc.fed")
    >>> @fb.persistent
    ... class Gain:
    ...     value: fb.float64
    >>> with fed.transaction() as txn:
    ...     oid = txn.series("tpc/gain", Gain, create=True).put(Gain(value=1.5), since=0)
    >>> fed.conditions().write_snapshot(folder + "/gains.root", since=100, until=200)
    >>> with fb.open_conditions(folder + "/gains.root") as job:
    ...     print(job["tpc/gain"].at(150).value)
    1.5
    """
    file = os.fspath(path)
    if not Path(file).is_file():
        raise NotFoundError(f"file {file} does not exist")
    folder = tempfile.mkdtemp(prefix="femtobarn-conditions-")
    federation = create(Path(folder) / "conditions.fed")
    # Series and objects hold the federation, so that it stays as long as one of them is in use.
    discard = weakref.finalize(federation, _discard, federation._handle, folder, os.getpid())
    try:
        federation.attach(Path(file).absolute(), ATTACHED_AS)
        return ConditionsFile(file, federation.snapshot(), discard)
    except CorruptError as error:
        discard()
        text = str(error)
        raise CorruptError(text if file in text else f"{file} is damaged: {text}; copy it again") from error
    except BaseException:
        discard()
        raise


def _discard(handle: FederationHandle, folder: str, process: int) -> None:
    """Close and remove a temporary federation, but not that of the parent of a forked process."""
    if os.getpid() == process:
        handle.close()
        shutil.rmtree(folder, ignore_errors=True)

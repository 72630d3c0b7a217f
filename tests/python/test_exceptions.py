"""The tree of exceptions: what a user may catch, and the stable kinds."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import femtobarn as fb
from femtobarn._exceptions import BY_KIND, missing_file, near_misses

KINDS = {
    "busy": fb.BusyError,
    "closed": fb.ClosedError,
    "conflict": fb.ConflictError,
    "corrupt": fb.CorruptError,
    "denied": fb.DeniedError,
    "exists": fb.ExistsError,
    "internal": fb.InternalError,
    "invalid": fb.InvalidError,
    "not-found": fb.NotFoundError,
    "storage": fb.StorageError,
    "unavailable": fb.UnavailableError,
    "unsupported": fb.UnsupportedError,
}


def test_kinds_are_stable() -> None:
    assert BY_KIND == KINDS
    assert all(error.kind == kind for kind, error in KINDS.items())


@pytest.mark.parametrize("error", KINDS.values())
def test_every_error_is_a_femtobarn_error(error: type[fb.FemtobarnError]) -> None:
    assert issubclass(error, fb.FemtobarnError)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (fb.NotFoundError, KeyError),
        (fb.InvalidError, ValueError),
        (fb.StorageError, OSError),
        (fb.DeniedError, PermissionError),
        (fb.UnavailableError, ConnectionError),
    ],
)
def test_python_exceptions_for_the_same_situation_catch_it(error: type, builtin: type) -> None:
    with pytest.raises(builtin):
        raise error("text")


@pytest.mark.parametrize("error", KINDS.values())
def test_error_text_is_shown_without_quotes_and_survives_pickling(error: type[fb.FemtobarnError]) -> None:
    raised = error("field 'x' does not exist")
    assert str(raised) == "field 'x' does not exist"
    assert str(pickle.loads(pickle.dumps(raised))) == str(raised)


def test_near_misses_suggest_or_list() -> None:
    assert near_misses("mouns", ["muons", "jets"]) == "; did you mean 'muons'?"
    assert near_misses("zzz", ["muons"]) == "; there is muons"
    assert near_misses("zzz", []) == "; there are none"
    assert near_misses("zzz", map(str, range(20))).endswith(", ...")


def test_error_of_a_missing_file_names_similar_files_or_the_missing_folder(tmp_path: Path) -> None:
    def error(name: str) -> str:
        return str(missing_file(tmp_path / name, "*.root"))

    assert error("run7.root").endswith(f"run7.root does not exist; {tmp_path} has no file *.root")
    assert error("raw/run7.root").endswith(f"; nor does the folder {tmp_path / 'raw'}")
    (tmp_path / "run8.root").touch()
    assert error("run7.root").endswith("; did you mean 'run8.root'?")

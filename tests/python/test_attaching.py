"""Databases of several federations that come together in one, with classes of one name and other fields."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import femtobarn as fb

if TYPE_CHECKING:
    from femtobarn.importers.samples import Samples


@fb.persistent
class Events:
    run: fb.uint32
    event: fb.uint64


@fb.persistent(name="Events")
class Dimuon:
    run: fb.uint32
    mass: fb.float32


@fb.persistent(name="Events", version=2)
class Dimuon2:
    run: fb.uint32
    mass: fb.float32
    charge: fb.int8 = fb.field(default=1)


@fb.persistent
class Skim:
    event: fb.link[Events] = None


COLUMNS: dict[str, tuple[Any, dict[str, list[float]]]] = {
    "dy": (Events, {"run": [1, 1], "event": [7, 8]}),
    "dimuon": (Dimuon, {"run": [2, 2], "mass": [91.5, 3.0]}),
}


def detached(folder: Path, name: str) -> str:
    """The file of a database with two events and a link to the second, from a federation of its own."""
    cls, columns = COLUMNS[name]
    with fb.create(folder / f"{name}.fed") as fed:
        with fed.transaction() as txn:
            database = txn.database(name, create=True)
            oids = database.container("events", cls, create=True).extend(columns)
            database.container("skim", Skim, create=True).append(Skim(event=oids[1]))
        return fed.detach(name)


@pytest.fixture
def merged(tmp_path: Path) -> fb.Federation:
    """A federation with both databases attached."""
    fed = fb.create(tmp_path / "merged.fed")
    assert fed.attach(detached(tmp_path, "dy")).renamed == {}
    assert fed.attach(detached(tmp_path, "dimuon")).renamed == {"Events": "Events@dimuon"}
    return fed


def test_attached_classes_that_differ_under_one_name_are_both_kept(merged: fb.Federation) -> None:
    """Attaching the second failed: class Events version 1 exists with other fields."""
    names = {name: merged[f"{name}/events"].definition.name for name in COLUMNS}
    assert names == {"dy": "Events", "dimuon": "Events@dimuon"}
    assert sorted(each["name"] for each in merged.classes()) == ["Events", "Events@dimuon", "Skim"]
    for name, (_, columns) in COLUMNS.items():
        array = merged[f"{name}/events"].arrays()
        assert {field: array[field].to_list() for field in array.fields} == columns
        assert str(array.type).startswith("2 * Events[")
    assert merged.check(full=True).problems == []


def test_links_to_a_renamed_class_are_followed_and_found_by_referrers(merged: fb.Federation) -> None:
    assert merged["dimuon/skim"][0].event.mass == 3.0
    for name in COLUMNS:
        found = merged.snapshot().referrers(merged[f"{name}/events"][1])
        assert [each.oid for each in found] == [merged[f"{name}/skim"][0].oid]


def test_a_persistent_class_stands_for_the_renamed_class_with_its_fields(merged: fb.Federation) -> None:
    with merged.transaction() as txn:
        copies = txn.database("copies", create=True)
        writer = copies.container("dimuon", Dimuon, create=True)
        assert writer.definition.name == "Events@dimuon"
        writer.append(Dimuon(run=3, mass=10.0))
        assert copies.container("dy", Events, create=True).definition.name == "Events"
        with pytest.raises(fb.InvalidError, match="differs"):
            copies.container("dimuon", Events)
    with merged.transaction() as txn:
        txn.database("copies").container("dimuon", Dimuon2, evolve=True).append(Dimuon2(run=4, mass=2.0))
    view = merged["copies/dimuon"]
    assert (view.definition.name, view.definition.version) == ("Events@dimuon", 2)
    assert [(each.mass, each.charge) for each in view] == [(10.0, 1), (2.0, 1)]


def test_class_renamed_after_its_database_keeps_its_plain_name_elsewhere(
    merged: fb.Federation, tmp_path: Path
) -> None:
    with merged.transaction() as txn:
        copies = txn.database("copies", create=True)
        copies.container("events", Dimuon, create=True).append(Dimuon(run=3, mass=10.0))
    merged.seal("copies")
    file = merged.detach("copies", to=tmp_path / "copies.root")
    with fb.create(tmp_path / "other.fed") as other:
        assert other.attach(file).renamed == {"Events@dimuon": "Events"}
        assert other["copies/events"].definition.name == "Events"
    assert merged.attach(file, "again").renamed == {}


@pytest.mark.network
def test_two_versions_of_nanoaod_are_attached_to_one_federation(files: Samples, tmp_path: Path) -> None:
    merged = fb.create(tmp_path / "merged.fed")
    counts = {}
    for name in ("nano_dy", "nano_dimuon"):
        with fb.create(tmp_path / f"{name}.fed") as fed:
            path = fed.import_tree(files.path(f"{name}.root"), "Events", database=name).container
            counts[path] = len(fed[path])
            wanted = fed[path].arrays("Muon.pt").to_list()
            merged.attach(fed.detach(name))
        assert merged[path].arrays("Muon.pt").to_list() == wanted
    assert {name: len(merged[name]) for name in counts} == counts
    assert merged["nano_dimuon/Events"].definition.name == "Events@nano_dimuon"
    assert merged.check(full=True).problems == []


def test_an_rntuple_of_uproot_is_attached(tmp_path: Path) -> None:
    uproot = pytest.importorskip("uproot", reason="the extra `io` is not installed")
    columns = {"run": np.full(3, 7, np.uint32), "mass": np.array([91.0, 3.1, 9.5])}
    with uproot.recreate(tmp_path / "run7.root") as file:
        file.mkrntuple("events", columns)
    with fb.create(tmp_path / "lhc.fed") as fed:
        fed.attach(str(tmp_path / "run7.root"), "run7")
        arrays = fed["run7/events"].arrays()
        assert {name: arrays[name].tolist() for name in columns} == {
            name: column.tolist() for name, column in columns.items()
        }

"""Renamed members of data models: podio's files of migrations, and stored objects under the new names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import femtobarn as fb

MIGRATIONS = """
migrations:
  my::Hit:
    - from_version: 1
      to_version: 2
      rename_member:
        from: e
        to: energy
    - from_version: 2
      to_version: 3
      rename_member:
        from: edep
        to: energy
  my::Point:
    - from_version: 1
      to_version: 2
      rename_member: {from: x, to: px}
"""


def model(version: int, energy: str, x: str = "px") -> dict[str, Any]:
    return {
        "schema_version": version,
        "components": {"my::Point": {"Members": [f"float {x}", "float z"]}},
        "datatypes": {
            "my::Hit": {
                "Members": [f"float {energy}{{-1}}", "my::Point at"],
                "VectorMembers": ["my::Point near"],
            }
        },
    }


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    path = tmp_path / "evolution.yaml"
    path.write_text(MIGRATIONS)
    return path


@pytest.fixture
def hits(fed: fb.Federation) -> fb.Federation:
    """A federation with a hit of the first version."""
    first = fed.define(model(1, "e", "x"))
    point = first["my::Point"](x=3.0, z=4.0)
    with fed.transaction() as txn:
        place = txn.database("d", create=True).container("hits", first.Hit, create=True)
        place.append(first.Hit(e=1.5, at=point, near=[point, point]))
    return fed


def test_renamed_members_keep_their_values(hits: fb.Federation, migrations: Path) -> None:
    newer = hits.define(model(3, "energy"), evolution=migrations)
    with hits.transaction() as txn:
        txn.database("d").container("hits", newer.Hit, evolve=True).append(newer.Hit(energy=2.5))
    view = hits["d/hits"]
    assert view["energy"].to_list() == [1.5, 2.5]
    assert view.arrays(["at", "near"])[0].to_list() == {
        "at": {"px": 3.0, "z": 4.0},
        "near": 2 * [{"px": 3.0, "z": 4.0}],
    }
    assert view.as_class(1)["e"].to_list() == [1.5, 2.5]


def test_a_member_that_is_renamed_twice_stays_one_member(hits: fb.Federation) -> None:
    def renamed(old: str, new: str, to: int) -> dict[str, Any]:
        names = {"from": old, "to": new}
        return {
            "migrations": {"my::Hit": [{"from_version": to - 1, "to_version": to, "rename_member": names}]}
        }

    hits.define(model(2, "edep", "x"), evolution=renamed("e", "edep", 2))
    newest = hits.define(model(3, "energy", "x"), evolution=renamed("edep", "energy", 3))
    with hits.transaction() as txn:
        txn.database("d").container("hits", newest.Hit, evolve=True)
    assert hits["d/hits"]["energy"].to_list() == [1.5]


def test_without_migrations_a_renamed_member_is_another_one(hits: fb.Federation) -> None:
    newer = hits.define(model(2, "energy", "x"))
    with hits.transaction() as txn:
        txn.database("d").container("hits", newer.Hit, evolve=True)
    assert hits["d/hits"]["energy"].to_list() == [-1.0]


def test_migrations_of_registered_versions_change_nothing(hits: fb.Federation, migrations: Path) -> None:
    hits.define(model(3, "energy"), evolution=migrations)
    head = hits.head()
    assert hits.define(model(3, "energy"), evolution=migrations).definitions["my::Hit"].version == 3
    assert hits.define(model(3, "energy")).definitions["my::Hit"].fields[0].was == "e"
    assert hits.head() == head


def test_migrations_in_an_empty_federation_are_those_of_no_object(
    fed: fb.Federation, migrations: Path
) -> None:
    defined = fed.define(model(3, "energy"), evolution=migrations)
    assert [field.was for field in defined.definitions["my::Hit"].fields] == ["", "", ""]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("my::Hit:", "my::Hot:", "'my::Hot': the model has no such class; did you mean 'my::Hit'"),
        ("to: energy", "to: enrgy", "renamed to 'enrgy', which is not a member; did you mean 'energy'"),
        ("from: e\n", "from: at\n", "'at' is renamed to 'energy', but is still a member"),
        ("to_version: 3", "to_version: 7", "in version 7, but the schema_version of the model is 3"),
        ("to_version: 3", "to_version: 2", "from_version must be less than to_version"),
        (
            "rename_member:\n",
            "rename_membr:\n",
            "'rename_membr' does not exist; did you mean 'rename_member'",
        ),
        ("{from: x, to: px}", "[x, px]", r"must have the names 'from' and 'to', not \['x', 'px'\]"),
        ("{from: x, to: px}", "{from: x, to: px}\n      drop: y", "must have one change"),
        ("migrations:", "evolutions:", "has the section 'migrations' and no other, not evolutions"),
        ("migrations:", "migrations: [", "is not YAML"),
    ],
)
def test_malformed_migrations_are_refused_with_their_place(
    fed: fb.Federation, migrations: Path, before: str, after: str, reason: str
) -> None:
    assert before in MIGRATIONS
    migrations.write_text(MIGRATIONS.replace(before, after))
    with pytest.raises(fb.InvalidError, match=reason):
        fed.define(model(3, "energy"), evolution=migrations)
    assert fed.classes() == []


def test_renamed_datatypes_are_refused_with_the_remedy(fed: fb.Federation, migrations: Path) -> None:
    migrations.write_text(MIGRATIONS.replace("rename_member:\n", "rename_datatype:\n"))
    with pytest.raises(fb.UnsupportedError, match=r"migration 1 of 'my::Hit': .* keep the name 'my::Hit'"):
        fed.define(model(3, "energy"), evolution=migrations)

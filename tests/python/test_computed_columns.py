"""Computed columns, fields behind links, and uproot's names for parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import awkward as ak
import numpy as np
import pytest

import femtobarn as fb


@fb.persistent
class Raw:
    number: int
    hits: list[float]


@fb.persistent
class Muon:
    pt: float
    eta: float


@fb.persistent
class Event:
    run: int
    muons: list[Muon]
    raw: fb.link[Raw]
    others: Sequence[fb.link[Raw]]


@pytest.fixture
def events(fed: fb.Federation) -> fb.View:
    """Event number `i` has `i` muons, links to `i` raw events, and but for one a link to its own."""
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        raw = database.container("raw", Raw, create=True)
        oids = [raw.append(Raw(number=10 * i, hits=[1.0] * i)) for i in range(4)]
        container = database.container("events", Event, create=True)
        for i in range(4):
            muons = [Muon(pt=10.0 * j + i, eta=0.5 * j) for j in range(i)]
            container.append(Event(run=i, muons=muons, raw=None if i == 1 else oids[i], others=oids[:i]))
    return fed["d/events"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {
                "expressions": ["run", "ht"],
                "aliases": {"ht": "sum(muons.pt)", "two": "2 * ht"},
                "where": "two > 25",
            },
            [{"run": 2, "ht": 14.0}, {"run": 3, "ht": 39.0}],
        ),
        (
            {"expressions": "lead", "aliases": {"lead": "muons.pt[0]"}, "cut": "run < 2"},
            [{"lead": None}, {"lead": 1.0}],
        ),
        (
            {
                "expressions": ["muons.eta", "twice"],
                "aliases": {"twice": "muons.pt * 2"},
                "where": "run == 2",
            },
            [{"muons": [{"eta": 0.0}, {"eta": 0.5}], "twice": [4.0, 24.0]}],
        ),
        (
            {"expressions": ["nmuons", "one"], "aliases": {"one": "run - run + 1"}, "where": "run > 2"},
            [{"nmuons": 3, "one": 1}],
        ),
        (
            {"expressions": ["run", "raw.number"], "where": "run in (1, 2)"},
            [{"run": 1, "raw": {"number": None}}, {"run": 2, "raw": {"number": 20}}],
        ),
        (
            {"expressions": "raw.hits", "where": "run < 3"},
            [{"raw": {"hits": []}}, {"raw": {"hits": None}}, {"raw": {"hits": [1.0, 1.0]}}],
        ),
        ({"expressions": ["others.number"], "where": "run == 3"}, [{"others": {"number": [0, 10, 20]}}]),
        (
            {"filter_name": "r*", "cut": "raw.number == 30"},
            [{"run": 3, "raw": {"database": 1, "container": 1, "entry": 3}}],
        ),
        (
            {"expressions": ["sum2"], "aliases": {"sum2": "raw.number + run"}},
            [{"sum2": 0}, {"sum2": None}, {"sum2": 22}, {"sum2": 33}],
        ),
    ],
)
def test_columns_are_computed(events: fb.View, arguments: dict[str, Any], expected: Any) -> None:
    assert events.arrays(**arguments).to_list() == expected


def test_aliases_come_after_all_fields(events: fb.View) -> None:
    array = events.arrays(aliases={"ht": "sum(muons.pt)"})
    assert array.fields == ["run", "muons", "raw", "others", "ht"]
    assert ak.array_equal(array[events.fields], events.arrays(), check_parameters=False)
    assert events.arrays(lambda name: name in ("run", "ht"), aliases={"ht": "sum(muons.pt)"}).fields == [
        "run",
        "ht",
    ]


def test_links_of_the_result_can_be_followed(events: fb.View) -> None:
    array = events.arrays(["raw", "twice"], aliases={"twice": "2 * run"})
    assert array.raw.number.to_list() == [0, None, 20, 30]


def test_a_link_and_a_field_behind_it(events: fb.View) -> None:
    array = events.arrays(["raw", "raw.number"], where="run == 3")
    assert array.fields == ["raw", "raw.number"]
    assert array["raw.number"].to_list() == [30]


def test_other_libraries_have_computed_columns(events: fb.View) -> None:
    wanted, aliases = ["run", "ht", "raw.number", "raw.hits"], {"ht": "sum(muons.pt)"}
    numpy = events.arrays(wanted, aliases=aliases, library="np")
    assert list(numpy) == wanted
    assert numpy["ht"].tolist() == [0.0, 1.0, 14.0, 39.0]
    assert numpy["raw.number"].tolist() == [0, None, 20, 30]
    frame = events.arrays(wanted, aliases=aliases, library="pd")
    assert list(frame) == wanted
    assert frame["raw.number"].isna().tolist() == [False, True, False, False]
    table = events.arrays(wanted[:3], aliases=aliases, library="pa")
    assert table["raw"].to_pylist()[2:] == [{"number": 20}, {"number": 30}]


def test_batches_and_picked_objects_have_computed_columns(events: fb.View) -> None:
    aliases = {"ht": "sum(muons.pt)"}
    batches = list(events.iterate(["ht", "run"], aliases=aliases, step_size=3))
    assert [batch.ht.to_list() for batch in batches] == [[0.0, 1.0, 14.0], [39.0]]
    picked = events[[3, 1]].arrays(["ht", "raw.number"], aliases=aliases)
    assert picked.to_list() == [{"ht": 39.0, "raw": {"number": 30}}, {"ht": 1.0, "raw": {"number": None}}]
    assert events[:0].arrays(["ht", "raw.number"], aliases=aliases).to_list() == []


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"filter_name": "run", "expressions": "run"}, fb.InvalidError, "expressions and filter_name are"),
        ({"cut": "run > 1", "where": "run > 1"}, fb.InvalidError, "where and cut are the same"),
        ({"aliases": {"run": "1"}}, fb.InvalidError, "'run' is the name of a field; choose another"),
        ({"aliases": {"a b": "run"}}, fb.InvalidError, "alias 'a b' is not an identifier"),
        ({"aliases": {"x": "nope + 1"}}, fb.NotFoundError, "alias 'x': field 'nope' does not exist"),
        ({"aliases": {"x": "run +"}}, fb.InvalidError, "alias 'x' is not an expression"),
        ({"aliases": {"x": "(1).__class__"}}, fb.InvalidError, "cannot be used in a condition"),
        ({"aliases": {"x": "y", "y": "run"}}, fb.NotFoundError, "field 'y' does not exist"),
        ({"aliases": {"x": len}}, fb.WrongTypeError, "aliases must map names to expressions"),
        ({"expressions": "y", "aliases": {"x": "run"}}, fb.NotFoundError, "field 'y' does not exist"),
        ({"expressions": "raw.nope"}, fb.NotFoundError, "'nope' does not exist; there are hits, number"),
    ],
)
def test_invalid_computed_columns_are_refused(
    events: fb.View, arguments: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told.replace("(", r"\(")):
        events.arrays(**arguments)


def test_random_expressions_equal_those_of_awkward(fed: fb.Federation) -> None:
    random = np.random.default_rng(7)
    fields: list[Any] = [{"name": name, "type": "float64"} for name in "abc"]
    fields.append({"name": "many", "type": {"list": "float64"}})
    values = {name: random.normal(size=500) for name in "abc"}
    values["many"] = ak.unflatten(random.normal(size=1500), random.multinomial(1500, [1 / 500] * 500))
    with fed.transaction() as txn:
        container = txn.database("d", create=True).container(
            "c", {"name": "N", "fields": fields}, create=True
        )
        container.extend(values)
    array = fed["d/c"].arrays()
    for _ in range(40):
        left, right = random.choice(["a", "b", "many", "2.5"], 2)
        function, sign = random.choice(["abs", "sqrt", "exp"]), random.choice(list("+-*/"))
        text = f"{function}(abs({left})) {sign} ({right} - c)"
        names = {name: array[name] for name in array.fields} | {"abs": abs, "sqrt": np.sqrt, "exp": np.exp}
        with np.errstate(all="ignore"):
            wanted = eval(text, names)
        found = fed["d/c"].arrays("x", aliases={"x": text}).x
        assert ak.all(ak.isclose(found, wanted, equal_nan=True), axis=None), text


def test_fields_behind_two_links(fed: fb.Federation) -> None:
    fields = [
        {"name": "next", "type": {"link": "Node"}},
        {"name": "n", "type": "uint64"},
        {
            "name": "inner",
            "type": {"record": {"class": "Inner", "fields": [{"name": "f", "type": "float32"}]}},
        },
    ]
    with fed.transaction() as txn:
        form = {"name": "Node", "fields": fields}
        nodes = txn.database("d", create=True).container("nodes", form, create=True)
        last = None
        for n in range(4):
            last = nodes.append({"next": last, "n": (1 << 63) + n, "inner": {"f": 0.1}})
    view = fed["d/nodes"]
    array = view.arrays(["n", "next.next.n", "next.inner.f"])
    first = 1 << 63
    assert array.next.next.n.to_list() == [None, None, first, first + 1]
    assert str(array.next.inner.f.type) == "4 * ?float32"
    assert view["next.next.n"].to_list() == array.next.next.n.to_list()
    assert view.sort_by("next.next.n", descending=True).entries().tolist() == [3, 2, 0, 1]
    for wanted in (["next.inner", "next.inner.f"], ["next.inner.f", "next.inner"]):
        assert view.arrays(wanted).next.inner.f.to_list() == array.next.inner.f.to_list()
    # Nothing is known of what a null link leads to.
    assert view.arrays("next.next.n", entry_stop=1).next.next.n.to_list() == [None]
    batches = [batch.next.next.n.to_list()[0] for batch in view.iterate("next.next.n", step_size=1)]
    assert batches == array.next.next.n.to_list()


def test_members_that_were_not_asked_for_are_left_out_of_selections(events: fb.View) -> None:
    array = events.arrays(["muons.eta", "two"], where="nmuons > 0", aliases={"two": "2 * sum(muons.pt)"})
    assert [set(each) for each in array.muons[0].to_list()] == [{"eta"}]
    assert set(
        events.arrays(["muons.eta", "two"], aliases={"two": "run"}, where="nmuons > 0", library="np")
    ) == {
        "muons.eta",
        "two",
    }


def test_texts_are_not_summed(fed: fb.Federation) -> None:
    form = {"name": "T", "fields": [{"name": "names", "type": {"list": "string"}}]}
    with fed.transaction() as txn:
        txn.database("d", create=True).container("c", form, create=True).extend(
            {"names": [["q"], ["a", "b"]]}
        )
    with pytest.raises(fb.InvalidError, match="min takes numbers, but the items are strings"):
        fed["d/c"].arrays("x", aliases={"x": "min(names)"})

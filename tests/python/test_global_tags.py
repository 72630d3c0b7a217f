"""Global tags: names for a version of every series, their states, their copies and their histories."""

from __future__ import annotations

import pytest

import femtobarn as fb


@fb.persistent
class Gain:
    value: fb.float64


@pytest.fixture
def gains(fed: fb.Federation) -> fb.Federation:
    """A federation with a series of one gain, and as of commit 2 a newer one in the middle of it."""
    with fed.transaction(message="first") as txn:
        txn.series("tpc/gain", Gain, create=True).put(Gain(value=1.0), since=0, until=100)
    with fed.transaction(message="second") as txn:
        txn.series("tpc/gain").put(Gain(value=2.0), since=40, until=60)
    return fed


def test_frozen_tag_names_the_same_for_ever(gains: fb.Federation) -> None:
    tags = gains.conditions
    tags.create_tag("prod", message="first production")
    assert tags("prod")["tpc/gain"].at(50).value == 2.0
    frozen = tags.change_tag("prod", state="frozen", message="validated")
    assert frozen["state"] == "frozen"
    with gains.transaction() as txn:
        txn.series("tpc/gain").put(Gain(value=9.0), since=0, until=1000)
    assert tags("prod")["tpc/gain"].at(50).value == 2.0
    assert tags()["tpc/gain"].at(50).value == 9.0
    for change in ({"state": "open"}, {"csn": 0}, {"series": ["tpc/gain"]}, {"remove": ["tpc/gain"]}):
        with pytest.raises(fb.DeniedError, match="frozen for ever"):
            tags.change_tag("prod", **change)
    with pytest.raises(fb.ExistsError):
        tags.create_tag("prod")
    assert [(each["state"], each["message"]) for each in tags.history("prod")] == [
        ("open", "first production"), ("frozen", "validated"),
    ]  # fmt: skip
    gains.set_retention(keep_commits=1)
    gains.vacuum()
    assert tags("prod")["tpc/gain"].at(50).value == 2.0


def test_appended_record_does_not_change_a_frozen_tag(gains: fb.Federation) -> None:
    tags = gains.conditions
    tags.create_tag("prod")
    tags.change_tag("prod", state="frozen")
    with gains.transaction() as txn:
        records = txn.database("conditions").container("global_tags")
        last = gains["conditions/global_tags"][-1].to_dict()
        records.append(last | {"state": "open", "csn": 0})
    assert tags.tag("prod")["state"] == "frozen"


def test_check_finds_altered_tags_and_commits_that_are_not_kept(gains: fb.Federation) -> None:
    tags = gains.conditions
    tags.create_tag("prod", state="frozen")
    assert tags.check() == []
    with gains.transaction() as txn:
        last = gains["conditions/global_tags"][-1].to_dict()
        txn.database("conditions").container("global_tags").append(last | {"state": "open", "csn": 0})
    [altered] = tags.check()
    assert "alters global tag 'prod', which was frozen before" in altered
    csn = tags.tag("prod")["csn"]
    gains.untag(f"prod@{csn}")
    assert any(f"names commit {csn}, but no tag of the federation keeps" in each for each in tags.check())
    with gains.transaction() as txn:
        txn.series("tpc/gain").put(Gain(value=9.0), since=0)
    gains.set_retention(keep_commits=1)
    gains.vacuum()
    assert any("cannot be opened" in each for each in tags.check())


def test_tag_of_the_federation_with_a_taken_name_is_not_trusted(gains: fb.Federation) -> None:
    gains.tag("prod@1", csn=2)
    with pytest.raises(fb.ExistsError, match='tag "prod@1", which would keep commit 1, exists already'):
        gains.conditions.create_tag("prod", csn=1)


def test_locked_tag_changes_only_after_it_is_opened(gains: fb.Federation) -> None:
    tags = gains.conditions
    tags.create_tag("online")
    tags.change_tag("online", state="locked")
    with pytest.raises(fb.DeniedError, match="is locked; open it first"):
        tags.change_tag("online", csn=1)
    tags.change_tag("online", state="open", csn=1)
    assert tags("online")["tpc/gain"].at(50).value == 1.0


def test_tag_lists_series_with_versions_of_their_own(gains: fb.Federation) -> None:
    with gains.transaction() as txn:
        txn.series("tpc/hv", Gain, create=True).put(Gain(value=7.0), since=0)
    tags = gains.conditions
    tags.create_tag("subset", {"tpc/gain": 1})
    job = tags("subset")
    assert list(job) == ["tpc/gain"]
    assert job["tpc/gain"].at(50).value == 1.0
    with pytest.raises(fb.NotFoundError, match='global tag "subset" has no series "tpc/hv"'):
        job["tpc/hv"]
    copy = tags.create_tag("more", ["tpc/hv"], copy_of="subset")
    assert copy["series"] == {"tpc/gain": (1, None), "tpc/hv": (None, None)}
    assert tags("more")["tpc/hv"].at(1).value == 7.0
    tags.change_tag("more", {"tpc/gain": "tpc/hv"}, remove=[])
    assert tags("more")["tpc/gain"].at(1).value == 7.0
    tags.change_tag("more", remove=["tpc/gain"])
    assert list(tags("more")) == ["tpc/hv"]
    assert tags.tag("subset")["series"] == {"tpc/gain": (1, None)}
    assert [tag["name"] for tag in tags.tags()] == ["more", "subset"]


def test_copy_with_series_keeps_all_series_of_the_copied_tag(gains: fb.Federation) -> None:
    """The copy had only the series that were given with it."""
    with gains.transaction() as txn:
        txn.series("tpc/hv", Gain, create=True).put(Gain(value=7.0), since=0)
    tags = gains.conditions
    tags.create_tag("all", state="frozen")
    copy = tags.create_tag("more", {"tpc/gain": 1}, copy_of="all")
    assert (copy["state"], copy["only_listed"]) == ("open", False)
    assert list(tags("more")) == ["tpc/gain", "tpc/hv"]
    assert tags("more")["tpc/gain"].at(50).value == 1.0


def test_series_younger_than_the_commit_of_a_tag_is_refused(gains: fb.Federation) -> None:
    """The tag could be made, and not be read."""
    tags = gains.conditions
    tags.create_tag("frozen", state="frozen")
    with gains.transaction() as txn:
        txn.series("tpc/test", Gain, create=True).put(Gain(value=7.0), since=0)
    with pytest.raises(fb.NotFoundError, match=r'"tpc/test" does not exist as of commit 2'):
        tags.create_tag("copy", {"tpc/gain": "tpc/test"}, copy_of="frozen")
    with pytest.raises(fb.NotFoundError, match="as of commit 1"):
        tags.create_tag("copy", {"tpc/test": 1})
    tags.create_tag("copy", {"tpc/gain": "tpc/test"}, copy_of="frozen", csn=gains.head())
    assert tags("copy")["tpc/gain"].at(50).value == 7.0


def test_long_history_of_a_tag_reads_the_same(gains: fb.Federation) -> None:
    tags = gains.conditions
    tags.create_tag("busy", {"tpc/gain": 1})
    for n in range(150):
        tags.change_tag("busy", {"tpc/gain": 1 + n % 2})
    assert tags.tag("busy")["series"] == {"tpc/gain": (2, None)}
    assert len(tags.history("busy")) == 151


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda tags: tags("absent"), fb.NotFoundError),
        (lambda tags: tags.create_tag("a b"), fb.InvalidError),
        (lambda tags: tags.create_tag("x", ["tpc/absent"]), fb.NotFoundError),
        (lambda tags: tags.create_tag("x", csn=10_000), fb.NotFoundError),
        (lambda tags: tags.create_tag("x", copy_of="absent"), fb.NotFoundError),
        (lambda tags: tags.create_tag("x", {"tpc/gain": -1}), fb.InvalidError),
        (lambda tags: tags.change_tag("absent"), fb.NotFoundError),
        (lambda tags: tags.history("absent"), fb.NotFoundError),
        (lambda tags: tags.tag("absent"), fb.NotFoundError),
        (lambda tags: tags.create_tag("x", state="closed"), fb.InvalidError),
        (lambda tags: tags.create_tag("x", ["tpc/gain", 7]), fb.WrongTypeError),
        (lambda tags: tags.create_tag("x", 7), fb.WrongTypeError),
        (lambda tags: tags.create_tag("x", ["a\ud800"]), fb.InvalidError),
        (lambda tags: tags.create_tag("x", copy_of="a\ud800"), fb.InvalidError),
    ],
)
def test_wrong_global_tags_are_refused(gains: fb.Federation, call: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(gains.conditions)  # type: ignore[operator]


def test_deleted_tag_frees_its_name_and_stays_in_its_history(gains: fb.Federation) -> None:
    gains.conditions.create_tag("a", csn=1)
    gains.conditions.create_tag("b", copy_of="a")
    gains.conditions.delete_tag("a", message="a mistake")
    assert [tag["name"] for tag in gains.conditions.tags()] == ["b"]
    with pytest.raises(fb.NotFoundError, match='global tag "a" does not exist'):
        gains.conditions.tag("a")
    with pytest.raises(fb.NotFoundError):
        gains.conditions.delete_tag("a")
    assert [(each["state"], each["message"]) for each in gains.conditions.history("a")][-1] == (
        "deleted",
        "a mistake",
    )
    assert gains.conditions.create_tag("a")["csn"] is None
    assert gains.conditions.check() == []
    gains.conditions.change_tag("a", state="locked")
    with pytest.raises(fb.DeniedError):
        gains.conditions.delete_tag("a")

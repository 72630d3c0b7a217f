"""The commands of conditions: what they print as text and as JSON, and the exit codes of their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import femtobarn as fb
from femtobarn.cli import EXIT_CODES, main


@fb.persistent
class Gain:
    value: fb.float64
    status: fb.uint8


@fb.persistent
class Spot:
    x: fb.float64
    note: str
    widths: list[fb.float64]


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A federation with a series of times in two channels, and a series of runs."""
    path = tmp_path / "lhc.fed"
    with fb.create(path) as fed:
        with fed.transaction(message="gains") as txn:
            gains = txn.series("tpc/gain", Gain, create=True)
            gains.put(Gain(value=1.5, status=0), since="2026-01-01T00:00:00Z")
            gains.put(Gain(value=1.62, status=1), since="2026-03-01T00:00:00Z", until="2026-04-01T00:00:00Z")
            gains.put(
                Gain(value=5, status=0),
                since="2026-02-01T00:00:00Z",
                until="2026-02-02T00:00:00Z",
                channel=7,
            )
        with fed.transaction(message="spots") as txn:
            spots = txn.series("beam/spot", Spot, create=True, clock="run", overlap="open")
            spots.put(Spot(x=0.5, note="first", widths=[1, 2]), since=(300100, 0))
            spots.put(Spot(x=float("nan"), note="second", widths=[]), since=(300200, 5), until=(300300, 0))
            txn.database("tpc").container("plain", Gain, create=True)
    return str(path)


class Command:
    """Runs commands of conditions in this process."""

    def __init__(self, location: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.location, self.capsys = location, capsys

    def text(self, command: str, *arguments: str) -> str:
        assert main(["conditions", command, self.location, *arguments]) == 0
        out, err = self.capsys.readouterr()
        assert err == ""
        return out

    def lines(self, command: str, *arguments: str) -> list[list[str]]:
        """The lines of a table, each as its words."""
        return [line.split() for line in self.text(command, *arguments).splitlines()]

    def json(self, command: str, *arguments: str) -> Any:
        return json.loads(self.text(command, *arguments, "--json"), parse_constant=pytest.fail)

    def error(self, command: str, *arguments: str) -> tuple[int, str]:
        code = main(["conditions", command, self.location, *arguments])
        out, err = self.capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        return code, err


@pytest.fixture
def run(location: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(location, capsys)


# ---- series


def test_ls_lists_the_series(run: Command) -> None:
    assert run.lines("ls") == [
        ["series", "class", "clock", "overlap", "conditions", "as", "of", "csn"],
        ["beam/spot", "Spot", "run", "open", "2", "2"],
        ["tpc/gain", "Gain", "time", "newest", "3", "2"],
    ]
    spot, gain = run.json("ls")
    assert (spot["series"], spot["clock"], spot["csn"]) == ("beam/spot", "run", 2)
    assert (gain["class"], gain["overlap"], gain["conditions"]) == ("Gain", "newest", 3)
    assert [row["series"] for row in run.json("ls", "--csn", "1")] == ["tpc/gain"]


def test_ls_of_a_series_lists_resolved_validities_by_channel(run: Command) -> None:
    assert run.lines("ls", "tpc/gain") == [
        ["channel", "since", "until", "oid", "condition"],
        ["0", "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z", "1-1-0", "value=1.5", "status=0"],
        ["0", "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", "1-1-1", "value=1.62", "status=1"],
        ["0", "2026-04-01T00:00:00Z", "forever", "1-1-0", "value=1.5", "status=0"],
        ["7", "2026-02-01T00:00:00Z", "2026-02-02T00:00:00Z", "1-1-2", "value=5", "status=0"],
    ]
    assert run.text("ls", "tpc/gain", "-n", "3").endswith("\nand 1 more\n")
    span = ["--since", "2026-03-15T00:00:00Z", "--until", "forever"]
    assert [row["oid"] for row in run.json("ls", "tpc/gain", *span)] == ["1-1-1", "1-1-0"]
    (row,) = run.json("ls", "tpc/gain", "--channel", "7")
    assert row == {
        "channel": 7,
        "since": "2026-02-01T00:00:00Z",
        "until": "2026-02-02T00:00:00Z",
        "oid": "1-1-2",
        "condition": {"value": 5.0, "status": 0},
    }


def test_ls_of_a_series_of_runs(run: Command) -> None:
    first, second = run.json("ls", "beam/spot")
    assert (first["since"], first["until"]) == ("300100:0", "300200:5")
    assert first["condition"] == {"x": 0.5, "note": "first", "widths": [1.0, 2.0]}
    assert second["condition"]["x"] is None
    assert run.json("ls", "beam/spot", "--since", "300200:5") == [second]
    assert run.json("ls", "beam/spot", "--until", "300200") == [first]


def test_long_conditions_are_cut_in_tables_but_not_in_json(run: Command) -> None:
    run.text("put", "beam/spot", "x=1", "note=" + "a" * 200, "widths=[]", "--since", "300400")
    assert run.text("ls", "beam/spot", "--since", "300400").endswith("a...\n")
    (row,) = run.json("ls", "beam/spot", "--since", "300400")
    assert row["condition"]["note"] == "a" * 200


def test_at_prints_the_valid_condition_of_each_channel(run: Command) -> None:
    assert run.lines("at", "2026-02-01T12:00:00Z", "tpc/gain")[1:] == [
        ["tpc/gain", "0", "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z", "1-1-0", "value=1.5", "status=0"],
        ["tpc/gain", "7", "2026-02-01T00:00:00Z", "2026-02-02T00:00:00Z", "1-1-2", "value=5", "status=0"],
    ]
    (row,) = run.json("at", "2026-02-01T13:00:00+01:00", "tpc/gain", "--channel", "7")
    assert (row["series"], row["channel"], row["condition"]["value"]) == ("tpc/gain", 7, 5.0)
    assert run.json("at", "1767225600000000000", "tpc/gain")[0]["since"] == "2026-01-01T00:00:00Z"
    assert run.json("at", "300200", "beam/spot")[0]["condition"]["note"] == "first"
    assert run.json("at", "300200:5", "beam/spot")[0]["condition"]["note"] == "second"


def test_at_follows_a_global_tag_or_a_commit(run: Command) -> None:
    run.text("tag", "prod", "--create", "--freeze")
    run.text("put", "tpc/gain", "value=9", "status=0", "--since", "2026-01-01T00:00:00Z")
    when = ("at", "2026-03-15T00:00:00Z", "tpc/gain")
    values = [run.json(*when, *more)[0]["condition"]["value"] for more in ([], ["--tag", "prod"])]
    assert values == [9.0, 1.62]
    assert run.json(*when, "--csn", "2")[0]["condition"]["value"] == 1.62


def test_gap_is_not_found(run: Command) -> None:
    code, text = run.error("at", "2025-01-01T00:00:00Z", "tpc/gain")
    assert code == EXIT_CODES["not-found"] == 3
    assert text == "femtobarn: tpc/gain has no condition at 2025-01-01T00:00:00Z for any channel\n"
    code, text = run.error("at", "2026-03-01T00:00:00Z", "tpc/gain", "--channel", "7")
    assert code == EXIT_CODES["not-found"]
    assert "for channel 7: there is a gap from 2026-02-02T00:00:00Z to forever" in text
    assert run.error("at", "forever", "tpc/gain")[0] == EXIT_CODES["not-found"]
    code, text = run.error("at", "300300", "beam/spot", "--json")
    assert (code, json.loads(text)["error"]["kind"]) == (3, "not-found")


def test_unknown_series_is_not_found_and_an_ordinary_container_is_invalid(run: Command) -> None:
    code, text = run.error("at", "2026-01-01T00:00:00Z", "tpc/gian")
    assert code == EXIT_CODES["not-found"]
    assert 'did you mean "gain"?' in text
    assert run.error("ls", "tpc/absent")[0] == EXIT_CODES["not-found"]
    assert run.error("ls", "--tag", "absent")[0] == EXIT_CODES["not-found"]
    code, text = run.error("ls", "tpc/plain")
    assert code == EXIT_CODES["invalid"]
    assert "is not a series of conditions" in text


@pytest.mark.parametrize(
    ("time", "series", "said"),
    [
        ("yesterday", "tpc/gain", "'yesterday' cannot be read as a time; write one such as 2026-"),
        ("2026-01-01", "tpc/gain", "'2026-01-01' has no time zone; write 2026-01-01T00:00:00Z if it is UTC"),
        ("300100:5", "tpc/gain", "cannot be read as a time"),
        ("9223372036854775808", "tpc/gain", "out of range"),
        ("2026-01-01T00:00:00Z", "beam/spot", "is not a moment of beam/spot: write RUN:BLOCK, or RUN"),
        ("300100:", "beam/spot", "write RUN:BLOCK, or RUN"),
        ("1288920072192000", "beam/spot", "out of range: runs go to 2147483647"),
    ],
)
def test_bad_time_is_invalid(run: Command, time: str, series: str, said: str) -> None:
    for arguments in (("at", time, series), ("ls", series, "--since", time)):
        code, text = run.error(*arguments)
        assert code == EXIT_CODES["invalid"] == 2
        assert said in text


def test_put_inserts_a_condition(run: Command) -> None:
    since, until = "2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z"
    said = run.text("put", "tpc/gain", "value=1.7", "status=2", "--since", since, "-m", "after the fill")
    assert said == "put 1-1-3 into tpc/gain, commit 3\n"
    facts = run.json(
        "put", "tpc/gain", "value=2", "status=0", "--since", since, "--until", until, "--channel", "4"
    )
    assert facts == {"oid": "1-1-4", "csn": 4}
    rows = run.json("at", since, "tpc/gain")
    assert [(row["channel"], row["condition"]["value"], row["until"]) for row in rows] == [
        (0, 1.7, "forever"), (4, 2.0, until),
    ]  # fmt: skip
    with fb.open(run.location) as fed:
        assert [each["message"] for each in fed.history(2)] == ["condition of tpc/gain", "after the fill"]


def test_put_takes_texts_as_they_are_and_lists_in_json(run: Command) -> None:
    run.text("put", "beam/spot", "x=1", "note=7", "widths=[0.5, 1]", "--since", "300300:1")
    (row,) = run.json("at", "300300:2", "beam/spot")
    assert row["condition"] == {"x": 1.0, "note": "7", "widths": [0.5, 1.0]}


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        (["value"], "invalid", "write FIELD=VALUE"),
        (["value=high", "status=0"], "invalid", "invalid value 'high' of field 'value', which is float64"),
        (["value=1"], "invalid", "no value of status; give one for each field of tpc/gain"),
        (["valu=1", "status=0"], "not-found", "no field 'valu'; the fields are value, status"),
        (["value=1", "status=300"], "invalid", "300 is not within the range of uint8"),
    ],
)
def test_put_refuses_wrong_values(run: Command, values: list[str], kind: str, said: str) -> None:
    code, text = run.error("put", "tpc/gain", *values, "--since", "2026-06-01T00:00:00Z")
    assert code == EXIT_CODES[kind]
    assert said in text
    with fb.open(run.location) as fed:
        assert fed.head() == 2


def test_put_refuses_an_empty_validity_and_a_series_that_does_not_exist(run: Command) -> None:
    values = ("value=1", "status=0", "--since", "2026-06-01T00:00:00Z")
    code, text = run.error("put", "tpc/gain", *values, "--until", "2026-06-01T00:00:00Z")
    assert code == EXIT_CODES["invalid"]
    assert "is empty; it must end after it begins" in text
    assert run.error("put", "tpc/absent", *values)[0] == EXIT_CODES["not-found"]


# ---- global tags


def test_tag_makes_shows_and_changes_a_global_tag(run: Command) -> None:
    assert run.lines("tags") == [["global", "tag", "state", "series", "as", "of", "changed", "by", "message"]]
    assert run.text("tag", "prod", "--create", "-m", "first") == (
        "global tag prod is open; it has all series, as of the newest commit\n"
    )
    changed = (
        "global tag prod is open; it has all series, 1 listed, as of commit 2\n  tpc/gain as of commit 1\n"
    )
    assert run.text("tag", "prod", "tpc/gain=1", "--csn", "2") == changed
    assert run.text("tag", "prod") == changed
    facts = run.json("tag", "prod")
    assert facts["series"] == {"tpc/gain": {"csn": 1, "source": None}}
    assert (facts["csn"], facts["only_listed"], facts["state"]) == (2, False, "open")
    assert len(run.json("history", "prod")) == 2


def test_tag_with_series_has_only_these(run: Command) -> None:
    run.text("tag", "some", "tpc/gain", "beam/spot=2", "--create")
    assert [row["series"] for row in run.json("ls", "--tag", "some")] == ["beam/spot", "tpc/gain"]
    run.text("tag", "some", "--remove", "beam/spot")
    assert [row["series"] for row in run.json("ls", "--tag", "some")] == ["tpc/gain"]
    run.text("tag", "some", "tpc/gain=beam/spot")
    (row,) = run.json("ls", "--tag", "some")
    assert (row["series"], row["container"], row["class"]) == ("tpc/gain", "beam/spot", "Spot")
    assert "from beam/spot" in run.text("ls", "--tag", "some")


def test_copy_of_a_tag_has_its_series_and_more(run: Command) -> None:
    run.text("tag", "all", "--create", "--csn", "2", "--lock")
    said = run.text("tag", "next", "tpc/gain=1", "--copy-of", "all")
    assert said.startswith("global tag next is open; it has all series, 1 listed, as of commit 2\n")
    assert [(row["series"], row["csn"]) for row in run.json("ls", "--tag", "next")] == [
        ("beam/spot", 2), ("tpc/gain", 1),
    ]  # fmt: skip
    assert [tag["name"] for tag in run.json("tags")] == ["all", "next"]


def test_frozen_tag_is_denied_for_ever_and_a_locked_one_until_it_is_opened(run: Command) -> None:
    run.text("tag", "prod", "--create", "--lock")
    code, text = run.error("tag", "prod", "--csn", "1")
    assert code == EXIT_CODES["denied"] == 12
    assert "is locked; open it first" in text
    run.text("tag", "prod", "--open")
    assert run.text("tag", "prod", "--freeze").startswith(
        "global tag prod is frozen; it has all series, as of"
    )
    for change in (["--open"], ["--csn", "0"], ["tpc/gain=1"], ["-m", "a note"]):
        code, text = run.error("tag", "prod", *change)
        assert code == EXIT_CODES["denied"]
        assert "is frozen for ever; make a copy of it" in text
    assert run.json("tag", "prod")["state"] == "frozen"


def test_history_lists_changes_with_time_and_message(run: Command) -> None:
    run.text("tag", "prod", "tpc/gain", "--create", "-m", "first")
    run.text("tag", "prod", "tpc/gain=1", "beam/spot", "-m", "older gains")
    run.text("tag", "prod", "--remove", "beam/spot")
    run.text("tag", "prod", "--csn", "2", "--freeze", "-m", "validated")
    states = run.json("history", "prod")
    assert [state["message"] for state in states] == ["first", "older gains", "", "validated"]
    assert [state["csn"] for state in states] == [None, None, None, 2]
    assert "T" in states[0]["time"]
    said = run.text("history", "prod")
    for change in (
        "open    1 series, as of the newest commit; tpc/gain ",
        "open    beam/spot; tpc/gain as of commit 1 ",
        "open    without beam/spot ",
        "frozen  as of commit 2 ",
    ):
        assert change in said


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["history", "absent"], "not-found"),
        (["tag", "absent"], "not-found"),
        (["tag", "absent", "--lock"], "not-found"),
        (["tag", "new", "--copy-of", "absent"], "not-found"),
        (["tag", "new", "tpc/absent", "--create"], "not-found"),
        (["tag", "new", "--create", "--csn", "99"], "not-found"),
        (["tag", "taken", "--create"], "exists"),
        (["tag", "a b", "--create"], "invalid"),
        (["tag", "new", "tpc/gain=one", "--create"], "invalid"),
        (["tag", "new", "tpc/gain=", "--create"], "invalid"),
        (["tag", "new", "--create", "--remove", "tpc/gain"], "invalid"),
    ],
)
def test_wrong_global_tags_have_the_code_of_their_kind(run: Command, arguments: list[str], kind: str) -> None:
    run.text("tag", "taken", "--create")
    command, *more = arguments
    assert run.error(command, *more)[0] == EXIT_CODES[kind]
    assert [tag["name"] for tag in run.json("tags")] == ["taken"]


def test_wrong_command_line_is_one_line(run: Command) -> None:
    for arguments in (
        ["put", run.location, "tpc/gain", "value=1"],
        ["tag", run.location, "a", "--open", "--lock"],
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["conditions", *arguments])
        assert stopped.value.code == 2
        assert run.capsys.readouterr().err.count("\n") == 1


def test_branch_is_made_filled_and_merged(run: Command) -> None:
    text = run.text("tag", "mc", "--branch", "-m", "simulation")
    assert text.startswith("branch mc is open; it has all series, as of commit 2")
    since = ("--since", "2026-03-10T00:00:00Z", "--until", "2026-03-20T00:00:00Z")
    run.text("put", "tpc/gain", "value=2.5", "status=3", *since, "--branch", "mc")
    assert "tpc/gain as of commit 2, then tpc/gain@mc as of the newest commit" in run.text("tag", "mc")
    for options, value in (([], 1.62), (["--tag", "mc"], 2.5)):
        (found,) = run.json("at", "2026-03-15T00:00:00Z", "tpc/gain", "--channel", "0", *options)
        assert found["condition"]["value"] == value
    (series,) = (row for row in run.json("ls", "--tag", "mc") if row["series"] == "tpc/gain")
    assert series["container"] == "tpc/gain@mc"
    (difference,) = run.json("diff", "2", "mc")
    assert (difference["before"]["value"], difference["after"]["value"]) == (1.62, 2.5)
    run.text("put", "tpc/gain", "value=9", "status=0", *since)
    code, error = run.error("merge", "mc")
    assert code == EXIT_CODES["invalid"]
    assert "tpc/gain channel 0, 2026-03-10" in error
    text = run.text("merge", "mc", "--on-conflict", "theirs", "-m", "validated")
    assert "1 ranges changed" in text
    assert "conflicts, taken from theirs" in text
    assert run.json("merge", "mc") == {"csn": None, "put": 0, "conflicts": []}
    assert "nothing to merge" in run.text("merge", "mc")
    assert "merged mc as of commit" in run.text("history", "mc")
    assert run.json("history", "mc")[-1]["message"] == "validated"
    (found,) = run.json("at", "2026-03-15T00:00:00Z", "tpc/gain", "--channel", "0")
    assert found["condition"]["value"] == 2.5

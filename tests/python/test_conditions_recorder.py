"""The recorder of slow-control values: what it is given is in the series, whatever ends it."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from waiting import free_port, wait_for

import femtobarn as fb
from femtobarn._conditions.readings import Readings
from femtobarn._conditions.recorders import Recorder
from femtobarn.cli import EXIT_CODES, main

JANUARY = 1_767_225_600_000_000_000
"""2026-01-01T00:00:00Z."""

VALUE: dict[str, object] = {"name": "Value", "fields": [{"name": "value", "type": "float64"}]}

MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")

Row = tuple[int, int, float]


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A federation without series."""
    fb.create(tmp_path / "lhc.fed").close()
    return str(tmp_path / "lhc.fed")


def record(location: str, *arguments: str, series: str = "dcs/hv") -> int:
    """Record in this process, and return the exit code."""
    return main(["conditions", "record", location, series, *arguments])


def recorded(location: str, series: str = "dcs/hv") -> list[Row]:
    """Return all conditions of a series in the order of their entries."""
    with fb.open(location) as fed:
        if series not in fed:
            return []
        columns = fed[series].arrays(["since", "channel", "value"], library="np")
        return list(zip(*(columns[name].tolist() for name in ("since", "channel", "value")), strict=True))


def started(location: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a recorder of standard input in a process of its own."""
    command = [sys.executable, "-m", "femtobarn", "conditions", "record", location, "dcs/hv", *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def lines_of(rows: list[Row]) -> str:
    return "".join(json.dumps({"time": t, "channel": c, "value": v}) + "\n" for t, c, v in rows)


def random_rows(seed: int, count: int) -> list[Row]:
    """Rows of five channels; some come late, and some of these replace a value of the same time."""
    rng = random.Random(seed)
    return [
        (JANUARY + (i - rng.choice([0, 0, 0, rng.randrange(50)])) * 10**6, rng.randrange(5), rng.gauss(0, 1))
        for i in range(count)
    ]


# ---- what is taken


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["jsonl", "csv", "iso"])
def test_series_equals_the_stream_with_late_values(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, kind: str
) -> None:
    monkeypatch.setattr("femtobarn._conditions.reading_sources.BLOCK_BYTES", 5000)
    rows = random_rows(seed, 3000)
    path = tmp_path / ("values.csv" if kind == "csv" else "values.jsonl")
    if kind == "csv":
        path.write_text("channel,time,value\n" + "".join(f"{c},{t},{v!r}\n" for t, c, v in rows))
    elif kind == "iso":
        texts = [
            (str(np.datetime64(t, "ns")) + random.Random(t).choice(["Z", "+00:00"]), c, v) for t, c, v in rows
        ]
        path.write_text(lines_of(texts))  # type: ignore[arg-type]
    else:
        path.write_text(lines_of(rows))
    assert record(location, "--from", str(path), "--batch", "700") == 0
    assert recorded(location) == rows
    with fb.open(location) as fed:
        series = fed.conditions()["dcs/hv"]
        assert (series.clock, series.overlap) == ("time", "open")
        assert fed.head() >= 3
        for channel in range(5):
            mine = [(t, i, v) for i, (t, c, v) in enumerate(rows) if c == channel]
            for moment in range(JANUARY, JANUARY + 3000 * 10**6, 37 * 10**6):
                begun = [row for row in mine if row[0] <= moment]
                found = series.at(moment, channel=channel)
                assert (found and found.value) == (max(begun)[2] if begun else None)


def test_malformed_lines_are_reported_with_their_numbers_and_the_rest_is_taken(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = '{"time": 5, "channel": 1, "value": 1.5}'
    wrong = {
        "{": "it is not a JSON object",
        "17": "17 is not an object with time, channel, value",
        '{"time": 1, "value": 2} x': "it is not a JSON object",
        '{"time": 1}': "it has no 'value'",
        '{"time": 1, "valeu": 1}': "it has no 'value'",
        '{"time": 1, "value": 1, "unit": "V"}': "class Value has no field 'unit'",
        '{"time": 1.5, "value": 1}': "time: 1.5 is not a time in nanoseconds; give the unit of times",
        '{"time": "2026-01-01T00:00:00", "value": 1}': "has no time zone",
        '{"time": 9223372036854775807, "value": 1}': "is out of range",
        '{"time": 1, "value": "x"}': "value: 'x' is not a number of type float64",
        '{"time": 1, "value": null}': "value: None is not a number of type float64",
        '{"time": 1, "value": true}': "value: True is not a number of type float64",
        '{"time": 1, "value": 1, "channel": "sector7"}': "channel 'sector7' is not in the table of channels",
        '{"time": 1, "value": 1, "channel": 1.5}': "1.5 is not a channel",
        '{"time": 1, "value": 1, "channel": 9223372036854775808}': "is not a channel",
    }
    path = tmp_path / "values.jsonl"
    path.write_bytes(
        "\n".join([good, "", *wrong]).encode() + b'\n{"\xff"}\n' + good.replace("5", "7").encode()
    )
    assert record(location, "--from", str(path)) == 0
    out, err = capsys.readouterr()
    assert recorded(location) == [(5, 1, 1.5), (7, 1, 1.7)]
    lines = err.splitlines()
    assert len(lines) == len(wrong) + 1
    for number, (line, reason) in enumerate(zip(lines, wrong.values(), strict=False), 3):
        assert line.startswith(f"femtobarn: line {number} was not taken: ")
        assert reason in line
    assert f"recorded 2 values into dcs/hv in 1 commits, {len(wrong) + 1} malformed" in out


def test_strict_recording_ends_at_a_malformed_line(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "values.jsonl"
    path.write_text('{"time": 5, "value": 1.5}\n{"time": 6}\n')
    assert record(location, "--from", str(path), "--strict") == EXIT_CODES["invalid"]
    assert "line 2 was not taken: it has no 'value'" in capsys.readouterr().err
    assert recorded(location) == [(5, 0, 1.5)]


def test_csv_has_quotes_names_of_channels_and_units_of_time(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values, table = tmp_path / "values.csv", tmp_path / "channels.toml"
    values.write_text(
        'value,note,time,channel,on\n1,"a, b",1.5,sector7,true\nnan,c,2.25,left,false\n1,2\n'
        "1_0,c,2,left,true\n"
    )
    table.write_text("sector7 = 7\nleft = -1\n")
    assert record(location, "--from", str(values), "--time-unit", "s", "--channels", str(table)) == 0
    err = capsys.readouterr().err
    assert "line 4 was not taken: it has 2 values, not 5" in err
    assert "line 5 was not taken: value: '1_0' is not a number of type float64" in err
    with fb.open(location) as fed:
        first, second = fed["dcs/hv"].arrays().to_list()
        assert fed["dcs/hv"].typenames()["on"] == "bool"
    assert first == {
        "since": 1_500_000_000, "until": 2**63 - 1, "channel": 7, "value": 1, "note": "a, b", "on": True,
    }  # fmt: skip
    assert (second["channel"], second["since"], math.isnan(second["value"])) == (-1, 2_250_000_000, True)
    values.write_text("when,value\n1,2\n")
    assert record(location, "--from", str(values)) == EXIT_CODES["invalid"]
    assert "the first line of the CSV must have the names time,channel,value" in capsys.readouterr().err


def test_class_of_a_new_series_is_given_and_that_of_an_existing_one_is_kept(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form, values = tmp_path / "class.json", tmp_path / "values.jsonl"
    fields = [{"name": "volts", "type": "float32"}, {"name": "state", "type": "uint8"}]
    form.write_text(json.dumps({"name": "Supply", "fields": fields}))
    values.write_text(
        '{"time": 1, "volts": 1.5, "state": 3}\n{"time": 2, "volts": 1e300, "state": 3}\n'
        '{"time": 3, "volts": 1, "state": 256}\n{"time": 4, "volts": 2, "state": 4.0}\n'
    )
    for _ in range(2):
        assert record(location, "--from", str(values), "--class", str(form)) == 0
        err = capsys.readouterr().err
        assert "line 2 was not taken: volts: 1e+300 is not a number of type float32" in err
        assert "line 3 was not taken: state: 256 is not a number of type uint8" in err
        form.write_text(json.dumps(VALUE))
    assert record(location, "--from", str(values), "--class", json.dumps(VALUE), series="dcs/other") == 0
    assert "line 1 was not taken: it has no 'value'" in capsys.readouterr().err
    assert record(location, "--class", "{", "--from", str(values)) == EXIT_CODES["invalid"]
    with fb.open(location) as fed:
        assert fed.conditions()["dcs/hv"].definition.name == "Supply"
        assert fed["dcs/hv"].arrays(["volts", "state"]).to_list() == [
            {"volts": 1.5, "state": 3}, {"volts": 2.0, "state": 4},
        ]  # fmt: skip


def test_values_that_come_again_are_taken_once(location: str, tmp_path: Path) -> None:
    rows = [(1, 0, 1.0), (2, 0, math.nan), (1, 0, 5.0), (2, 1, 1.0)]
    path = tmp_path / "values.jsonl"
    path.write_text(lines_of([rows[0], rows[0], *rows, rows[1], rows[2]]))
    for _ in range(2):
        assert record(location, "--from", str(path), "--batch", "3") == 0
    # The second run begins with a value that is not the last one of its time any more.
    assert str(recorded(location)) == str([*rows, rows[0], rows[2]])


def test_no_input_makes_no_series(location: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    assert record(location, "--from", str(tmp_path / "empty.csv"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["values"] == 0
    assert recorded(location) == []
    assert record(location, "--from", str(tmp_path / "absent.csv")) == EXIT_CODES["not-found"]


def test_series_of_runs_is_refused(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    with fb.open(location) as fed, fed.transaction() as txn:
        txn.series("dcs/hv", VALUE, create=True, clock="run")
    assert record(location, "--from", os.devnull) == EXIT_CODES["invalid"]
    assert "values are recorded into a series with the clock 'time'" in capsys.readouterr().err


# ---- what is durable


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_value_is_durable_a_moment_later_and_a_signal_commits_the_rest(
    location: str, number: signal.Signals
) -> None:
    process = started(location, "--every", "0.5", "--json")
    assert process.stdin is not None
    process.stdin.write(lines_of([(1, 0, 1.5)]))
    process.stdin.flush()
    wait_for(lambda: recorded(location) == [(1, 0, 1.5)])
    process.stdin.write(lines_of([(2, 0, 2.5)]) + '{"time": 3')
    process.stdin.flush()
    time.sleep(0.3)
    process.send_signal(number)
    process.wait(60)  # Before its input ends, which would make a line of the rest.
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert (json.loads(out)["values"], recorded(location)) == (2, [(1, 0, 1.5), (2, 0, 2.5)])


def test_killed_recorder_loses_only_uncommitted_values(location: str) -> None:
    rows = random_rows(7, 8000)
    process = started(location, "--every", "0.2")
    assert process.stdin is not None
    for first in range(0, 6000, 100):
        process.stdin.write(lines_of(rows[first : first + 100]))
        process.stdin.flush()
        time.sleep(0.01)
        if first == 3000:
            wait_for(lambda: len(recorded(location)) > 1000)
    process.kill()
    process.communicate()
    kept = recorded(location)
    assert 1000 < len(kept) <= 6000
    assert kept == rows[: len(kept)]
    with fb.open(location) as fed:
        assert fed.check(full=True).problems == []
    again = started(location)
    _, err = again.communicate(lines_of(rows), timeout=60)
    assert (again.returncode, err) == (0, "")
    assert recorded(location)[: len(kept)] == kept
    with fb.open(location) as fed:
        assert fed.check(full=True).problems == []
        series = fed.conditions()["dcs/hv"]
        for channel in range(5):
            last = {t: v for t, c, v in rows if c == channel}
            moments = sorted(last)
            assert series.at(moments, "value", channel=channel).value.to_list() == [last[t] for t in moments]


def test_commit_that_cannot_be_made_is_tried_again(
    fed: fb.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit whose outcome is unknown may have been made: the second attempt does not repeat it."""
    told: list[str] = []
    recorder = Recorder(fed, "dcs/hv", VALUE, tell=told.append)
    monkeypatch.setattr("femtobarn._conditions.recorders.PAUSE_FIRST", 0.01)
    commit, failures = fb.Transaction.commit, [fb.BusyError("the series is locked"), None]

    def failing(self: fb.Transaction) -> int:
        csn = 0
        if len(failures) != 2:
            csn = commit(self)
        if failures:
            raise failures.pop(0) or fb.UnavailableError("the outcome is unknown")
        return csn

    monkeypatch.setattr(fb.Transaction, "commit", failing)
    recorder.add(Readings(np.array([1, 2]), np.array([0, 0]), {"value": np.array([1.5, 2.5])}))
    recorder.commit()
    assert told == [
        "the series is locked; trying again in 0.01 s",
        "the outcome is unknown; trying again in 0.02 s",
    ]
    assert fed["dcs/hv"].arrays("value").value.to_list() == [1.5, 2.5]


# ---- MQTT


class Mosquitto:
    """The broker of Debian, with a store that outlives it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._config = folder / "mosquitto.conf"
        user = f"user {os.environ.get('USER', 'root')}\n" if os.geteuid() == 0 else ""
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {folder}/\nmax_queued_messages 0\n{user}"
        )
        self.start()

    def start(self) -> None:
        assert MOSQUITTO is not None
        self._process = subprocess.Popen(
            [MOSQUITTO, "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(self._listens)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)

    def _listens(self) -> bool:
        assert self._process.poll() is None, "mosquitto has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def publish(self, messages: list[tuple[str, str]]) -> None:
        """Publish texts on topics, each at least once."""
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        client = Client(CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        for topic, payload in messages:
            client.publish(topic, payload, qos=1).wait_for_publish(30)
        client.disconnect()
        client.loop_stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker on a free port."""
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    folder = tmp_path / "broker"
    folder.mkdir()
    running = Mosquitto(folder)
    yield running
    running.stop()


@pytest.mark.parametrize("durable", [False, True])
def test_two_publishers_and_a_broker_that_is_started_again(
    location: str, tmp_path: Path, broker: Mosquitto, durable: bool
) -> None:
    table = tmp_path / "channels.json"
    table.write_text('{"left/hv": 1, "right/hv": 2}')
    topic = f"mqtt://127.0.0.1:{broker.port}/dcs/+/hv"
    options = ["--acknowledge-durable"] if durable else []
    process = started(
        location, "--from", topic, "--channels", str(table), "--every", "0.3", "--json", *options
    )
    try:
        # Its session begins with the connection; from then on the broker keeps what it does not get.
        wait_for(lambda: publish_and_look(broker, location))
        rows = {
            side: [(JANUARY + i, c, i / 8) for i in range(150)] for side, c in (("left", 1), ("right", 2))
        }

        def publish(start: int, stop: int) -> None:
            def one(side: str) -> None:
                broker.publish(
                    [
                        (f"dcs/{side}/hv", json.dumps({"time": t, "value": v}))
                        for t, _, v in rows[side][start:stop]
                    ]
                )

            threads = [threading.Thread(target=one, args=(side,)) for side in rows]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        publish(0, 100)
        broker.publish([("dcs/middle/hv", "1")] + [("dcs/left/hv", "no number")] * 30)
        broker.stop()
        broker.start()
        publish(100, 150)
        wait_for(lambda: len(recorded(location)) >= 301)
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = recorded(location)
    for side, channel in (("left", 1), ("right", 2)):
        mine = [row for row in found if row[1] == channel and row[0] < 2**62 and row[2] >= 0]
        assert sorted(set(mine)) == rows[side]
    assert json.loads(out)["malformed"] >= 31  # The broker may send again what it has sent before.
    assert "was not taken: its payload is neither a number nor a JSON object" in err
    assert "channel 'middle/hv' is not in the table of channels" in err
    assert f"the broker 127.0.0.1:{broker.port} is lost" in err
    assert f"the broker 127.0.0.1:{broker.port} is connected again" in err


def publish_and_look(broker: Mosquitto, location: str) -> bool:
    """Publish a number, whose time is that of its arrival, until it is recorded."""
    broker.publish([("dcs/left/hv", "-1")])
    time.sleep(0.5)
    found = recorded(location)
    assert all(abs(t - time.time_ns()) < 60 * 10**9 for t, _, _ in found)
    return bool(found)


@pytest.mark.parametrize("address", ["mqtt://", "mqtt://host", "mqtt:///topic", "mqtt://host:x/topic"])
def test_address_that_is_no_topic_is_refused(
    location: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(location, "--from", address) == EXIT_CODES["invalid"]
    assert "is not a topic; write one such as mqtt://localhost:1883/dcs/hv/#" in capsys.readouterr().err

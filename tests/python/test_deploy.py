"""The files in `deploy`: the parsers of Prometheus, Grafana, systemd and container files read them, and their
metrics and exit codes are those of real servers."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from data_servers import served_process
from followed import Hit, serve, url_of
from waiting import free_port

import femtobarn as fb
from femtobarn.cli import EXIT_CODES
from femtobarn.cli.server_api import PORT

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "femtobarn.rules.yml"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"
UNIT = DEPLOY / "systemd" / "femtobarn.service"

METRIC = re.compile(r"\b(?:femtobarn|process)_\w+")
# Sums over the exports, which the dashboard shows one by one; and how good estimates of recalls are.
NOT_SHOWN = {
    "femtobarn_locks_held",
    "femtobarn_locks_waited",
    "femtobarn_deadlocks_total",
    "femtobarn_commits_total",
}
NOT_SHOWN |= {"femtobarn_recall_estimate_errors_seconds_total", "femtobarn_request_seconds_sum"}
# Labels that Prometheus adds to every metric.
OF_TARGETS = {"job", "instance"}


def run(*command: str | Path, code: int = 0) -> str:
    """The output of a program, which has to end with a code; skips the test if it is not installed."""
    program = shutil.which(str(command[0])) or shutil.which(command[0], path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of each metric of a leader with a follower, a store and a slow disk, and of its cache."""
    top = tmp_path_factory.mktemp("deploy")
    with fb.create(top / "lhc.fed") as fed, fed.transaction() as txn:
        txn.database("run7", create=True).container("hits", Hit, create=True).append(Hit(x=1.0, hits=[1]))
    (top / "tape").mkdir()
    (top / "lhc.fed/storage.toml").write_text(f'[stores.tape]\nkind = "folder"\npath = "{top}/tape"\n')
    (top / "slow").mkdir()
    settings = top / "server.toml"
    settings.write_text(
        f"[[export]]\nfolder = '{top}/slow'\n"
        "throttle.bytes_per_second = 1_000_000\nthrottle.seeks_per_second = 100\n"
    )
    with (
        fb.serve(top / "lhc.fed", config=settings, port=0, address="127.0.0.1") as leader,
        fb.serve(top / "cache", cache_of=leader.url("/lhc.fed"), port=0, address="127.0.0.1") as cache,
        fb.follow(leader.url("/lhc.fed"), top / "copy.fed", name="copy") as follower,
    ):
        follower.catch_up()
        lines = [
            line for server in (leader, cache) for line in metrics(server).splitlines() if line[0] != "#"
        ]
    found: dict[str, set[str]] = {}
    for line in lines:
        found.setdefault(re.split(r"[ {]", line)[0], set()).update(re.findall(r'(\w+)="', line))
    return found


def metrics(server: fb.Server) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "femtobarn.json").read_text())
    return found


def targets() -> Iterator[tuple[str, str, str]]:
    """The panel, the expression and the legend of everything that the dashboard shows."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]


# ---- Prometheus


def test_prometheus_reads_the_configuration_and_the_rules() -> None:
    assert f"{len(rules())} rules found" in run(
        "promtool", "check", "config", RULES.with_name("prometheus.yml")
    )


def test_alerts_fire_when_they_should() -> None:
    assert "SUCCESS" in run("promtool", "test", "rules", RULES.with_name("femtobarn.rules.test.yml"))


def test_every_alert_is_tested_and_has_description_and_action() -> None:
    tried = RULES.with_name("femtobarn.rules.test.yml").read_text()
    for alert in [rule for rule in rules() if "alert" in rule]:
        assert f'alertname="{alert["alert"]}"' in tried, f"{alert['alert']} has no test"
        assert set(alert["annotations"]) == {"summary", "description", "action"}, alert["alert"]
        assert alert["labels"]["severity"] in ("warning", "critical"), alert["alert"]


def test_rules_name_metrics_and_labels_that_servers_have(exposed: dict[str, set[str]]) -> None:
    recorded = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    for rule in rules():
        expression = re.sub(r"femtobarn:\w+:\w+", lambda name: recorded[name[0]], rule["expr"])
        named = set(METRIC.findall(expression))
        assert named <= set(exposed), rule
        labels = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule)))
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            labels |= set(group.split(", "))
        assert labels <= OF_TARGETS.union(*(exposed[name] for name in named)), rule


# ---- Grafana


def test_the_dashboard_shows_the_metrics_that_servers_have(exposed: dict[str, set[str]]) -> None:
    shown = set()
    for title, expression, legend in targets():
        named = set(METRIC.findall(expression))
        assert named <= set(exposed), f"{title}: {expression}"
        known = OF_TARGETS.union(*(exposed[name] for name in named))
        assert set(re.findall(r"{{(\w+)}}", legend)) <= known, f"{title}: {legend}"
        shown |= named
    assert shown == set(exposed) - NOT_SHOWN


def test_prometheus_reads_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    """As recording rules, with values for the variables that Grafana puts in."""
    expressions = [expression for _, expression, _ in targets()]
    expressions += [each["expr"] for each in dashboard()["annotations"]["list"]]
    as_rules = [
        {"record": f"shown:{number}", "expr": re.sub(r"\$\w+", "5m", expression)}
        for number, expression in enumerate(expressions)
    ]
    file = tmp_path / "dashboard.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": as_rules}]}))
    assert f"{len(expressions)} rules found" in run("promtool", "check", "rules", file)


def test_grafana_knows_every_key_of_the_dashboard() -> None:
    """Grafana's own classes keep of a dashboard what its schemas have, those of panels included."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    ours = dashboard()
    assert_kept(ours, json.loads(JSONEncoder().encode(Dashboard.from_json(ours))), "dashboard")


def assert_kept(ours: Any, theirs: Any, place: str) -> None:
    """Everything of ours is in theirs, which may have defaults beside it."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            assert key in theirs, f"{place}.{key} is not known"
            assert_kept(value, theirs[key], f"{place}.{key}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), place
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_kept(one, other, f"{place}[{number}]")
    else:
        assert ours == theirs, place


def test_panels_have_ids_and_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not taken & cells, f"{panel['title']} lies over another panel"
        taken |= cells


# ---- systemd


def test_systemd_reads_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    text, count = re.subn(
        r"^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text(), flags=re.MULTILINE
    )
    assert count == 1
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    assert run("systemd-analyze", "verify", "--man=no", unit) == ""
    # Of 10; the threshold is in tenths.
    assert "exposure level" in run("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)


def test_systemd_makes_the_user_of_the_unit(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    run("systemd-sysusers", f"--root={tmp_path}", UNIT.with_name("femtobarn.conf"))
    users = [line.split(":")[0] for line in (tmp_path / "etc" / "passwd").read_text().splitlines()]
    assert users == re.findall(r"^User=(.+)$", UNIT.read_text(), re.MULTILINE)


def test_the_unit_starts_a_command_that_there_is(tmp_path: Path) -> None:
    line = next(line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart="))
    program, *words = shlex.split(line.removeprefix("ExecStart="))
    assert Path(program).name == "femtobarn"
    settings = tmp_path / "server.toml"
    settings.write_text("")
    words[words.index("/etc/femtobarn/server.toml")] = str(settings)
    assert "nothing to serve" in run(sys.executable, "-m", "femtobarn", *words, code=EXIT_CODES["invalid"])
    hopeless = [EXIT_CODES[kind] for kind in ("invalid", "corrupt", "unsupported", "denied")]
    assert f"\nRestartPreventExitStatus={' '.join(map(str, hopeless))}\n" in UNIT.read_text()


# ---- the container


def test_hadolint_reads_the_containerfile() -> None:
    assert run("hadolint", CONTAINERFILE) == ""


def test_the_image_is_built_from_existing_files() -> None:
    text = CONTAINERFILE.read_text()
    copied = {
        word for words in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M) for word in words.split()
    }
    assert all((ROOT / name).exists() for name in copied)
    # The members of the workspace, what the wheel is made of, and what the build reads.
    assert {"crates", "fuzz", "python", "Cargo.toml", "Cargo.lock", "pyproject.toml", ".cargo"} <= copied
    assert f"\nEXPOSE {PORT}\n" in text


def test_the_health_check_fails_unless_a_server_answers(tmp_path: Path) -> None:
    command = json.loads(re.findall(r"^    CMD (\[.*\])$", CONTAINERFILE.read_text(), re.MULTILINE)[0])
    assert command[0] == "python"

    def check(port: int, code: int) -> None:
        assert f"localhost:{PORT}/healthz" in command[2]
        run(sys.executable, "-c", command[2].replace(f":{PORT}/", f":{port}/"), code=code)

    with fb.serve(tmp_path, port=0, address="127.0.0.1") as server:
        check(server.port, 0)
    check(free_port(), 1)


# ---- exit codes, which supervisors act upon


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param("storage", "{folder} --address 127.0.0.1 --port {taken}", id="the port is taken"),
        pytest.param("storage", "{folder}/missing", id="the folder is missing"),
        pytest.param("corrupt", "{folder}/damaged.fed", id="the catalogue is damaged"),
        pytest.param("unsupported", "{folder}/newer.fed", id="the catalogue is of a newer release"),
        pytest.param("storage", "{folder} --config {folder}/missing.toml", id="the settings are missing"),
        pytest.param("invalid", "{folder} --config {folder}/wrong.toml", id="the settings are wrong"),
        pytest.param("invalid", "{folder} --prot 1094", id="the command line is wrong"),
        pytest.param("invalid", "", id="nothing is named"),
    ],
)
def test_a_server_that_cannot_start_ends_with(kind: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("prot = 1094\n")
    (tmp_path / "damaged.fed").mkdir()
    (tmp_path / "damaged.fed" / "catalogue.sqlite").write_bytes(b"no catalogue" * 1000)
    fb.create(tmp_path / "newer.fed").close()
    with closing(sqlite3.connect(tmp_path / "newer.fed/catalogue.sqlite")) as catalogue, catalogue:
        catalogue.execute("UPDATE federation SET value = '99' WHERE key = 'format'")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        named = words.format(folder=tmp_path, taken=taken.getsockname()[1]).split()
        said = run(sys.executable, "-m", "femtobarn", "serve", *named, code=EXIT_CODES[kind])
    assert said.startswith("femtobarn"), said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_ends_with_0(number: signal.Signals, tmp_path: Path) -> None:
    with served_process(tmp_path) as (_, process):
        process.send_signal(number)
        assert process.wait(60) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_follower_that_is_stopped_ends_with(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed, serve(fed) as leader:
        command = [sys.executable, "-m", "femtobarn", "follow", url_of(leader), str(tmp_path / "copy.fed")]
        # A shell that starts a job in the background makes it, and all below it, ignore Ctrl-C.
        heeds = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heeds
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline(), "it says that the copy is up to date"
            process.send_signal(number)
            assert process.wait(60) == code


def test_the_document_has_every_exit_code() -> None:
    section = (ROOT / "docs" / "serving.md").read_text().partition("### Exit codes")[2].partition("\n## ")[0]
    told = {kind: int(code) for code, kind in re.findall(r"(\d+) `([a-z-]+)`", section)}
    assert told == EXIT_CODES

"""The testbed's report and comparisons, on made-up runs, so that every figure is known."""

from __future__ import annotations

import base64
import html
import math
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import femtobarn as fb
from femtobarn.cli import main
from femtobarn_testbed import save
from femtobarn_testbed.comparison import compare_runs, compare_variants, comparison_table
from femtobarn_testbed.monarc import size_table
from femtobarn_testbed.papers import MONARC_RANGES, paper_of
from femtobarn_testbed.report import write_report
from femtobarn_testbed.summaries import latency_table
from femtobarn_testbed.verdict import judge, knee

SIMULATED = {"each": 220e3, "raw": 88e6, "compute": 0.97}
FREE = {"each": 10e6, "raw": 0, "compute": None}


# Made-up runs: clients that compute, and disks with a largest rate.

CORES = 2
OPERATIONS = ("compute", "read", "commit", "event")


def made_up_run(
    variants: Mapping[str, Mapping[str, Any]],
    clients: Sequence[int],
    *,
    workload: str = "made-up",
    paper: str = "",
    about: str = "Nobody did this.",
) -> dict[str, Any]:
    """A run as :mod:`femtobarn_testbed.results` describes it.

    Each variant has settings, of which ``each`` is the rate of a client alone (bytes/s), ``raw`` what all
    disks together give (bytes/s; 0: no simulated disks) and ``compute`` the share that it computes (None:
    it does not).
    """
    points = [_point(name, settings, count) for name, settings in variants.items() for count in clients]
    return {
        "format": 1,
        "workload": workload,
        "title": f"{workload}: what nobody did",
        "paper": paper,
        "about": about,
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 12.0,
        "seed": 7,
        "machine": {
            "cpu": "Abacus <9>",
            "cores": CORES,
            "memory_bytes": 8_000_000_000,
            "kernel": "1.0",
            "python": "3.11.0",
        },
        "femtobarn": {"version": "0.1.0", "commit": "0123456789"},
        "parameters": {},
        "played": {name: _simulation(settings) for name, settings in variants.items()},
        "points": points,
        "knees": {name: knee([p for p in points if p["variant"] == name]) for name in variants},
    }


def _simulation(settings: Mapping[str, Any]) -> dict[str, Any]:
    disk = {"count": 4, "bytes_per_second": settings["raw"] / 4, "seeks_per_second": 100}
    return {
        "access": "server",
        "computation": "simulated",
        "compression": settings.get("compression", 1.0),
        "federations": "one",
        "disks": disk if settings["raw"] else None,
        "raw_bytes_per_second": settings["raw"],
        "ideal_bytes_per_second_per_client": settings["each"] if settings["compute"] else None,
    }


def _point(name: str, settings: Mapping[str, Any], clients: int) -> dict[str, Any]:
    wanted = clients * settings["each"]
    rate = min(wanted, settings["raw"] or wanted)
    computing = settings["compute"] and settings["compute"] * rate / wanted
    disks = [_disk(number, rate, settings["raw"]) for number in range(4)] if settings["raw"] else []
    point: dict[str, Any] = {
        "variant": name,
        "settings": dict(settings),
        "clients": clients,
        "window_seconds": 10.0,
        "throughput": _rates(rate),
        "kinds": {"reader": _rates(rate)},
        "efficiency": computing,
        "time_shares": {"compute": computing or 0.0, "read": 0.7 * (1 - (computing or 0.0)), "commit": 0.02},
        "operations": {kind: _operation(settings) for kind in OPERATIONS if computing or kind != "compute"},
        "start": [_start(number) for number in range(clients)],
        "resources": {
            "machine_cores": 0.1,
            "stolen_cores": 0.0,
            "server_cores": settings.get("server", 0.25),
            "client_cores": settings.get("cores", 0.5),
            "network_share": 0.0,
            "disk_busy_share": 0.0,
            "memory_bytes": {"server": 50_000_000, "clients": 20_000_000 * clients},
            "disks": disks,
        },
    }
    return point | {"verdict": judge(point, CORES)}


def _rates(rate: float) -> dict[str, float]:
    zero = ("written_bytes", "tags", "pairs")
    return {
        "bytes_per_second": rate,
        "read_bytes_per_second": rate,
        "objects_per_second": rate / 1e4,
        "events_per_second": rate / 1e6,
        "commits_per_second": rate / 2e6,
    } | {f"{name}_per_second": 0.0 for name in zero}


def _disk(number: int, rate: float, raw: float) -> dict[str, Any]:
    return {
        "name": f"disk{number}",
        "busy": rate / raw,
        "seeking": 0.1,
        "seeks_per_second": 10.0,
        "bytes_per_second": rate / 4,
    }


def _operation(settings: Mapping[str, Any]) -> dict[str, Any]:
    took = settings.get("p99", 0.01)
    return {
        "count": 100, "seconds": 1.0, "amount": 1e6, "longest": 2 * took, "median": took / 10, "p99": took,
        "histogram": [],
    }  # fmt: skip


def _start(number: int) -> dict[str, Any]:
    return {
        "client": number,
        "kind": "reader",
        "launched": 0.01 * number,
        "ready": 0.1,
        "opened": 0.15,
        "transaction": 0.2 + 0.001 * number,
        "first_object": 0.3 + 0.001 * number,
    }


# The report.


def text_of(page: Path) -> str:
    """The text that a reader sees, without pictures."""
    whole = re.sub(r'src="data:[^"]*"', "", page.read_text(encoding="utf-8"))
    return html.unescape(re.sub(r"<style>.*</style>|<[^>]*>", " ", whole, flags=re.DOTALL))


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", data[16:24])


def reported(tmp_path: Path, *runs: dict[str, Any]) -> tuple[str, set[str]]:
    """The text of a report, and the names of its pictures, which are the same as those on the page."""
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    page = write_report(runs, tmp_path / "out")
    assert page == tmp_path / "out" / "report.html"
    pictures = sorted(page.parent.glob("*.png"))
    assert all(size_of(picture)[0] == 1700 for picture in pictures)
    shown = re.findall(r'src="data:image/png;base64,([^"]*)"', page.read_text())
    assert sorted(map(base64.b64decode, shown)) == sorted(picture.read_bytes() for picture in pictures)
    return text_of(page), {picture.stem for picture in pictures}


def test_report_compares_a_run_with_its_paper(tmp_path: Path) -> None:
    variants = {"full": SIMULATED, "half": SIMULATED | {"each": 440e3}}
    run = made_up_run(variants, [1, 240], paper="[SCAL] Figure 2")
    told, pictures = reported(tmp_path, run)
    assert pictures == {"made-up-rates", "made-up-time"}
    for words in (
        "47 with 240, full computation",
        "52.8 with 240",  # 240 clients of 220 kB/s
        "88.0 with 240",  # all that the disks have
        "made-up: what nobody did ([SCAL] Figure 2)",
        "simulated: 4 disks of 22 MB/s and 100 seeks/s each",
        "simulated: computation, by clients that sleep as if each had a free CPU",
        "half: best 88 MB/s with 240 clients, bends at 200 clients. Limit: disk bandwidth: the busiest",
        "full: best 52.8 MB/s with 240 clients, does not bend. Limit: client CPU",
        "Abacus <9>, 2 cores, 8 GB",
        "2026-01-02 03:04:05 UTC",
        "commit 0123456789; seed 7",
    ):
        assert words in told, words


def test_report_draws_workloads_without_a_paper(tmp_path: Path) -> None:
    runs = [
        made_up_run({"slow": SIMULATED, "fast": FREE}, [1, 60], workload="split"),
        made_up_run({f"variant {n}": FREE for n in range(9)}, [2, 4], workload="many"),
        made_up_run({"equal": SIMULATED, "twin": SIMULATED}, [4], workload="twins"),
        made_up_run({"idle": FREE | {"each": 0.0}}, [1], workload="single"),
        made_up_run({"again": FREE}, [1, 2], workload="single"),
    ]
    told, pictures = reported(tmp_path, *runs)
    rates = {"split-rates", "split-rates-fast", "many-rates", "twins-rates", "single-rates", "single-2-rates"}
    assert rates < pictures
    assert len(pictures) == len(rates) + len(runs)
    assert "Comparison with the papers" not in told
    assert "no simulated disks" in told


def test_report_shows_the_start_up_of_the_papers_client(tmp_path: Path) -> None:
    run = made_up_run({"new": FREE}, [240], paper="[SCAL] Figure 5", workload="startup")
    told, pictures = reported(tmp_path, run)
    assert pictures == {"startup-start", "startup-time"}
    assert re.search(r"first transaction \(s\)\s+20, client 240\s+new\s+0\.439 with 240", told)
    assert re.search(r"first object \(s\)\s+60, client 240\s+new\s+0\.539 with 240", told)


def test_size_table_counts_cpu_time_of_clients_and_servers(tmp_path: Path) -> None:
    small = FREE | {"size": 100, "links": [], "bulk": True, "server": 0.5, "cores": 1.5}
    variants = {
        "100": small,
        "100, links": small | {"links": ["a"] * 4, "each": 5e6},
        "2000": small | {"size": 2000},
    }
    run = made_up_run(variants, [1, 2], paper="[MONARC] table", workload="sizes")
    head, rows = size_table(run)
    assert [row[:6] for row in rows] == [
        ["100 B", "0", "through a server, in bulk", "2", "10", "10"],  # 20 MB/s by 2 cores
        ["2,000 B", "0", "through a server, in bulk", "2", "10", "10"],
        ["100 B", "4", "through a server, in bulk", "2", "5", "20"],
    ]
    assert [row[head.index("paper: MB/s by a CPU")] for row in rows] == ["1.5 to 2.2", "-", "1.5 to 2.2"]
    told, pictures = reported(tmp_path, run)
    assert pictures == {"sizes-sizes", "sizes-time"}
    assert "1.5 to 2.2" in told


def test_monarc_run_without_sizes_is_drawn_as_rates(tmp_path: Path) -> None:
    run = made_up_run({"a": FREE, "b": FREE}, [1, 2], paper="[MONARC]")
    assert reported(tmp_path, run)[1] == {"made-up-rates", "made-up-time"}


def test_write_report_refuses_empty_runs_and_a_missing_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(fb.InvalidError, match="no runs"):
        write_report([], tmp_path)
    with pytest.raises(fb.InvalidError, match="made-up has no points"):
        write_report([made_up_run({"a": FREE}, [])], tmp_path)
    drawing = ("matplotlib", "femtobarn_testbed.report_page", "femtobarn_reports")
    for name in [name for name in sys.modules if name.startswith(drawing)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(fb.UnsupportedError, match=r"pip install 'femtobarn\[plots\]'"):
        write_report([made_up_run({"a": FREE}, [1])], tmp_path)


def test_paper_of_finds_the_figure_that_a_run_repeats() -> None:
    figure = paper_of({"paper": "[SCAL] Figure 8"})
    assert figure is not None
    assert {(point.clients, point.value) for point in figure.points} == {(30, 154e6), (45, 172e6)}
    assert paper_of({"paper": "[SCAL] Figure 11"}) is None
    assert MONARC_RANGES[8_000] == (4.3e6, 5.5e6)


def test_operations_of_which_none_ended_have_no_latency() -> None:
    run = made_up_run({"a": FREE}, [1])
    run["points"][0]["operations"]["commit"] |= {"count": 0, "median": math.nan, "p99": math.nan}
    head, [row] = latency_table(run)
    assert row[head.index("commit")] == "-"
    assert row[head.index("read")].count("/") == 2


# Comparisons.


def test_compare_variants_gives_ratios_to_the_first() -> None:
    plain = FREE | {"cache": 1_000_000, "p99": 0.01, "server": 0.2, "cores": 0.4}
    other = plain | {"clients": [1, 2], "each": 15e6, "cache": 2_000_000, "p99": 0.02, "server": 0.6}
    rows = compare_variants(made_up_run({"plain": plain, "other": other}, [1, 2]))
    assert [(row["variant"], row["clients"]) for row in rows] == [
        ("plain", 1), ("other", 1), ("plain", 2), ("other", 2),
    ]  # fmt: skip
    first, second = rows[2:]
    assert first["ratios"] is None
    assert first["values"]["server_cpu"] == pytest.approx(0.2 / 0.02)  # 20 MB/s
    assert first["per"] == "GB"
    assert "clients" not in second["differs"]
    assert second["differs"]["cache"] == [1_000_000, 2_000_000]
    assert second["ratios"]["throughput"] == pytest.approx(1.5)
    assert second["ratios"]["read_p99"] == pytest.approx(2.0)
    assert second["ratios"]["server_cpu"] == pytest.approx(3 / 1.5)
    assert second["ratios"]["client_cpu"] == pytest.approx(1 / 1.5)
    assert second["ratios"]["efficiency"] is None
    head, cells = comparison_table(rows)
    assert "efficiency" not in head
    assert "write p99" not in head
    assert cells[2][head.index("read p99")] == "10.0 ms"
    assert cells[3][head.index("MB/s")] == "x 1.50"
    assert "cache 1,000,000 -> 2,000,000" in cells[3][0]


def test_many_variants_are_compared_at_the_largest_number_of_clients() -> None:
    run = made_up_run({f"variant {n}": FREE for n in range(6)}, [1, 2, 8])
    assert [row["clients"] for row in compare_variants(run)] == [8] * 6


def test_cpu_time_is_per_event_without_payload_and_not_compressed() -> None:
    run = made_up_run({"a": FREE | {"compression": 4.0, "server": 1.0}, "b": FREE}, [2])
    assert compare_variants(run)[0]["values"]["server_cpu"] == pytest.approx(1.0 / 0.02 / 4)
    for point in run["points"]:
        point["throughput"]["bytes_per_second"] = 0.0
    row = compare_variants(run)[0]
    assert row["per"] == "1,000 events"
    assert row["values"]["throughput"] is None
    assert row["values"]["server_cpu"] == pytest.approx(1.0 / 0.02 / 4)


def test_compare_runs_uses_common_points() -> None:
    before = made_up_run({"a": FREE, "b": FREE}, [1, 2, 4])
    after = made_up_run({"b": FREE | {"each": 5e6}, "c": FREE}, [2, 4, 8])
    rows = compare_runs(before, after)
    assert [(row["variant"], row["clients"]) for row in rows] == [("b", 2)] * 2 + [("b", 4)] * 2
    assert rows[1]["ratios"]["throughput"] == pytest.approx(0.5)
    assert rows[0]["label"] == "b (2026-01-02 03:04, 0123456)"


def test_compare_refuses_runs_without_common_points() -> None:
    one = made_up_run({"only": FREE}, [1])
    with pytest.raises(fb.InvalidError, match="has one variant \\('only'\\)"):
        compare_variants(one)
    with pytest.raises(fb.InvalidError, match="no variant in common: 'only'; 'other'"):
        compare_runs(one, made_up_run({"other": FREE}, [1]))
    with pytest.raises(fb.InvalidError, match="no number of clients in common: 'only' 1 and 2, 3"):
        compare_runs(one, made_up_run({"only": FREE}, [2, 3]))


def test_commands_plot_and_compare_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    path = save(made_up_run({"plain": FREE, "other": FREE | {"each": 5e6}}, [1, 2]), tmp_path)
    assert main(["testbed", "compare", str(path)]) == 0
    assert "x 0.500" in capsys.readouterr().out
    assert main(["testbed", "plot", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").exists()
    assert main(["testbed", "compare", str(path), str(path), str(path)]) != 0

"""Policies of eviction on traces small enough to work out by hand, the model of a site, and replays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from wrong_workloads import assert_names_mistake

import femtobarn as fb
from femtobarn.cli import main
from femtobarn_testbed import bundled_workloads, latest, load, read, run
from femtobarn_testbed.comparison import compare_variants
from femtobarn_testbed.eviction.policies import BASE, BOUND, POLICIES
from femtobarn_testbed.eviction.replay import Disk, replay
from femtobarn_testbed.eviction.synthetic import make_trace
from femtobarn_testbed.eviction.tables import cells_of, ranked, ratio_table, staged_table
from femtobarn_testbed.eviction.traces import Trace, next_accesses, read_trace, trace_of
from femtobarn_testbed.eviction.workload import facts_of
from femtobarn_testbed.workload import scenarios_of

DAY = 86_400.0
SHORT = {"days": 60}
"""Settings of a trace that takes a second with all policies and disks."""


def trace_from(
    reads: str, *, sizes: dict[str, int] | None = None, seconds: float = 1.0, written: str = ""
) -> Trace:
    """A trace of files with names of one letter, of one byte unless `sizes` has them; first `written` are
    written, then one is read after each pause."""
    names = sorted(set(written + reads))
    files = np.array([names.index(name) for name in written + reads])
    sizes_of = np.array([(sizes or {}).get(name, 1) for name in names], np.int64)
    is_write = np.arange(len(files)) < len(written)
    return trace_of(seconds * np.arange(float(len(files))), files, sizes_of, is_write)


def staged_by(policy: str, trace: Trace, capacity: int, reads: str) -> str:
    """The names of the reads that staged their file, on a disk that evicts only as much as needed."""
    staged = []
    for end in range(1, len(reads) + 1):
        part = Trace(trace.times[:end], trace.files[:end], trace.is_write[:end], trace.sizes)
        chosen = POLICIES[policy](trace, capacity, 1)
        staged.append(replay(part, chosen, Disk(capacity, 1.0, 1.0)).staged)
    return "".join(name for name, a, b in zip(reads, [0, *staged], staged, strict=False) if b > a)


# Policies: each letter is a read, and the letters expected are the reads that had to stage the file. All
# traces and disks were worked out by hand.


@pytest.mark.parametrize(
    ("policy", "reads", "capacity", "staged"),
    [
        # d removes a, though it was just read; then a removes b.
        ("FIFO", "abcadab", 3, "abcdab"),
        # d removes b, which was read longest ago; then b removes c.
        ("LRU", "abcadab", 3, "abcdb"),
        # A scan of d, e, f removes all that LRU had.
        ("LRU", "aabbcdefab", 3, "abcdefab"),
        # a and b have count 4. c has 1, leaves for d and makes the age 1; d has 2, leaves for e; e has 3.
        ("LFU-DA", "aabbaabbcdeab", 3, "abcde"),
        # Ageing: a and b have count 2. c has 1, leaves for d and makes the age 1, so d has 2, too. Of the
        # three a was read longest ago, and leaves for e.
        ("LFU-DA", "aabbcdea", 3, "abcdea"),
        # Two hits in the small queue of a disk of 10 take a to the main queue, which the scan does not reach.
        ("S3-FIFO", "aaabcdefghijklma", 10, "abcdefghijklm"),
        # One hit does not: a leaves with the first victim.
        ("S3-FIFO", "aabcdefghijklma", 10, "abcdefghijklma"),
        # b left a moment ago and is remembered, so it enters the main queue, and the scan spares it.
        ("S3-FIFO", "abcdefghijklmbnopqrstuvwb", 10, "abcdefghijklmbnopqrstuvw"),
        # The hand takes the marks of a and b, and evicts c.
        ("SIEVE", "abcabdab", 3, "abcd"),
        # Then it begins again, and a and b, without marks, leave for e and f.
        ("SIEVE", "abcabdefab", 3, "abcdefab"),
        # It passes a and stays ahead of it: e, f, g and h remove b, c, d and e. LRU removes a for h.
        ("SIEVE", "abcdaefgha", 4, "abcdefgh"),
        ("LRU", "abcdaefgha", 4, "abcdefgha"),
        # The hand begins again at the oldest: all three are marked and lose their marks, a leaves.
        ("SIEVE", "abcabcda", 3, "abcda"),
        # b is needed last, then c: the bound keeps a and d.
        (BOUND, "abcdadcab", 3, "abcdb"),
    ],
)
def test_policy_stages_the_files_worked_out_by_hand(
    policy: str, reads: str, capacity: int, staged: str
) -> None:
    assert staged_by(policy, trace_from(reads), capacity, reads) == staged


def test_gdsf_removes_large_files_where_lfu_counts_alone() -> None:
    reads = "baaca"
    trace = trace_from(reads, sizes={"a": 6, "b": 1, "c": 5})
    # c needs room. Two reads of six bytes count less than one of one byte, so GDSF removes a.
    assert staged_by("GDSF", trace, 11, reads) == "baca"
    assert staged_by("LFU-DA", trace, 11, reads) == "bac"


def test_lru_2_and_lrfu_spare_files_that_were_read_on_two_days() -> None:
    reads = "ababcdefab"
    daily = trace_from(reads, seconds=60.0)
    daily = replace(daily, times=daily.times + DAY * np.minimum(np.arange(10), 3))
    for policy in ("LRU-2", "LRFU"):
        assert staged_by(policy, daily, 3, reads) == "abcdef"
    assert staged_by("LRU", daily, 3, reads) == "abcdefab"
    # Within one day the second reads do not count.
    hurried = trace_from(reads, seconds=60.0)
    for policy in ("LRU-2", "LRFU"):
        assert staged_by(policy, hurried, 3, reads) == "abcdefab"


def test_lrfu_counts_an_access_half_after_three_days() -> None:
    names = {"a": 0, "b": 1, "c": 2}
    # a on two days, b on one, three half-lives later: 1.7 / 8 is less than 1, so c removes a.
    days = [0.0, 1.5, 10.5, 11.5, 11.6]
    files = np.array([names[name] for name in "aabca"])
    trace = Trace(DAY * np.array(days), files, np.zeros(5, bool), np.ones(3, np.int64))
    assert staged_by("LRFU", trace, 2, "aabca") == "abca"
    soon = Trace(trace.times / 4.0 + DAY * np.array([0, 1, 0, 0, 0]), files, trace.is_write, trace.sizes)
    assert staged_by("LRFU", soon, 2, "aabca") == "abc"


def test_relatime_knows_one_access_a_day() -> None:
    reads = "abaca"
    assert staged_by("LRU, relatime", trace_from(reads, seconds=DAY), 2, reads) == "abc"
    # The second read of a within a day is not seen: a is older than b.
    assert staged_by("LRU, relatime", trace_from(reads, seconds=60.0), 2, reads) == "abca"
    assert staged_by("LRU", trace_from(reads, seconds=60.0), 2, reads) == "abc"


def test_bound_is_the_best_of_all_evictions_of_files_of_one_size() -> None:
    random = np.random.default_rng(7)
    for _ in range(20):
        files = random.integers(0, 5, 11)
        reads = "".join("abcde"[file] for file in files)
        trace = trace_from(reads)
        best = fewest_staged(reads, 3)
        assert len(staged_by(BOUND, trace, 3, reads)) == best
        for policy in POLICIES:
            assert len(staged_by(policy, trace, 3, reads)) >= best


def fewest_staged(reads: str, capacity: int) -> int:
    """The least number of reads that stage a file, by trying every victim."""
    states: dict[frozenset[str], int] = {frozenset(): 0}
    for name in reads:
        after: dict[frozenset[str], int] = {}
        for state, staged in states.items():
            cost = staged + (name not in state)
            for rest in _rests(state, name, capacity):
                kept = frozenset(rest) | {name}
                after[kept] = min(after.get(kept, cost), cost)
        states = after
    return min(states.values())


def _rests(state: frozenset[str], name: str, capacity: int) -> Sequence[Sequence[str]]:
    if name in state or len(state) < capacity:
        return [sorted(state)]
    return list(itertools.combinations(sorted(state), capacity - 1))


# Replays.


def test_disk_above_the_high_mark_is_emptied_to_the_low_one() -> None:
    reads = "abcdefghijjab"
    trace = trace_from(reads)
    # Nine fit below 90 %; the tenth makes room down to 60 %, itself among what is there: a to d leave.
    done = replay(trace, POLICIES["LRU"](trace, 10, 1), Disk(10, 0.9, 0.6))
    assert (done.reads, done.staged, done.evicted) == (13, 12, 4)
    assert staged_by("LRU", trace, 10, reads) == "abcdefghij"


def test_written_files_are_there_and_warm_up_does_not_count() -> None:
    trace = trace_from("abca", written="ab")
    done = replay(trace, POLICIES["LRU"](trace, 9, 1), Disk(9, 1.0, 1.0))
    assert (done.reads, done.staged, done.staged_bytes, done.read_bytes) == (4, 1, 1, 4)
    late = replay(trace, POLICIES["LRU"](trace, 9, 1), Disk(9, 1.0, 1.0), since=5.0)
    assert (late.reads, late.staged) == (1, 0)


def test_file_larger_than_the_disk_is_staged_each_time_and_displaces_nothing() -> None:
    trace = trace_from("abab", sizes={"b": 20})
    done = replay(trace, POLICIES["LRU"](trace, 10, 1), Disk(10, 0.9, 0.8))
    assert (done.staged, done.staged_bytes, done.evicted) == (3, 41, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_policy_evicts_only_files_on_the_disk(policy: str) -> None:
    random = np.random.default_rng(3)
    files, times = random.integers(0, 60, 3_000), np.sort(random.uniform(0, 40 * DAY, 3_000))
    trace = trace_of(times, files, random.integers(1, 9, 60), random.random(3_000) < 0.05)
    chosen = POLICIES[policy](trace, 90, 5)
    done = replay(trace, chosen, Disk(90, 0.9, 0.7))
    left = list(chosen.victims())
    assert len(set(left)) == len(left)
    assert trace.sizes[left].sum() <= 81
    # A write to a file that is there does not make it enter.
    assert 0 < done.evicted <= done.staged + int(trace.is_write.sum()) - len(left)
    assert done.staged_bytes < done.read_bytes
    again = replay(trace, POLICIES[policy](trace, 90, 5), Disk(90, 0.9, 0.7))
    assert again == done


# Traces.


def test_recorded_trace_is_read_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_text(
        'time_s,file,bytes,operation\n20,/b,7,read\n10.5,/a,5,write\n30,/a,6,read\n25,"/b,c",1,read\n'
    )
    trace = read_trace(path)
    assert trace.times.tolist() == [10.5, 20.0, 25.0, 30.0]
    assert trace.files.tolist() == [0, 1, 2, 0]
    assert trace.sizes.tolist() == [6, 7, 1]
    assert trace.is_write.tolist() == [True, False, False, False]
    assert next_accesses(trace) == [3, 4, 4, 4]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must begin with the line time_s,file,bytes"),
        ("time,name,size\n", "must begin with the line time_s,file,bytes, not 'time,name,size'"),
        ("time_s,file,bytes\n", "has no accesses"),
        ("time_s,file,bytes\n1,a\n", "line 2"),
        ("time_s,file,bytes\n1,a,5\nnow,a,5\n", "line 3"),
        ("time_s,file,bytes\n1,a,0\n", "at least one byte, not 0"),
        ("time_s,file,bytes\nnan,a,5\n", "line 2"),
        ("time_s,file,bytes,operation\n1,a,5,open\n", "read or write, not 'open'"),
    ],
)
def test_recorded_trace_with_a_mistake_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "site.csv"
    path.write_text(text)
    with pytest.raises(fb.InvalidError, match=r"site\.csv") as caught:
        read_trace(path)
    assert told in str(caught.value)


def test_model_reads_files_about_as_often_as_they_were_read_at_cern() -> None:
    """Of files read within eleven months 56 % were read once there, 80 % at most twice."""
    facts = facts_of(make_trace(load("cache-policies").cases[0].site, 1))
    assert 0.4 < facts["read_once"] < 0.7
    assert 0.7 < facts["read_at_most_twice"] < 0.9


def test_model_has_the_activities_of_its_site() -> None:
    site = replace(load("cache-policies").cases[0].site, days=60.0)
    whole, again = make_trace(site, 3), make_trace(site, 3)
    assert whole.files.tolist() == again.files.tolist()
    assert (np.diff(whole.times) >= 0.0).all()
    assert whole.times[-1] < 60 * DAY
    # A file is first written or older than the trace, and its size is that of the model.
    written = np.unique(whole.files[whole.is_write])
    first = np.unique(whole.files, return_index=True)[1]
    assert whole.is_write[first[written]].all()
    assert 1.5e9 < np.median(whole.sizes) < 2.5e9
    shared = make_trace(replace(site, opens=3.0), 3)
    assert len(shared.times) > 2 * len(whole.times)
    calm = replace(site, fresh_passes=0.0, sets_per_day=0.0, chance_passes_per_day=0.0, calibration_files=0.0)
    campaign = make_trace(calm, 3)
    reads = campaign.files[~campaign.is_write]
    assert len(np.unique(reads)) == len(reads) > 500
    assert make_trace(replace(calm, campaign_every_days=0.0), 3).is_write.all()


# Runs.


def test_run_of_replays_is_saved_reported_and_the_same_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--set", "days=60", "--variant", "analysis and campaigns", "--out", str(tmp_path)]
    assert main(["testbed", "run", "cache-policies", *arguments, "--clients", "7"]) == 0
    said = capsys.readouterr().out
    assert "bytes staged, LRU = 1" in said
    assert "TB" in said
    (path,) = latest([tmp_path])
    done = read(path)
    workload = load("cache-policies", settings=SHORT)
    again = run(workload, scratch=tmp_path, variants=["analysis and campaigns"])
    assert again["points"] == done["points"]
    assert len(done["points"]) == 4 * len(POLICIES)
    cells = cells_of(done)
    assert {cell.ratio for cell in cells if cell.policy == BASE} == {1.0}
    assert ranked(cells)[-1] == BOUND
    assert all(cell.ratio < 1.0 for cell in cells if cell.policy == BOUND)
    # A larger disk stages less.
    for policy in POLICIES:
        staged = [cell.staged_bytes for cell in cells if cell.policy == policy]
        assert staged == sorted(staged, reverse=True)
    head, rows = ratio_table(done)
    assert head[-1] == BOUND
    assert [row[0] for row in rows[-2:]] == ["analysis and campaigns, 30 %", "mean"]
    assert len(staged_table(done)[1]) == len(POLICIES)
    with pytest.raises(fb.InvalidError, match="replayed traces"):
        compare_variants(done)
    with pytest.raises(fb.InvalidError, match="replayed traces"):
        scenarios_of(done)
    pytest.importorskip("matplotlib")
    assert main(["testbed", "plot", str(tmp_path)]) == 0
    assert (tmp_path / "cache-policies-staged.png").stat().st_size > 10_000
    page = (tmp_path / "report.html").read_text()
    assert "Bytes staged by each policy" in page
    assert "clients at most" not in page


def test_recorded_trace_is_replayed_instead_of_the_models(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    lines = [f"{60 * at},/data/{at * at % 97},{1_000 + at % 7}" for at in range(2_000)]
    path.write_text("\n".join(["time_s,file,bytes", *lines]) + "\n")
    done = run(load("cache-policies", settings={"recorded": str(path)}), scratch=tmp_path)
    assert list(done["traces"]) == ["recorded"]
    assert done["traces"]["recorded"]["reads"] == 2_000
    assert {point["reads"] for point in done["points"]} == {1_500}
    with pytest.raises(fb.NotFoundError, match=r"other\.csv"):
        run(load("cache-policies", settings={"recorded": "other.csv"}), scratch=tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"SIEVE"', '"SEIVE"', "did you mean 'SIEVE'"),
        ("low_percent = 80", "low_percent = 95", "low_percent must be at most high_percent"),
        ("high_percent = 90", "high_percent = 101", "at most 100"),
        ("warm_up_percent = 25", "warm_up_percent = 100", "must be below 100"),
        ("set_passes = 6", "set_pases = 6", "lacks set_passes"),
        ("opens = 3", "opens = 0", "opens and set_passes at least 1"),
        ("[1, 3, 10, 30]", "[3, 1]", "ascending"),
        ("warm_up_percent = 25", "warm_up = 25", "unknown key 'warm_up'"),
    ],
)
def test_load_names_the_mistake_in_a_workload_of_replays(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    text = bundled_workloads()["cache-policies"].read_text()
    assert_names_mistake(tmp_path, text, old, new, told)


def test_unknown_variant_of_replays_names_the_closest(tmp_path: Path) -> None:
    with pytest.raises(fb.NotFoundError, match="analysis alone"):
        run(load("cache-policies"), scratch=tmp_path, variants=["analysis alon"])

"""Comparison of variants, or of two runs: the effect of a setting, a machine or a release.

A row is a point of a run. The first row of a comparison has values, the others also ratios to the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from femtobarn import InvalidError

from .studies import study_of
from .summaries import rounded

__all__ = ["Row", "compare_runs", "compare_variants", "comparison_table"]

Row = dict[str, Any]
"""``label``, ``variant``, ``clients``, ``differs`` (changed settings: value in the first row, value here),
``values`` and ``ratios`` (None in the first row) by the names of :data:`COLUMNS`, ``per`` (the unit of work
that CPU seconds are counted for)."""

VARIANTS_FEW = 4
"""Largest number of variants that are compared at every number of clients; more only at the largest."""

COLUMNS = {
    "throughput": "MB/s",
    "events": "events/s",
    "efficiency": "efficiency",
    "read_p99": "read p99",
    "write_p99": "write p99",
    "commit_p99": "commit p99",
    "server_cpu": "server CPU s",
    "client_cpu": "client CPU s",
}


def compare_variants(run: Mapping[str, Any]) -> list[Row]:
    """Compare each variant of a run with the first, at the same numbers of clients.

    Raises
    ------
    InvalidError
        If the run has one variant, or none shares a number of clients with the first, or if it has none.
    """
    by_variant = _by_variant(run)
    if len(by_variant) < 2:
        names = ", ".join(map(repr, by_variant)) or "none"
        raise InvalidError(
            f"the run of {run['workload']} has one variant ({names}), so there is nothing to compare: run "
            "more variants, or name a second run"
        )
    (first, base), *others = by_variant.items()
    shared = sorted(clients for clients in base if any(clients in points for _, points in others))
    if not shared:
        raise InvalidError(f"no other variant has a number of clients of {first!r}: {_numbers(base)}")
    if len(by_variant) > VARIANTS_FEW:
        shared = shared[-1:]
    per = _unit([base, *(points for _, points in others)])
    rows = []
    for clients in shared:
        start = _row(first, run, base[clients], per)
        rows.append(start)
        rows += [
            _against(start, _row(name, run, points[clients], per))
            for name, points in others
            if clients in points
        ]
    return rows


def compare_runs(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Row]:
    """Compare two runs where variant and number of clients are the same.

    Raises
    ------
    InvalidError
        If the runs have no point in common, or no clients.
    """
    one, other = _by_variant(first), _by_variant(second)
    names = [name for name in one if name in other]
    if not names:
        raise InvalidError(
            f"the runs have no variant in common: {', '.join(map(repr, one))}; {', '.join(map(repr, other))}"
        )
    per = _unit([*one.values(), *other.values()])
    rows: list[Row] = []
    for name in names:
        for clients in sorted(set(one[name]) & set(other[name])):
            start = _row(f"{name} ({_origin(first)})", first, one[name][clients], per)
            after = _row(f"{name} ({_origin(second)})", second, other[name][clients], per)
            rows += [start, _against(start, after)]
    if not rows:
        counts = "; ".join(f"{name!r} {_numbers(one[name])} and {_numbers(other[name])}" for name in names)
        raise InvalidError(f"the runs have no number of clients in common: {counts}")
    return rows


def comparison_table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return head and cells of a table: figures in the first row of each comparison, ratios in the others.

    Columns without any value are left out.
    """
    shown = [name for name in COLUMNS if any(row["values"][name] is not None for row in rows)]
    per = rows[0]["per"] if rows else ""
    head = ["", "clients", *(COLUMNS[name] + f" per {per}" * name.endswith("cpu") for name in shown)]
    cells = [[_name(row), f"{row['clients']:,}", *(_cell(row, name) for name in shown)] for row in rows]
    return head, cells


def _by_variant(run: Mapping[str, Any]) -> dict[str, dict[int, Mapping[str, Any]]]:
    """The points of each variant by their numbers of clients."""
    if study := study_of(run):
        raise InvalidError(f"the run of {run['workload']} {study.did}: `testbed plot` shows its results")
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for point in run["points"]:
        found.setdefault(point["variant"], {})[point["clients"]] = point
    return found


def _unit(groups: Iterable[Mapping[int, Mapping[str, Any]]]) -> str:
    moved = (point["throughput"]["bytes_per_second"] for group in groups for point in group.values())
    return "GB" if all(moved) else "1,000 events"


def _origin(run: Mapping[str, Any]) -> str:
    """The time of a run, and the commit of its sources."""
    commit = run["femtobarn"].get("commit")
    return f"{run['started'][:16].replace('T', ' ')}" + (f", {commit[:7]}" if commit else "")


def _row(label: str, run: Mapping[str, Any], point: Mapping[str, Any], per: str) -> Row:
    return {
        "label": label,
        "variant": point["variant"],
        "clients": point["clients"],
        "settings": point["settings"],
        "differs": {},
        "values": _values(run, point, per),
        "ratios": None,
        "per": per,
    }


def _values(run: Mapping[str, Any], point: Mapping[str, Any], per: str) -> dict[str, float | None]:
    rates, used = point["throughput"], point["resources"]
    # Rates are in the workload's time, CPU seconds in the machine's.
    speed = run["played"][point["variant"]]["compression"]
    rate = rates["bytes_per_second"] / 1e9 if per == "GB" else rates["events_per_second"] / 1e3
    return {
        "throughput": rates["bytes_per_second"] or None,
        "events": rates["events_per_second"] or None,
        "efficiency": point["efficiency"],
        "read_p99": _p99(point, "read"),
        "write_p99": _p99(point, "write"),
        "commit_p99": _p99(point, "commit"),
        "server_cpu": used["server_cores"] / (rate * speed) if rate else None,
        "client_cpu": used["client_cores"] / (rate * speed) if rate else None,
    }


def _p99(point: Mapping[str, Any], operation: str) -> float | None:
    done = point["operations"].get(operation)
    return done["p99"] if done else None


def _against(first: Row, row: Row) -> Row:
    """Add to a row its ratios to the first row, and the settings that differ."""
    # The list of numbers of clients has no effect on a single point.
    names = (first["settings"].keys() | row["settings"].keys()) - {"clients"}
    differs = {
        name: [first["settings"].get(name), row["settings"].get(name)]
        for name in sorted(names)
        if first["settings"].get(name) != row["settings"].get(name)
    }
    ratios = {name: _ratio(value, first["values"][name]) for name, value in row["values"].items()}
    return row | {"differs": differs, "ratios": ratios}


def _ratio(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else value / of


def _name(row: Row) -> str:
    changed = ", ".join(f"{name} {_short(a)} -> {_short(b)}" for name, (a, b) in row["differs"].items())
    return f"{row['label']}: {changed}" if changed else str(row["label"])


def _short(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:,}" if is_number else "none" if value in (None, "", []) else str(value)


def _cell(row: Row, name: str) -> str:
    value = row["values"][name]
    if value is None:
        return "-"
    if row["ratios"] is not None:
        ratio = row["ratios"][name]
        return "-" if ratio is None else f"x {rounded(ratio)}"
    if name == "throughput":
        return rounded(value / 1e6)
    if name == "efficiency":
        return f"{value:.0%}"
    return f"{rounded(1000 * value)} ms" if name.endswith("p99") else rounded(value)


def _numbers(points: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(points)))

"""Checks beyond the engine's own: that global tags still name the same versions of series."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._exceptions import NotFoundError
from .jobs import Job

if TYPE_CHECKING:
    from .._federations import Federation

__all__ = ["problems"]

TAGS = "conditions/global_tags"
"""The container with the changes of global tags."""


def problems(federation: Federation) -> list[str]:
    """Return the problems of a federation's conditions, a sentence each."""
    found = _changes_of_frozen_tags(federation)
    kept = {tag["csn"] for tag in federation.tags()}
    readable: set[tuple[int, ...]] = set()
    for tag in federation.conditions.tags():
        named = {csn for containers in tag["branches"].values() for _, csn in containers}
        commits = ({tag["csn"], *(csn for csn, _ in tag["series"].values())} | named) - {None}
        for csn in sorted(commits):
            if csn not in kept:
                found.append(
                    f"global tag {tag['name']!r} names commit {csn}, but no tag of the federation keeps its "
                    f"snapshot from vacuum; make one with: femtobarn tag FED {tag['name']}@{csn} --csn {csn}"
                )
        found += _unreadable_series(federation, tag["name"], readable)
    return found


def _changes_of_frozen_tags(federation: Federation) -> list[str]:
    snapshot = federation.snapshot()
    if TAGS not in snapshot:
        return []
    changes = snapshot[TAGS].arrays(["name", "state"]).to_list()
    frozen: set[str] = set()
    found = []
    for entry, change in enumerate(changes):
        if change["name"] in frozen:
            found.append(
                f"change {entry} of {TAGS} alters global tag {change['name']!r}, which was frozen before; "
                "readers ignore it, but it was not written by the functions for global tags"
            )
        if change["state"] == "frozen":
            frozen.add(change["name"])
    return found


def _unreadable_series(federation: Federation, name: str, readable: set[tuple[int, ...]]) -> list[str]:
    """Return the problems of a tag's series. A version that several tags have is read once."""
    try:
        job = federation.conditions(name)
        listed = job._listed()
    except NotFoundError as error:
        return [f"global tag {name!r} cannot be opened: {error}"]
    found = []
    for path, facts in listed.items():
        version = None if facts is None else tuple(facts.version)
        if version in readable:
            continue
        problem = _unreadable(job, name, path)
        if problem is not None:
            found.append(problem)
        elif version is not None:
            readable.add(version)
    return found


def _unreadable(job: Job, name: str, path: str) -> str | None:
    try:
        series = job[path]
        series.channels()
    except (NotFoundError, ValueError) as error:
        return f"series {path} of global tag {name!r} cannot be read: {error}"
    return None

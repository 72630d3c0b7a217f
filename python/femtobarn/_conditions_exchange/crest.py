"""Conditions databases of ATLAS's CREST, by REST.

A tag becomes a series with ``overlap="open"``. Times of tags of the types ``run`` and ``run-lumi`` have a run
in the upper 32 bits and a luminosity block in the lower; those of all other types count nanoseconds since
1970, as in COOL. The hash of a payload is its SHA-256. Of several conditions with one since the one that was
inserted last counts.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from .._conditions.clocks import FOREVER, moment_of
from .._conditions.payloads import BINARY, Payload
from .._exceptions import CorruptError, NotFoundError
from .checksums import check_sum
from .rest import bytes_at, json_at, members
from .sources import Options, Rows, SourceSeries, SourceTag, container_name, wanted

__all__ = ["CrestSource"]

PAGE_SIZE = 1000
RUN_TYPES = ("run", "run-lumi")


class CrestSource:
    """A server of CREST; its address ends with ``/api``, or with the version of the API."""

    system = "crest"

    def __init__(self, address: str, options: Options) -> None:
        self.location = address.rstrip("/")
        self._options = options
        self._places: dict[str, str] = {}

    def _pages(self, path: str, **parameters: Any) -> Iterator[Any]:
        """Yield the resources of all pages of an answer."""
        page = 0
        while True:
            answer = json_at(self.location, path, page=page, size=PAGE_SIZE, **parameters)
            resources = answer.get("resources") or []
            yield from resources
            page += 1
            described = answer.get("page") or {}
            if not resources or page >= int(described.get("totalPages", 1)):
                return

    def series(self) -> list[SourceSeries]:
        """Return a series for each tag."""
        tags = {}
        for tag in self._pages("tags", name="all", sort="name:ASC"):
            name, time_type = members(tag, ("name", "timeType"), f"{self.location}/tags")
            tags[name] = str(time_type), tag.get("endOfValidity")
        return [self._series(tag, *tags[tag]) for tag in wanted(tags, self._options.only, self.location)]

    def _series(self, tag: str, time_type: str, end: Any) -> SourceSeries:
        clock: Literal["time", "run"] = "run" if time_type.lower() in RUN_TYPES else "time"
        limit = int(end) if end and 0 < int(end) < FOREVER else FOREVER
        parameters: dict[str, Any] = {"method": "IOVS", "tagname": tag, "timeformat": "NUMBER"}
        if self._options.snapshot is not None:
            parameters["snapshot"] = moment_of(self._options.snapshot, "time") // 10**6
        newest: dict[int, tuple[datetime, str]] = {}
        for number, iov in enumerate(self._pages("iovs", sort="id.since:ASC", **parameters)):
            place = f"{self.location}/iovs: condition {number} of tag {tag}"
            since, key, inserted = members(iov, ("since", "payloadHash", "insertionTime"), place)
            if not isinstance(since, int) or not 0 <= since < FOREVER:
                raise CorruptError(f"{place}: since {since!r} is not an integer of the clock")
            known = newest.get(since)
            time = _time(inserted, place)
            if known is None or time >= known[0]:
                newest[since] = time, key
            self._places[key] = place
        rows = Rows()
        for since, (_, key) in sorted(newest.items()):
            if since < limit:
                rows.add(since, limit, key)
        return SourceSeries(tag, container_name(tag), clock, "open", rows)

    def global_tags(self) -> list[SourceTag]:
        """Return the global tags, each with its records; none if only some tags are imported."""
        if self._options.only:
            return []
        found = []
        for tag in self._pages("globaltags", name="all", sort="name:ASC"):
            (name,) = members(tag, ("name",), f"{self.location}/globaltags")
            mapped = {}
            for entry in self._mapping(name):
                label, mapped_tag = members(
                    entry, ("label", "tagName"), f"{self.location}/globaltagmaps/{name}"
                )
                mapped[container_name(label)] = container_name(mapped_tag)
            found.append(SourceTag(name, mapped, "open", str(tag.get("description") or "")))
        return found

    def _mapping(self, name: str) -> list[Any]:
        """Return the entries of a global tag; a server reports a tag without entries as missing."""
        try:
            return json_at(self.location, f"globaltagmaps/{name}").get("resources") or []
        except NotFoundError:
            return []

    def payload(self, key: str) -> Payload:
        """Return the payload with a SHA-256, checked."""
        quoted = urllib.parse.quote(key)
        try:
            data = bytes_at(f"{self.location}/payloads/data?hash={quoted}&format=BLOB")
            meta = json_at(self.location, "payloads/data", hash=key, format="META")
        except NotFoundError as error:
            raise CorruptError(f"{self._places[key]}: payload {key} is missing: {error}") from None
        check_sum(data, key, f"payload {key} of {self._places[key]}")
        name = meta.get("objectName") or ""
        media_type = "application/json" if str(meta.get("objectType")).lower() == "json" else BINARY
        kept = {name: value for name, value in meta.items() if name in ("objectType", "version")}
        details = json.dumps(kept, sort_keys=True)
        return Payload.from_bytes(
            data, name="" if name == "none" else name, media_type=media_type, details=details
        )


def _time(text: Any, place: str) -> datetime:
    """Return the time of an insertion."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        raise CorruptError(f"{place}: insertionTime {text!r} is not a time") from None
    return time.replace(tzinfo=None) - (time.utcoffset() or datetime.resolution * 0)

"""Conditions databases of the HEP Software Foundation's reference implementation, nopayloaddb, by REST.

A payload list becomes a series with ``overlap="open"``: as on the server, the list's newest beginning before
a moment counts; as in its clients, nothing is valid after its end. Major and minor number are the run and the
luminosity block of the clock ``run``; with ``clock="time"`` the major number counts nanoseconds, and the
minor one must be 0. Whether a validity contains its last moment is the server's setting ``CDB_IOV_MODE``
(``discrete`` if it does). The largest integer stands for no end.

The server has addresses and checksums of payloads; the payloads are read from a folder or another server.
"""

from __future__ import annotations

import posixpath
import urllib.parse
from typing import Any

from .._conditions.clocks import FOREVER, LUMI_MAX
from .._conditions.global_tags import State
from .._conditions.payloads import BINARY, MEDIA_TYPES, Payload
from .._exceptions import CorruptError, InvalidError, NotFoundError
from .checksums import check_sum
from .rest import bytes_at, json_at, members
from .sources import Options, Rows, SourceSeries, SourceTag, checked_run, container_name, run_end, wanted

__all__ = ["NopayloaddbSource"]

STATES: dict[str, State] = {"locked": "locked", "frozen": "frozen"}
INFINITE = 2**63 - 1
"""The end that the server stores for an open validity."""

NUMBERS = ("major_iov", "minor_iov", "major_iov_end", "minor_iov_end")


class NopayloaddbSource:
    """A server of nopayloaddb; its address ends with ``/api/cdb_rest``."""

    system = "nopayloaddb"

    def __init__(self, address: str, options: Options) -> None:
        self.location = address.rstrip("/")
        self._options = options
        self._urls: dict[str, str] = {}
        self._base: str | None = options.payloads
        self._is_inclusive = self._inclusive()
        self._tags = self._read()

    def _setting(self, name: str) -> str | None:
        try:
            value = json_at(self.location, f"user_settings/{name}/")
        except NotFoundError:
            return None
        return str(value[name]) if isinstance(value, dict) and value.get(name) else None

    def _inclusive(self) -> bool:
        if self._options.end is not None:
            return self._options.end == "inclusive"
        return self._setting("CDB_IOV_MODE") == "discrete"

    def _read(self) -> dict[str, tuple[str, list[Any]]]:
        """Return the state and the payload lists of each global tag."""
        answer = json_at(self.location, "globalTags")
        if not isinstance(answer, list):
            raise CorruptError(f"{self.location}/globalTags: the answer is not a list")
        names = [members(tag, ("name",), f"{self.location}/globalTags")[0] for tag in answer]
        tags = {}
        for name in wanted(names, self._options.only, self.location):
            place = f"{self.location}/globalTag/{name}"
            status, lists = members(
                json_at(self.location, f"globalTag/{name}"), ("status", "payload_lists"), place
            )
            tags[name] = (status["name"] if isinstance(status, dict) else str(status)), lists
        return tags

    def series(self) -> list[SourceSeries]:
        """Return a series for each payload list of the global tags."""
        return [self._series(each) for _, lists in self._tags.values() for each in lists]

    def _series(self, payload_list: Any) -> SourceSeries:
        name, iovs = members(payload_list, ("name", "payload_iov"), f"{self.location}: a payload list")
        clock = self._options.clock or "run"
        found = []
        for iov in iovs:
            place = f"{self.location}: IOV {iov.get('id')} of payload list {name}"
            url, checksum, *numbers = members(iov, ("payload_url", "checksum", *NUMBERS), place)
            if not all(isinstance(number, int) for number in numbers):
                raise CorruptError(f"{place}: {numbers} are not integers")
            since, until = self._validity(numbers, place)
            if until <= since:
                raise CorruptError(f"{place}: it ends before it begins")
            known = self._urls.setdefault(checksum, url)
            found.append((since, iov.get("id", 0), until, checksum, known))
        rows = Rows()
        for since, _, until, checksum, _ in sorted(found):
            rows.add(since, until, checksum)
        return SourceSeries(name, container_name(name), clock, "open", rows)

    def _validity(self, numbers: list[int], place: str) -> tuple[int, int]:
        major, minor, last_major, last_minor = numbers
        is_endless = last_major >= INFINITE
        if self._options.clock == "time":
            if minor or (last_minor and not (is_endless or last_minor >= INFINITE)):
                raise InvalidError(f"{place}: minor numbers must be 0 on the clock 'time'")
            return major, FOREVER if is_endless else last_major + self._is_inclusive
        if major > 2**31 - 1:
            raise InvalidError(
                f"{place}: {major} is too large for a run; if it counts nanoseconds, import with "
                "clock='time' "
                "(--clock time)"
            )
        since = checked_run(major, minor, place)
        if is_endless:
            return since, FOREVER
        if last_minor > LUMI_MAX:
            return since, run_end(last_major, LUMI_MAX, place)
        if self._is_inclusive:
            return since, run_end(last_major, last_minor, place)
        return since, checked_run(last_major, last_minor, place)

    def global_tags(self) -> list[SourceTag]:
        """Return the global tags, each with its payload types."""
        return [
            SourceTag(
                name,
                {
                    container_name(each["payload_type"]): container_name(each["name"])
                    for each in lists
                    if each.get("payload_type")
                },
                STATES.get(status, "open"),
                f"{status} at {self.location}",
            )
            for name, (status, lists) in self._tags.items()
        ]

    def payload(self, key: str) -> Payload:
        """Return the payload with a checksum, from where payloads are."""
        url = self._urls[key]
        data = bytes_at(self._address(url))
        check_sum(data, key, self._address(url))
        suffix = posixpath.splitext(url)[1].lower()
        return Payload.from_bytes(data, name=url, media_type=MEDIA_TYPES.get(suffix, BINARY))

    def _address(self, url: str) -> str:
        scheme = urllib.parse.urlsplit(url).scheme
        if ".." in url.split("/") or scheme not in ("", "http", "https"):
            raise CorruptError(f"{self.location}: the address {url} of a payload leads out of its folder")
        if scheme:
            return url
        if self._base is None:
            self._base = self._setting("CDB_PAYLOAD_BASE_URL")
        if self._base is None:
            raise InvalidError(
                f"{self.location} does not say where payloads such as {url} are; name their folder or server "
                "(--payloads)"
            )
        return f"{self._base.rstrip('/')}/{url.lstrip('/')}"

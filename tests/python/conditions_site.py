"""A served federation with conditions, for the tests of answers over HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from server_settings import QUICK_STOP

import femtobarn as fb


@fb.persistent
class Gain:
    value: fb.float64
    raw: bytes


@dataclass
class Answer:
    code: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Site:
    """A served federation with conditions."""

    federation: fb.Federation
    server: fb.Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/conditions/lhc.fed"

    def ask(self, path: str, headers: dict[str, str] | None = None, proxy: int | None = None) -> Answer:
        """Return the answer to a request whose body has the hash that it says."""
        request = urllib.request.Request(f"{self.url}/{path}", headers=headers or {})
        through = {"http": f"http://127.0.0.1:{proxy}"} if proxy else {}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(through))
        try:
            with opener.open(request, timeout=60) as answer:
                got = Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())
        if got.code == 200 and "repr-digest" in got.headers:
            digest = base64.b64encode(hashlib.sha256(got.body).digest()).decode()
            assert got.headers["repr-digest"] == f"sha-256=:{digest}:"
        return got

    def version(self, series: str, head: str = "heads") -> str:
        """Return the part of addresses that names a version of a series."""
        return str(self._head_of(series, head)["version"])

    def _head_of(self, series: str, head: str) -> Any:
        (found,) = (it for it in self.ask(head).json["series"] if it["series"] == series)
        return found

    def at(self, series: str, moment: int, channel: int = 0, head: str = "heads") -> Any:
        """Return the value at a moment; None in a gap. A program finds it so that knows only JSON."""
        found_head = self._head_of(series, head)
        version, series = found_head["version"], found_head["path"]
        windows = self.ask(f"series/{version}/{series}").json["windows"]
        (number,) = (n for n, it in enumerate(windows) if it["since"] <= moment < it["until"])
        window = self.ask(f"windows/{version}/{number}/{series}").json
        if channel not in window["channels"]:
            return None
        place = window["channels"].index(channel)
        start, stop = window["starts"][place : place + 2]
        intervals = window["intervals"]
        until = np.array(intervals["until"][start:stop])
        found = start + int(np.searchsorted(until, moment, side="right"))
        if found == stop or intervals["since"][found] > moment:
            return None
        entry = intervals["entry"][found]
        first = entry // 1024 * 1024
        page = self.ask(f"conditions/{version}/{first}-{first + 1023}/{series}").json
        return page["values"][entry - first]


@contextmanager
def served_conditions(fed: fb.Federation) -> Iterator[Site]:
    """Fill a federation with conditions and serve it."""
    with fed.transaction() as txn:
        gains = txn.series("tpc/gain", Gain, create=True)
        gains.put(Gain(value=1.5, raw=b"\x01\xff"), since=0, until=100)
        gains.put(Gain(value=float("nan"), raw=b""), since=40, until=60)
        gains.put(Gain(value=3.0, raw=b""), since=0, channel=7)
        maps = txn.series("tpc/map", fb.Payload, create=True)
        maps.put(fb.Payload.from_bytes(bytes(range(256)), name="map-1.bin"), since=0)
        page = "<script>alert(1)</script>"
        maps.put(fb.Payload.from_bytes(page.encode(), media_type="text/html"), since=50)
        txn.series("run/state", Gain, create=True, clock="run").put(
            Gain(value=2.0, raw=b""), since=(7, 1), until=(8, 0)
        )
    with fb.serve(fed.path, port=0, address="127.0.0.1", config=QUICK_STOP) as server:
        yield Site(fed, server)

"""Requests to the routes of nopayloaddb, as its clients send them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

NO_END = 2**63 - 1
"""Major and minor number of the end of an IOV that has none."""


@dataclass(frozen=True)
class Requests:
    """The routes of one federation."""

    base: str
    """The address that ends with ``/api/cdb_rest``."""

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the JSON of an answer."""
        data = None if method in ("GET", "DELETE") else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.base}/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of an answer that must not be an error."""
        status, answer = self(method, path, body)
        assert status == 200, f"{method} {path}: {status} {answer}"
        return answer

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Return the status and the reason of an error."""
        status, answer = self(method, path, body)
        assert status >= 400, f"{method} {path}: {status} {answer}"
        return status, answer["detail"]

    def new_list(self, tag: str, payload_type: str) -> str:
        """Make a payload list, attach it to a global tag, and return its name."""
        name: str = self.ok("POST", "pl", {"payload_type": payload_type})["name"]
        self.ok("PUT", "pl_attach", {"payload_list": name, "global_tag": tag})
        return name

    def insert(
        self,
        payload_list: str,
        url: str,
        start: tuple[int, int],
        end: tuple[int, int] | None = None,
        checksum: str | None = None,
    ) -> Any:
        """Insert an IOV by the two requests of the clients."""
        numbers = {"major_iov": start[0], "minor_iov": start[1]}
        iov = {"payload_url": url, "checksum": checksum or f"sum of {url}", **numbers}
        if end is not None:
            iov |= {"major_iov_end": end[0], "minor_iov_end": end[1]}
        number = self.ok("POST", "piov", iov)["id"]
        return self.ok("PUT", "piov_attach", {"payload_list": payload_list, "piov_id": number})

    def valid(
        self, tag: str, major: int, minor: int
    ) -> dict[str, tuple[str, tuple[int, int], tuple[int, int]]]:
        """Return address, beginning and end of the payload of each type at a moment."""
        rows = self.ok("GET", f"payloadiovs/?gtName={tag}&majorIOV={major}&minorIOV={minor}")
        return {row[0]: (row[1], tuple(row[4:6]), tuple(row[6:8])) for row in rows}

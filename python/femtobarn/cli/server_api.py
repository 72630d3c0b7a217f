"""The client of a server's status over HTTP."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .._exceptions import DeniedError, UnavailableError
from .output import human_size

if TYPE_CHECKING:
    import urllib.error

__all__ = ["address_of", "ask", "recall_sums", "server_argument"]


PORT = 1094
"""Of servers for which none is named."""


def server_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the argument that names a server."""
    parser.add_argument("server", nargs="?", default="localhost", help="HOST[:PORT] or URL (localhost:1094)")


def address_of(server: str, path: str) -> str:
    """Return the address of a page of a server, which is given as HOST, HOST:PORT or by a URL; the port of
    servers is 1094.

    Examples
    --------
    >>> address_of("localhost:1095", "api/status"), address_of("roots://host//lhc.fed", "api/status")
    ('http://localhost:1095/api/status', 'https://host:1094/api/status')
    """
    parts = urlsplit(server if "://" in server else f"root://{server}")
    scheme = "https" if parts.scheme in ("roots", "https") else "http"
    named = parts.netloc.rpartition("@")[2]
    has_port = named.rpartition("]")[2].rpartition(":")[1]
    port = "" if has_port or parts.scheme in ("http", "https") else f":{PORT}"
    return f"{scheme}://{named}{port}/{path}"


def ask(address: str, seconds: float = 10) -> Any:
    """Return the JSON of a server's page, which has to arrive within a number of seconds.

    Raises
    ------
    DeniedError
        If this client may not read the page.
    UnavailableError
        If it does not answer, or is none of ours.
    """
    import urllib.error
    import urllib.request  # takes time to import, and few commands need it

    try:
        with urllib.request.urlopen(address, timeout=seconds) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            kind = DeniedError if error.code in (401, 403) else UnavailableError
            raise kind(f"{address} answers {error.code}: {_reason(error)}") from None
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise UnavailableError(f"no Femtobarn server answers at {address}: {error}") from None


def recall_sums(told: dict[str, Any]) -> str:
    """Return a line about all that is brought back from the stores of a federation."""
    return (
        f"{told['name']}: {told['waiting']:,} files come back, {human_size(told['waiting_bytes'])} wait; "
        f"{told['done']:,} came back, {told['failed']:,} failed"
    )


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return error.reason

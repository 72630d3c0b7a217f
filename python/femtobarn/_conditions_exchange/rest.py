"""Answers of REST servers, over HTTP and HTTPS."""

from __future__ import annotations

import http.client
import io
import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, Any

from .._exceptions import CorruptError, InvalidError, NotFoundError, UnavailableError

__all__ = ["bytes_at", "json_at", "members"]

TIMEOUT_SECONDS = 60
ANSWER_BYTES_MAX = 64 << 20
"""Bytes of an answer in JSON; those of a payload are limited by ``PAYLOAD_BYTES_MAX``."""
PAYLOAD_BYTES_MAX = 1 << 30
PIECE_BYTES = 1 << 20
STATUS_NOT_FOUND = 404


def json_at(base: str, path: str, **parameters: Any) -> Any:
    """Return the JSON that a server answers.

    Raises
    ------
    NotFoundError
        If the server does not have it.
    UnavailableError
        If the server does not answer, or answers with another error.
    CorruptError
        If the answer is not JSON, or has more than 64 MiB.
    """
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    address = f"{base.rstrip('/')}/{urllib.parse.quote(path)}{query}"
    body = bytes_at(address, ANSWER_BYTES_MAX)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise CorruptError(f"the answer of {address} is not JSON: {body[:60]!r}") from None


def bytes_at(address: str, bytes_max: int = PAYLOAD_BYTES_MAX) -> bytes:
    """Return the bytes at an address: ``http://``, ``https://``, ``file://`` or a path.

    Raises
    ------
    NotFoundError, UnavailableError
        As for :func:`json_at`.
    CorruptError
        If they are more than ``bytes_max``.
    """
    scheme = urllib.parse.urlsplit(address).scheme
    if scheme in ("", "file"):
        path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(address).path) if scheme else address)
        if not path.is_file():
            raise NotFoundError(f"there is no file {path}")
        with path.open("rb") as file:
            return _limited(file, path.stat().st_size, address, bytes_max)
    if scheme not in ("http", "https"):
        raise InvalidError(f"{address} begins neither with http:// nor https:// nor file://")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
            announced = int(answer.headers.get("Content-Length") or 0)
            body = _limited(answer, announced, address, bytes_max)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(200).decode(errors="replace")
        if error.code == STATUS_NOT_FOUND:
            raise NotFoundError(f"{address} was not found: {text}") from None
        raise UnavailableError(f"{address} answered {error.code}: {text}") from None
    except OSError as error:  # Among them is RemoteDisconnected, which is an HTTPException as well.
        raise UnavailableError(f"{address} does not answer: {getattr(error, 'reason', error)}") from None
    except http.client.IncompleteRead:
        raise UnavailableError(f"{address} broke off before the last chunk of its answer") from None
    except (http.client.HTTPException, ValueError) as error:
        raise CorruptError(f"{address} does not answer as HTTP does: {error!r}") from None
    if len(body) < announced:
        raise UnavailableError(f"{address} broke off after {len(body)} of {announced} bytes")
    return body


def _limited(source: IO[bytes], announced: int, address: str, bytes_max: int) -> bytes:
    """Return all bytes of a source, or refuse those that would be too many.

    They are read in pieces, because ``read`` takes memory for as many as it is asked for.
    """
    body = io.BytesIO()
    if announced <= bytes_max:
        while piece := source.read(min(PIECE_BYTES, bytes_max + 1 - body.tell())):
            body.write(piece)
    if max(announced, body.tell()) > bytes_max:
        raise CorruptError(f"{address} has more than {bytes_max >> 20} MiB, which are not read")
    return body.getvalue()


def members(answer: Any, names: tuple[str, ...], place: str) -> list[Any]:
    """Return members of an object of JSON, or refuse an answer that lacks one."""
    for name in names:
        if not isinstance(answer, dict) or name not in answer:
            raise CorruptError(
                f"{place}: the answer has no member {name!r}; is it another version of the server?"
            )
    return [answer[name] for name in names]

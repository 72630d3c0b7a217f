"""Answers of REST servers, over HTTP and HTTPS."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from .._exceptions import CorruptError, InvalidError, NotFoundError, UnavailableError

__all__ = ["bytes_at", "json_at", "members"]

TIMEOUT_SECONDS = 60
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
        If the answer is not JSON.
    """
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    address = f"{base.rstrip('/')}/{urllib.parse.quote(path)}{query}"
    body = bytes_at(address)
    try:
        return json.loads(body)
    except ValueError:
        raise CorruptError(f"the answer of {address} is not JSON: {body[:60]!r}") from None


def bytes_at(address: str) -> bytes:
    """Return the bytes at an address: ``http://``, ``https://``, ``file://`` or a path.

    Raises
    ------
    NotFoundError, UnavailableError
        As for :func:`json_at`.
    """
    scheme = urllib.parse.urlsplit(address).scheme
    if scheme in ("", "file"):
        path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(address).path) if scheme else address)
        if not path.is_file():
            raise NotFoundError(f"there is no file {path}")
        return path.read_bytes()
    if scheme not in ("http", "https"):
        raise InvalidError(f"{address} begins neither with http:// nor https:// nor file://")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(200).decode(errors="replace")
        if error.code == STATUS_NOT_FOUND:
            raise NotFoundError(f"{address} was not found: {text}") from None
        raise UnavailableError(f"{address} answered {error.code}: {text}") from None
    except (urllib.error.URLError, OSError) as error:
        raise UnavailableError(f"{address} does not answer: {getattr(error, 'reason', error)}") from None


def members(answer: Any, names: tuple[str, ...], place: str) -> list[Any]:
    """Return members of an object of JSON, or refuse an answer that lacks one."""
    for name in names:
        if not isinstance(answer, dict) or name not in answer:
            raise CorruptError(
                f"{place}: the answer has no member {name!r}; is it another version of the server?"
            )
    return [answer[name] for name in names]

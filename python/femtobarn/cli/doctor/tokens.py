"""Checks of the bearer token that clients of this user send, found as in docs/serving.md."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

from ..._femtobarn import bearer_token
from ..output import human_duration
from .finding import Finding, note, ok, wrong

__all__ = ["look_at_token"]

SOON_SECONDS = 600


def look_at_token(is_secure: bool) -> Iterator[Finding]:
    """Tell whether there is a token, whether it is sent, and when it ends."""
    found = bearer_token()
    if found is None:
        return
    place, token = found
    if not is_secure:
        yield note("token", f"that of {place} is sent over TLS only", "open the federation as roots://")
        return
    ends = _end_of(token)
    if ends is None:
        yield note("token", f"that of {place} does not say when it ends")
    elif ends < time.time():
        ago = human_duration(int(time.time() - ends))
        yield wrong("denied", "token", f"that of {place} ended {ago} ago", "get a new one")
    elif ends < time.time() + SOON_SECONDS:
        yield note("token", f"that of {place} ends in {human_duration(int(ends - time.time()))}", "renew it")
    else:
        yield ok("token", f"that of {place} ends in {human_duration(int(ends - time.time()))}")


def _end_of(token: str) -> float | None:
    """Return when a token ends, in seconds since 1970; None if it is not a JSON Web Token with an end."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None

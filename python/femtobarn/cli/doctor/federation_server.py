"""Checks of a federation at a server: the connection, the server's state, the rights of this user."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from ... import _federations
from ..._exceptions import DeniedError, FemtobarnError
from ..._femtobarn import __version__
from ..output import human_duration, human_size
from ..server_api import PORT, address_of, ask
from .finding import Finding, note, ok, refused, wrong
from .tokens import look_at_token
from .users import look_at_rights, look_at_waits

__all__ = ["look_at_server"]

ANSWER_SECONDS = 5.0

QUESTIONS = 5
"""Small questions, whose median is the latency."""

FAR_SECONDS = 0.02
"""A latency from which on more streams and larger read-ahead pay."""

CERTIFICATE_DAYS = 14
"""Before its end a certificate should have a successor."""

FREE_FRACTION = 0.05

BEHIND_COMMITS = 1000
"""A follower that lacks more than these does not keep up."""


def look_at_server(url: str) -> Iterator[Finding]:
    """Look at the federation of a URL."""
    is_secure = urlsplit(url).scheme == "roots"
    yield from look_at_token(is_secure)
    if is_secure:
        yield _look_at_certificate(url)
    try:
        federation = _federations.open(url, timeout=ANSWER_SECONDS)
    except FemtobarnError as error:
        yield refused("federation", error, _remedy_of_opening(error, url))
        return
    with federation:
        yield ok("federation", f"{federation.name} at {url}, commit {federation.head()}")
        yield look_at_rights(federation)
        yield _look_at_latency(federation)
        yield look_at_waits(federation)
    yield from _look_at_status(url)


def _remedy_of_opening(error: FemtobarnError, url: str) -> str:
    if error.kind == "unavailable":
        return "is femtobarn serve running there?"
    if error.kind == "not-found":
        with suppress(FemtobarnError):
            served = ask(address_of(url, "api/federations"), ANSWER_SECONDS)
            return f"it serves {', '.join(served) or 'none'}"
    return ""


def _look_at_certificate(url: str) -> Finding:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORT
    context = ssl.create_default_context()
    try:
        with (
            socket.create_connection((host, port), ANSWER_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host) as secure,
        ):
            ends = ssl.cert_time_to_seconds(str((secure.getpeercert() or {})["notAfter"]))
            version = secure.version()
    except ssl.SSLCertVerificationError as error:
        fact = f"the certificate of {host} is not trusted: {error.verify_message}"
        return wrong(
            "unavailable", "TLS", fact, "name its authority in SSL_CERT_FILE, or renew it at the server"
        )
    except OSError as error:
        return wrong("unavailable", "TLS", f"{host}:{port}: {error}", "is tls.certificate set at the server?")
    fact = f"{version}, a certificate that ends in {human_duration(int(ends - time.time()))}"
    if ends - time.time() < CERTIFICATE_DAYS * 86400:
        return note("TLS", fact, "renew it at the server, which reads it again on SIGHUP")
    return ok("TLS", fact)


def _look_at_latency(federation: _federations.Federation) -> Finding:
    times = []
    for _ in range(QUESTIONS):
        start = time.perf_counter()
        federation.head()
        times.append(time.perf_counter() - start)
    latency = sorted(times)[QUESTIONS // 2]
    fact = f"the server answers in {latency * 1e3:.1f} ms"
    if latency > FAR_SECONDS:
        return note(
            "latency", fact, "read arrays instead of single objects, with more streams and a disk cache"
        )
    return ok("latency", fact)


def _look_at_status(url: str) -> Iterator[Finding]:
    """Check the server's own status."""
    try:
        status = ask(address_of(url, "api/status"), ANSWER_SECONDS)
    except DeniedError:
        yield note(
            "server", "does not report its state to this user", "its operator sees it with femtobarn top"
        )
        return
    except FemtobarnError as error:
        yield note("server", f"does not report its state: {error}")
        return
    fact = f"{status['server']}, up for {human_duration(status['up_seconds'])}"
    ours = f"femtobarn {__version__}"
    if status["server"] != ours:
        yield note(
            "server",
            f"{fact}, and this is {ours}",
            "the releases work together, but without the features of the newer one",
        )
    else:
        yield ok("server", fact)
    if status["is_draining"]:
        yield note("server", "it is about to stop", "wait until it has been started again")
    yield from _look_at_export(status, "/" + urlsplit(url).path.strip("/"))


def _look_at_export(status: dict[str, Any], name: str) -> Iterator[Finding]:
    """Look at the space of an export, and at the copies that follow its federation."""
    for export in status["exports"]:
        if export["name"] == name:
            free, total = export["free_bytes"], export["total_bytes"]
            fact = f"the disk of the server has {human_size(free)} free of {human_size(total)}"
            if free < total * FREE_FRACTION:
                yield note("space", fact, "femtobarn vacuum and evict at the server give space back")
            else:
                yield ok("space", fact)
    for follower in status["followers"]:
        if follower["federation"] == name:
            fact = f"{follower['name']} lacks {follower['behind']:,} of the commits"
            if follower["behind"] > BEHIND_COMMITS:
                yield note("follower", fact, "check the network, and the disk of the copy")
            else:
                yield ok("follower", fact)

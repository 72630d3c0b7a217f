"""Checks of the stores of a federation: whether the stores in ``storage.toml`` exist."""

from __future__ import annotations

import os
import shutil
import socket
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .finding import Finding, note, ok, wrong

__all__ = ["look_at_stores"]

ANSWER_SECONDS = 3.0

PORTS = {"root": 1094, "roots": 1094, "http": 80, "https": 443}

MARK = ".femtobarn-store"
"""The file that the first copy puts into a folder, without which the folder does not count as the store."""


def look_at_stores(folder: Path, used: set[str]) -> Iterator[Finding]:
    """Look at the stores of the federation in a folder, of which the `used` ones have copies."""
    settings = folder / "storage.toml"
    if not settings.exists():
        if used:
            fact = f"copies are in {', '.join(sorted(used))}, and there is no {settings}"
            yield wrong("invalid", "stores", fact, "put the file back, without which no copy is found")
        return
    try:
        stores = tomllib.loads(settings.read_text()).get("stores", {})
    except (OSError, ValueError) as error:
        yield wrong("invalid", "stores", f"{settings} cannot be read: {error}", "correct it")
        return
    if not isinstance(stores, dict) or not all(isinstance(store, dict) for store in stores.values()):
        yield wrong("invalid", "stores", f"{settings} has a store that is not a table", "correct it")
        return
    for name in sorted(used - stores.keys()):
        fact = f"copies are in it, and {settings} does not name it"
        yield wrong("invalid", f"store {name}", fact, "put its section back")
    for name, store in stores.items():
        yield _look_at_store(f"store {name}", store, name in used)


def _look_at_store(subject: str, store: dict[str, Any], is_used: bool) -> Finding:
    if store.get("kind") == "folder":
        path = store.get("path")
        if not isinstance(path, str) or not path:
            return wrong("invalid", subject, f"{path!r} is not the path of a folder", "correct storage.toml")
        return _look_at_folder(subject, Path(path), is_used)
    if store.get("kind") == "commands":
        return _look_at_commands(subject, store)
    return _look_at_server(subject, str(store.get("url", "")))


def _look_at_folder(subject: str, folder: Path, is_used: bool) -> Finding:
    if not folder.is_dir():
        return wrong("unavailable", subject, f"{folder} does not exist", "mount its disk, or make the folder")
    if is_used and not (folder / MARK).exists():
        fact = f"{folder} lacks the file {MARK}, so it is not the store that has the copies"
        return wrong("unavailable", subject, fact, "mount its disk")
    if not os.access(folder, os.W_OK):
        fact = f"{folder} cannot be written by this user: copies can be read, and no new ones made"
        return note(subject, fact, "run migrate and apply-rules as its owner")
    return ok(subject, f"{folder} is there")


def _look_at_commands(subject: str, store: dict[str, Any]) -> Finding:
    commands = {name: store[name] for name in ("migrate", "stage", "remove", "query") if store.get(name)}
    missing = sorted({words[0] for words in commands.values() if shutil.which(words[0]) is None})
    if missing:
        fact = f"{', '.join(missing)} cannot be run"
        return wrong("unavailable", subject, fact, "install it, or correct storage.toml")
    return ok(subject, f"its commands {', '.join(commands)} are there, and were not run")


def _look_at_server(subject: str, url: str) -> Finding:
    parts = urlsplit(url)
    try:
        place = (parts.hostname or "", parts.port or PORTS[parts.scheme])
    except (KeyError, ValueError):
        return wrong("invalid", subject, f"{url!r} is not the URL of a store", "correct storage.toml")
    try:
        with socket.create_connection(place, ANSWER_SECONDS):
            return ok(subject, f"{url} accepts connections")
    except OSError as error:
        fact = f"{url} does not answer: {error}"
        return wrong("unavailable", subject, fact, "start it, or check the network between")

"""The commands for federations that have several servers: `servers`, `drain` and `move-database`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from .. import _federations
from .._exceptions import UnavailableError
from .._storage import Servers, SiteServer
from .output import emit, emit_line, human_size, table

__all__ = ["drain", "drain_arguments", "list_servers", "move_arguments", "move_database"]


def move_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `move-database`."""
    parser.add_argument("federation", metavar="FEDERATION", help="federation at one of its servers")
    parser.add_argument("database", help="name of the database")
    parser.add_argument("server", help="name of the server that gets it")


def drain_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `drain`."""
    parser.add_argument("federation", metavar="FEDERATION", help="federation at one of its servers")
    parser.add_argument("server", help="name of the server")
    parser.add_argument("--undo", action="store_true", help="let it get databases again")


def move_database(options: argparse.Namespace) -> None:
    """Move a database to another server."""
    with _federations.open(options.federation) as fed:
        fed.move_database(options.database, options.server)
    facts = {"database": options.database, "server": options.server}
    emit(options, facts, f"{options.database} is at {options.server}")


def drain(options: argparse.Namespace) -> None:
    """Let a server get no new databases, and move those that it has to others."""
    moved = {}
    with _federations.open(options.federation) as fed:
        fed.drain(options.server, undo=options.undo)
        if not options.undo:
            for database in (row["name"] for row in fed.databases()):
                if fed.home(database) == options.server:
                    moved[database] = _roomiest(fed, options.server).name
                    fed.move_database(database, moved[database])
                    if not options.json:
                        emit_line(f"{database} is at {moved[database]}")
    count = "1 database was" if len(moved) == 1 else f"{len(moved)} databases were"
    state = "gets databases again" if options.undo else f"is drained: {count} moved"
    emit(options, {"server": options.server, "moved": moved}, f"{options.server} {state}")


def _roomiest(fed: Servers, drained: str) -> SiteServer:
    """The server with the most room, as of now."""
    others = [it for it in fed.servers() if it.alive and it.state == "active" and it.name != drained]
    if not others:
        raise UnavailableError("no other server takes databases: start one, or end the draining of one")
    return max(others, key=lambda server: server.free_bytes)


def list_servers(options: argparse.Namespace) -> None:
    """Print the servers of a federation."""
    servers = _federations.open(options.federation).servers()
    rows = [
        [
            server.name,
            server.state if server.alive or server.state == "left" else "away",
            str(server.databases),
            human_size(server.free_bytes),
            str(server.load),
            server.storage,
            server.url,
        ]
        for server in servers
    ]
    head = ["server", "is", "databases", "free", "load", "storage", "url"]
    text = table(head, rows, right={2, 3, 4}) if rows else "the federation has one server, or none"
    emit(options, [asdict(server) for server in servers], text)

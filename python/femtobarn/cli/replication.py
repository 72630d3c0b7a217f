"""The commands for copies of federations at other servers: `follow`, `promote` and `forget-leader`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

from .. import _serving
from .._exceptions import BusyError, CorruptError, StorageError, UnavailableError
from .._replication import Follower, FollowerState, follow, forget_former_leader, promote
from .allocator import return_freed_memory
from .output import emit, emit_line, human_size

__all__ = [
    "follow_arguments",
    "follow_leader",
    "forget_arguments",
    "forget_leader",
    "promote_arguments",
    "promote_copy",
]

STEP_SECONDS = 1.0
"""Longest wait for a commit in one step, so that signals are noticed."""

RETRY_SECONDS = 2.0
"""Pause after a leader that does not answer, a full disk, damage, or a backup that is being made."""

REPORT_SECONDS = 10.0
"""Between two lines about a copy that is up to date."""


def follow_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `follow`."""
    parser.add_argument("leader", metavar="URL", help="federation at its leader, root://HOST//NAME")
    parser.add_argument("folder", help="folder of the copy, new or to be continued")
    parser.add_argument("-p", "--port", type=int, help="serve the copy on this port, too; 0: any")
    parser.add_argument("-c", "--config", metavar="FILE", help="settings of the server in TOML, with --port")
    parser.add_argument(
        "--name", default="", help="name by which the leader lists the copy; its URL by default"
    )
    parser.add_argument("--once", action="store_true", help="end when the copy has all commits")


def promote_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `promote`."""
    parser.add_argument("folder", help="folder of the copy")
    parser.add_argument("url", metavar="URL", help="URL at which the copy is served from now on")
    parser.add_argument(
        "--force",
        action="store_true",
        help="promote even if the leader does not answer or cannot write; commits that only it has are lost",
    )


def forget_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `forget-leader`."""
    parser.add_argument("folder", help="folder of the copy that was promoted")


def follow_leader(options: argparse.Namespace) -> None:
    """Follow until interrupted."""
    return_freed_memory()
    with contextlib.ExitStack() as stack:
        follower = stack.enter_context(follow(options.leader, options.folder, name=options.name))
        if options.port is not None:
            server = stack.enter_context(
                _serving.serve(options.folder, port=options.port, config=options.config)
            )
            url = server.url(server.exports[0])
            _say(options, {"url": url}, f"serving the copy at {url}")
            if not options.name:
                follower.close()
                follower = stack.enter_context(follow(options.leader, options.folder, name=url))
        for step in _steps(follower, options):
            if options.once and step.is_current:
                return


def promote_copy(options: argparse.Namespace) -> None:
    """Make a copy the leader."""
    done = promote(options.folder, options.url, force=options.force)
    text = f"{options.folder} leads generation {done.generation}, from commit {done.csn} on"
    text += "".join(f"\nrepair before it is written to: {database}" for database in done.unsound)
    text += "".join(
        "\nnot marked yet, so the former leader may still remove objects there (femtobarn apply-rules tries "
        f"again): {store}"
        for store in done.unmarked
    )
    if done.untold_leader:
        text += (
            f"\n{done.untold_leader} was left behind and has not been notified: run femtobarn serve on this "
            "folder, which notifies it as soon as it can"
        )
    emit(options, asdict(done), text)


def forget_leader(options: argparse.Namespace) -> None:
    """Forget the leader that a promotion has left behind."""
    forget_former_leader(options.folder)
    text = f"{options.folder} leads alone: its former leader will not be notified any more"
    emit(options, {"folder": options.folder}, text)


def _steps(follower: Follower, options: argparse.Namespace) -> Iterator[FollowerState]:
    """Follow for ever, step by step, and print the progress of the copy."""
    reported, copied, was_current = 0.0, 0, False
    while True:
        try:
            step = follower.step(0.0 if options.once else STEP_SECONDS)
        except (BusyError, CorruptError, StorageError, UnavailableError) as error:
            print(f"femtobarn: {error}; trying again", file=sys.stderr, flush=True)
            time.sleep(RETRY_SECONDS)
            continue
        copied += step.bytes
        now = time.monotonic()
        if now - reported >= REPORT_SECONDS or step.is_current > was_current:
            behind = step.leader_csn - step.csn
            text = f"commit {step.csn}, {behind} behind, {human_size(copied)} copied"
            _say(options, asdict(step) | {"copied": copied}, text)
            reported, copied = now, 0
        was_current = step.is_current
        yield step


def _say(options: argparse.Namespace, facts: dict[str, object], text: str) -> None:
    emit_line(json.dumps(facts) if options.json else text)
    sys.stdout.flush()

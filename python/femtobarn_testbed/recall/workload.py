"""The table ``[recall]`` of a workload's file, and its run."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import femtobarn as fb

from ..tape_library import Play, counters_of
from ..toml_parser import Parser
from .clients import ask_server, stage_in_order
from .fairness import fair_seconds
from .site import TapeSite

__all__ = ["Recalls", "parse_recalls", "run_recalls"]


class Content(NamedTuple):
    """Files on tapes, which variants may have in common."""

    files: int
    file_bytes: int
    tapes: int
    byte_scale: float
    drives: int


@dataclass(frozen=True)
class Recalls:
    """Files, clients that want them, and the order in which they come."""

    name: str
    settings: Mapping[str, Any]
    files: int
    warm_up_files: int
    """Files that the server brings back before, so that it knows how long that takes."""
    file_bytes: int
    tapes: int
    clients: int
    many: float
    """Share of the files that the first client wants. The others want equal parts of the rest, each of them
    files that were written one after the other."""
    order: str
    """``"tapes"``: a server decides; ``"asked"``: the files come as they were asked for, in random order."""
    request_files: int
    play: Play

    @property
    def content(self) -> Content:
        """The files on the tapes."""
        play = self.play
        files = self.files + self.warm_up_files
        return Content(files, self.file_bytes, self.tapes, play.byte_scale, play.drives)


def parse_recalls(name: str, table: Parser, settings: Mapping[str, Any]) -> Recalls:
    """Return the recalls of a variant.

    Raises
    ------
    InvalidError
        If a key is missing, unknown or has a wrong value; the text names it.
    """
    library = table.table("drives")
    done = Recalls(
        name=name,
        settings=settings,
        files=table.whole("files", least=1),
        warm_up_files=table.whole("warm_up_files", 0),
        file_bytes=table.size("file_bytes"),
        tapes=table.whole("tapes", least=1),
        clients=table.whole("clients", least=1),
        many=table.number("many_percent") / 100.0,
        order=table.choice("order", ("tapes", "asked")),
        request_files=table.whole("request_files", 0),
        play=Play(
            drives=library.whole("drives", least=1),
            mount_seconds=library.number("mount_seconds", above=0.0),
            locate_seconds_per_gb=library.number("locate_seconds_per_gb"),
            bytes_per_second=library.number("bytes_per_second", above=0.0),
            hold_seconds=library.number("hold_seconds"),
            byte_scale=library.number("byte_scale", above=0.0),
            time_scale=library.number("time_scale", above=0.0),
        ),
    )
    library.end()
    table.end()
    if done.many > 1.0:
        raise fb.InvalidError(f"{table.where}: many_percent must be at most 100")
    if done.files < done.clients:
        raise fb.InvalidError(f"{table.where}: each client needs a file")
    return done


def run_recalls(
    recalls: Sequence[Recalls], folder: Path, seed: int, progress: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Yield of each variant its name, the played library, and its point. Variants that want the same files,
    one after the other, have one federation."""
    for content, group in groupby(recalls, key=lambda each: each.content):
        shutil.rmtree(folder, ignore_errors=True)
        site = _make_site(content, folder, progress)
        for each in group:
            yield each.name, each.play._asdict(), [_run_one(each, site, seed, progress)]


def _make_site(content: Content, folder: Path, progress: Callable[[str], None]) -> TapeSite:
    """Make a federation with files, and write them to tapes."""
    folder.mkdir(parents=True)
    progress(f"making {content.files} files")
    site = TapeSite(folder, *content)
    site.migrate(progress)
    return site


def _run_one(each: Recalls, site: TapeSite, seed: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Return the point of a variant: mounts, seconds, estimates, and each client's waiting time."""
    choice = random.Random(seed)
    warm_up = choice.sample(site.names, each.warm_up_files)
    wanted = _wanted(each, sorted(set(site.names) - set(warm_up)), choice)
    progress(f"{each.name}: emptying the disk")
    site.empty(each.play)
    report = _labelled(each.name, progress)
    began, estimates = time.time(), None
    if each.order == "asked":
        order = [name for files in wanted for name in files]
        choice.shuffle(order)
        there = stage_in_order(site.federation, order, each.play.drives, report)
    else:
        with fb.serve(site.federation.path, port=0, address="127.0.0.1", anonymous="all") as server:
            ask_server(server, [warm_up], 0, _labelled(f"{each.name}, before", progress))
            before, began = _recalls(server), time.time()
            there = ask_server(server, wanted, each.request_files, report)
            after = _recalls(server)
        grown = {name: after[name] - before[name] for name in after if name != "name"}
        estimates = _estimates(grown, each.play.time_scale)
    return _point(each, wanted, there, site, began) | {"estimates": estimates}


def _wanted(each: Recalls, names: Sequence[str], choice: random.Random) -> list[list[str]]:
    """The files that each client wants, in the order in which it asks for them."""
    if each.clients == 1:
        return [choice.sample(names, len(names))]
    others = each.clients - 1
    few = max(round((1.0 - each.many) * len(names) / others), 1)
    # The tapes are divided evenly among the other clients; each asks for the first files of its part.
    starts = [len(names) * number // others for number in range(others)]
    parts = [names[start : start + few] for start in starts]
    taken = {name for part in parts for name in part}
    rest = [name for name in names if name not in taken]
    # All name their files in any order.
    return [choice.sample(part, len(part)) for part in (rest, *parts)]


def _recalls(server: fb.Server) -> dict[str, Any]:
    """The counts of recalls, which ``/metrics`` has as ``femtobarn_recall_...``."""
    (counts,) = server.status()["recalls"]
    return dict(counts)


def _estimates(grown: Mapping[str, float], scale: float) -> dict[str, float]:
    done = max(grown["done"], 1)
    error = grown["estimate_errors_seconds"] / done / scale
    return {"done": grown["done"], "failed": grown["failed"], "mean_error_seconds": error}


def _point(
    each: Recalls, wanted: Sequence[Sequence[str]], there: Mapping[str, float], site: TapeSite, began: float
) -> dict[str, Any]:
    scale = each.play.time_scale
    seconds = max(there.values()) / scale
    fair = fair_seconds([float(len(files)) for files in wanted], seconds)
    work = site.work(began)
    return {
        "variant": each.name,
        "settings": dict(each.settings),
        "seconds": seconds,
        "mean_wait_seconds": sum(there.values()) / len(there) / scale,
        **counters_of(work, each.play.drives),
        "clients": [
            {
                "files": len(files),
                "seconds": max(there[name] for name in files) / scale,
                "fair_seconds": share,
            }
            for files, share in zip(wanted, fair, strict=True)
        ],
        "work": work,
    }


def _labelled(label: str, progress: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: progress(f"{label}: {text}")

"""Types that type checkers infer for persistent classes and views.

mypy and pyright must find the type in the comment of a line of `PROGRAM`, or refuse the line if the comment
says so. The package basedpyright is pyright with what it needs to run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import femtobarn as fb

PROGRAM = """\
import femtobarn as fb

@fb.persistent
class Raw:
    hits: list[fb.float32]

@fb.persistent
class Track:
    pt: fb.float32

    def twice(self) -> float:
        return 2 * self.pt

@fb.persistent(version=2)
class Event:
    run: fb.uint32
    tracks: list[Track]
    weight: fb.float32 | None = None
    raw: fb.link[Raw] = None
    quality: fb.int8 = fb.field(default=1)

event = Event(run=7, tracks=[Track(pt=1)], raw=fb.Oid(1, 1, 1))
reveal_type(event.tracks[0].pt)  # float
Event(run="7", tracks=[])  # refused
Event(runs=7, tracks=[])  # refused

fed = fb.open("lhc.fed")
view = fed["run1/events"]
reveal_type(view)  # View[Object]
reveal_type(view[0])  # Object
reveal_type(view[0].tracks.pt)  # Any
reveal_type(view.arrays())  # Any

events = view.of(Event)
reveal_type(events)  # View[Event]
reveal_type(events[0].tracks[0].pt)  # float
reveal_type(events[0].tracks[0].twice())  # float
reveal_type(events[0].raw.hits)  # Any
reveal_type([each.weight for each in events])  # list[float | None]
reveal_type(events[3:].sort_by("run").head()[-1].quality)  # int
reveal_type(events.find(run=7).run)  # int
events[0].trakcs  # refused

def first(of_any: fb.View, of_events: fb.View[Event]) -> None: ...

first(view, events)
first(events, events)
first(view, view)  # refused
"""


def found_by_mypy(path: Path, project: Path) -> dict[int, str]:
    """Return the type that mypy reveals on each line, or that it is refused."""
    # With the settings and the cache of `make types`, which are as strict, nothing is checked a second time.
    settings = [f"--config-file={project / 'pyproject.toml'}", f"--cache-dir={project / '.mypy_cache'}"]
    command = [sys.executable, "-m", "mypy", *settings, "--no-pretty", path.name]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    found = re.findall(r":(\d+): (note: Revealed type is \"(.*)\"|error: .*)", done.stdout)
    assert found, done.stdout + done.stderr
    return {int(line): _plain(revealed) if revealed else "refused" for line, _, revealed in found}


def found_by_pyright(path: Path, _: Path) -> dict[int, str]:
    """Return the type that pyright reveals on each line, or that it is refused."""
    pytest.importorskip("basedpyright")
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(Path(fb.__file__).parents[1])]}
    path.with_name("pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        path.name,
    ]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    found = {}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        revealed = re.fullmatch(r'Type of ".*" is "(.*)"', each["message"])
        found[each["range"]["start"]["line"] + 1] = _plain(revealed[1]) if revealed else "refused"
    return found


def _plain(text: str) -> str:
    """Return a type without the modules of its names."""
    return re.sub(r"\b(\w+\.)+", "", text)


@pytest.mark.parametrize("found_by", [found_by_mypy, found_by_pyright])
def test_checkers_know_fields_of_classes_and_of_typed_views(
    tmp_path: Path, project: Path, found_by: Callable[[Path, Path], dict[int, str]]
) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    found = found_by(path, project)
    seen = [
        line.partition("  # ")[0] + (f"  # {found[number]}" if number in found else "")
        for number, line in enumerate(PROGRAM.splitlines(), start=1)
    ]
    assert "\n".join(seen) + "\n" == PROGRAM


def test_a_view_of_a_class_is_refused_for_objects_of_another_one(fed: fb.Federation) -> None:
    @fb.persistent
    class Hit:
        x: fb.float32

    @fb.persistent
    class Track:
        pt: fb.float32

    with fed.transaction() as txn:
        txn.database("d", create=True).container("hits", Hit, create=True).append(Hit(x=1.5))
    view: fb.View = fed["d/hits"]
    assert view.of(Hit) is view
    assert isinstance(view.of(fb.Object)[0], Hit)
    with pytest.raises(fb.WrongTypeError, match=r"objects of d/hits are of class Hit, not .*Track"):
        view.of(Track)

"""The page of the event display: one file with its style, its scripts and its scenes.

A content security policy lets the browser run only these scripts, by their hashes, and load no other file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from .._exceptions import CorruptError, InvalidError
from .._objects.objects import Object
from .scenes import scene_of

__all__ = ["Display", "display"]

FOLDER = Path(__file__).parent
SCRIPTS = ("orbit.js", "shapes.js", "stage.js", "page.js")
THREE = Path("three", "three.module.min.js")
FRAME_HEIGHT = 640
"""Height of the display in a notebook (pixels)."""


class Display:
    """Objects in 3D: shown by notebooks, and saved as an HTML file.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> from pathlib import Path
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fed.transaction() as txn:
    ...     form = {"name": "Hit", "fields": [{"name": axis, "type": "float32"} for axis in "xyz"]}
    ...     hits = txn.database("d", create=True).container("hits", form, create=True)
    ...     oids = hits.extend({"x": [0, 1], "y": [1, 1], "z": [2, 0]})
    >>> shown = fed["d/hits"].display()
    >>> shown
    <Display of 2 objects, from d/hits 0 on>
    >>> "<title>d/hits 0</title>" in Path(shown.save(tempfile.mkdtemp() + "/hits.html")).read_text()
    True
    """

    def __init__(self, scenes: list[dict[str, Any]]) -> None:
        self.scenes = scenes
        """The drawing of each object, as JSON; see ``femtobarn.display.scenes``."""

    def html(self) -> str:
        """Return the page."""
        style, scripts = _text("page.css"), [_three(), "\n".join(map(_text, SCRIPTS))]
        sources = " ".join(map(_hash, scripts))
        policy = (
            f"default-src 'none'; script-src {sources}; style-src {_hash(style)}; base-uri 'none'; "
            "form-action 'none'"
        )
        return Template(_text("page.html.in")).substitute(
            policy=policy,
            title=escape(self.scenes[0]["title"]),
            style=style,
            scenes=json.dumps(self.scenes, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
            three=scripts[0],
            script=scripts[1],
        )

    def save(self, path: str | Path) -> str:
        """Write the page to a file, which is all that a browser needs, and return its name.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        Path(path).write_text(self.html(), encoding="utf-8")
        return str(path)

    def _repr_html_(self) -> str:
        """Return a frame with the page for notebooks: its style and scripts stay inside."""
        title = escape(self.scenes[0]["title"])
        return (
            f'<iframe title="{title}" sandbox="allow-scripts" srcdoc="{escape(self.html())}" '
            f'style="width:100%;height:{FRAME_HEIGHT}px;border:0"></iframe>'
        )

    def __repr__(self) -> str:
        first, count = self.scenes[0]["title"], len(self.scenes)
        return f"<Display of {first}>" if count == 1 else f"<Display of {count} objects, from {first} on>"


def display(objects: Object | Iterable[Any], *, referrers: bool = False) -> Display:
    """Return a display of an object, or of several to step through.

    Parameters
    ----------
    objects
        An object, a view, or a list of objects, also of several containers.
    referrers
        Whether objects that link to them are shown, too. Without an index over the links this reads the
        links of all objects.

    Raises
    ------
    InvalidError
        If there is no object.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> from femtobarn.display import display
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fed.transaction() as txn:
    ...     form = {"name": "Hit", "fields": [{"name": axis, "type": "float32"} for axis in "xyz"]}
    ...     hits = txn.database("d", create=True).container("hits", form, create=True)
    ...     oids = hits.extend({"x": [0, 1], "y": [1, 1], "z": [2, 0]})
    >>> display(fed["d/hits"][1]).scenes[0]["groups"][0]["geometry"]
    {'x': [1.0], 'y': [1.0], 'z': [0.0]}
    """
    chosen = [objects] if isinstance(objects, Object) else list(objects)
    if not chosen:
        raise InvalidError("there is no object to display; the view or the selection is empty")
    return Display([scene_of(each, referrers=referrers) for each in chosen])


@cache
def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8").strip()


@cache
def _three() -> str:
    """Return three.js as a script: a module in a page of one file cannot be imported by name.

    Its last statement lists the names that it exports; a function returns them instead.
    """
    text = (FOLDER / THREE).read_text(encoding="utf-8").strip()
    body, _, exported = text.rpartition("export{")
    pairs = re.findall(r"([\w$]+)(?: as ([\w$]+))?[,}]", exported)
    if not body or not pairs:
        raise CorruptError(f"{FOLDER / THREE} has no list of exported names; install the package again")
    members = ",".join(f"{public or private}:{private}" for private, public in pairs)
    return f"const THREE=(()=>{{{body}return{{{members}}}}})();"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

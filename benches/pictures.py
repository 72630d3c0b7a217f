"""Pictures of a run as SVG, light or dark as the reader's screen is."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from femtobarn_reports.style import BLUE, CORAL, FAINT, GREY, INK, style

PAPER = "#ffffff"
PEER = "#9a9384"
DARK = {
    PAPER: "#16181d", INK: "#e8eaef", GREY: "#a2a9b6", FAINT: "#30353f", "#b6bcc6": "#4a515e",
    BLUE: "#6c9cf2", CORAL: "#f0826f", PEER: "#b3ab9a",
}  # fmt: skip
"""The colours of pictures in light, each with the one that takes its place in the dark."""


@contextmanager
def drawing() -> Iterator[None]:
    """Draw with the settings of all pictures, with text as text."""
    with style():
        families: Any = [*mpl.rcParams["font.family"], "sans-serif"]
        with mpl.rc_context({"svg.fonttype": "none", "font.family": families, "font.size": 9}):
            yield


def svg(figure: Figure) -> str:
    """The figure as an SVG element."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    text = drawn.getvalue()
    text = text[text.index("<svg") :]
    for number, light in enumerate(DARK):
        text = text.replace(light, f"var(--c{number})")
    colours = {
        scheme: "".join(f"--c{number}:{colour};" for number, colour in enumerate(chosen))
        for scheme, chosen in {"light": DARK, "dark": DARK.values()}.items()
    }
    rules = f"svg{{{colours['light']}}}@media (prefers-color-scheme: dark){{svg{{{colours['dark']}}}}}"
    opening, rest = text.split(">", 1)
    return f"{opening}><style>{rules}</style>{rest}".rstrip()

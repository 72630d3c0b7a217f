"""Colours and sizes shared by all pictures, and the conversion of pictures to data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = [
    "BLUE",
    "CORAL",
    "GREY",
    "INK",
    "SAND",
    "TEAL",
    "VIOLET",
    "clean",
    "picture",
    "png",
    "style",
    "svg",
]

INK, GREY, FAINT = "#1c2330", "#6b7280", "#e4e7ec"
BLUE, TEAL, CORAL, VIOLET, SAND = "#2f6fde", "#12967f", "#dd5a48", "#7a5bd0", "#d99a2b"

_SETTINGS: dict[str, Any] = {
    "font.family": ["Inter", "Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 11,
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelcolor": GREY,
    "axes.labelsize": 10.5,
    "axes.edgecolor": "#b6bcc6",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "savefig.facecolor": "auto",
    "svg.hashsalt": "femtobarn",
}


@contextmanager
def style() -> Iterator[None]:
    """Apply the shared settings to pictures made in the block, with the first installed font."""
    from matplotlib import font_manager

    known = {font.name for font in font_manager.fontManager.ttflist}
    families = [name for name in _SETTINGS["font.family"] if name in known]
    with mpl.rc_context(_SETTINGS | {"font.family": families}):
        yield


def picture(width: float, height: float) -> Figure:
    """An empty figure (inches) outside Matplotlib's global state."""
    return Figure(figsize=(width, height), layout="constrained")


def clean(axes: Axes, *, x: str = "", y: str = "", title: str = "", grid: str = "y") -> None:
    """Label axes, and remove ticks and all grid lines but those along `grid`."""
    axes.set(xlabel=x, ylabel=y)
    if title:
        axes.set_title(title)
    axes.grid(visible=False)
    if grid:
        axes.grid(visible=True, axis=grid)  # type: ignore[arg-type]
    axes.tick_params(length=0)


def svg(figure: Figure) -> str:
    """The figure as a data URI of SVG."""
    return _uri(_drawn(figure, format="svg", metadata={"Date": None}), "image/svg+xml")


def png(figure: Figure, *, dpi: int = 170, path: Path | None = None) -> str:
    """The figure as a data URI of PNG, for pictures with many points; also as a file if `path` is set."""
    pixels = _drawn(figure, format="png", metadata={"Software": None}, dpi=dpi)
    if path is not None:
        path.write_bytes(pixels)
    return _uri(pixels, "image/png")


def _drawn(figure: Figure, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, **options)
    return buffer.getvalue()


def _uri(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"

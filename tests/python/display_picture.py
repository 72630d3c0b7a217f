"""Makes ``docs/display.png``: ``python tests/python/display_picture.py demo/events.fed``, after the demo.

The picture is an event with its hardest jet selected, as the page of the event display shows it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from browser import opened
from PIL import Image

import femtobarn as fb

CONTAINER, EVENT = "run1-prompt/tags", 98
COLOURS = 256
"""Colours of the picture: its file is half as large as one of all colours, and looks the same."""


def main() -> None:
    """Show the event in a browser, click on the hardest jet, and save the window."""
    target = Path(__file__).parents[2] / "docs" / "display.png"
    event = fb.open(sys.argv[1])[CONTAINER][EVENT]
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "browser") as page:
        page.open(Path(event.display().save(Path(folder) / "event.html")), width=1200, height=680)
        page.click_on("document.querySelector('#labels span')")
        page.value("0")
        page.picture(target)
    Image.open(target).convert("RGB").quantize(COLOURS).save(target, optimize=True)


if __name__ == "__main__":
    main()

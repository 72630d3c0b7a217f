"""A container that is looked into on the page of the catalogue, in a browser."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser import Page, opened
from server_settings import QUICK_STOP

import femtobarn as fb

__all__ = ["Looking", "looking_into"]

OPEN = """(() => {
  const listed = (_, it) => ArrayBuffer.isView(it) ? [...it] : it;
  return new Promise((resolve, reject) => {
    const worker = new Worker("pages/inside_worker.js", { type: "module" });
    window.look = (ask, more) => new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => {
        if (data.failed !== undefined) reject(new Error(data.failed));
        else if (data.told) resolve(JSON.stringify(data.told, listed));
      };
      worker.postMessage({ id: 1, ask, ...more });
    });
    window.look("open", %s).then(resolve, reject);
  });
})()"""


@dataclass
class Looking:
    """A served federation in a browser, and the container that is looked into."""

    federation: fb.Federation
    port: int
    page: Page
    container: str

    def open(self, file: str, container: str) -> Any:
        """Start the page's worker and return what it tells of a container; the page itself asks nothing."""
        self.page.open(f"http://127.0.0.1:{self.port}/catalogue")
        return json.loads(self.page.value(OPEN % json.dumps({"url": file, "container": container})))

    def ask(self, what: str, **more: object) -> Any:
        """Return what the worker answers."""
        return json.loads(self.page.value(f"window.look({json.dumps(what)}, {json.dumps(more)})"))

    def shown(self, **chosen: object) -> str:
        """Return what the page shows of the inside of the container."""
        chosen = {"container": self.container, "inside": "true", **chosen}
        self.page.open(f"http://127.0.0.1:{self.port}/catalogue?{urllib.parse.urlencode(chosen)}")
        is_shown = "document.getElementById('inside-facts').innerText.includes('Fetched')"
        failed = "document.getElementById('inside-error').innerText"
        wrong = "document.getElementById('inside-wrong').innerText"
        self.page.wait_for(f"{is_shown} || {failed} || {wrong}")
        text: str = self.page.value("document.getElementById('inside').innerText")
        return text


@contextmanager
def looking_into(federation: fb.Federation, folder: Path, container: str) -> Iterator[Looking]:
    """Serve a federation, and open a browser; skips the test without the program that reads files there."""
    with (
        fb.serve(federation.path, port=0, address="127.0.0.1", config=QUICK_STOP) as server,
        opened(folder / "browser") as page,
    ):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/pages/inside.wasm", timeout=30):
                pass
        except urllib.error.HTTPError as missing:
            missing.close()
            pytest.skip("the server was built without the target wasm32-unknown-unknown")
        yield Looking(federation, server.port, page, container)

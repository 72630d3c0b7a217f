"""A browser that tests drive by mouse and keyboard, as people do: its DevTools protocol, over pipes."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

__all__ = ["Page", "opened"]

STARTER = """
import fcntl, os, sys
# Not below 10, so that the first does not overwrite the second.
requests, answers = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(requests, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A program that becomes the browser, which reads requests from descriptor 3 and writes answers to 4."""

KEY_CODES = {"ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "Escape": 27}
KEY_TEXTS = {"Enter": "\r"}
"""The texts that named keys write, without which they trigger nothing."""

SECONDS_MAX = 60

WAIT = """new Promise((resolve, reject) => {
  const look = () => { const found = %s; if (found) resolve(found); return found; };
  if (look()) return;
  const all = { subtree: true, childList: true, characterData: true, attributes: true };
  new MutationObserver(look).observe(document, all);
  setTimeout(() => reject(new Error("it did not come: " + document.body.innerText)), %d);
})"""


class Page:
    """A page in a browser. What it logs, among it what its content security policy refused, is kept."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests, self._answers = requests, answers
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime"):
            self._ask(f"{domain}.enable")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        form: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            form["sessionId"] = self._session
        self._requests.write(json.dumps(form).encode() + b"\0")
        self._requests.flush()
        while (message := self._next()).get("id") != number:
            self._events.append(message)
        assert "error" not in message, message["error"]
        result: dict[str, Any] = message["result"]
        return result

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, page: Path | str, *, width: int = 1100, height: int = 720, is_dark: bool = True) -> None:
        """Show a file, or an address, in a window of a size, and wait until it is loaded."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self._ask("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._next())

    def value(self, expression: str) -> Any:
        """Return what JavaScript gives, after the page has drawn what changed."""
        drawn = "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        wrapped = f"(async () => {{ {drawn}; return {expression}; }})()"
        options = {"awaitPromise": True, "returnByValue": True}
        answer = self._ask("Runtime.evaluate", expression=wrapped, **options)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Return what JavaScript gives as soon as it counts as true; changes of the page make it be asked."""
        return self.value(WAIT % (expression, 1000 * SECONDS_MAX))

    def click(self, x: float, y: float) -> None:
        """Press and release the left button of the mouse at a place."""
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def click_on(self, element: str) -> None:
        """Click on the middle of an element, which an expression gives."""
        self.value(f"{element}.scrollIntoView({{ block: 'nearest' }})")
        self.click(*self.middle(element))

    def middle(self, element: str) -> tuple[float, float]:
        """Return the middle of an element in the window."""
        box = self.value(f"{element}.getBoundingClientRect().toJSON()")
        return box["left"] + box["width"] / 2, box["top"] + box["height"] / 2

    def press(self, key: str) -> None:
        """Press and release a key."""
        code = {} if len(key) == 1 else {"windowsVirtualKeyCode": KEY_CODES[key]}
        text = key if len(key) == 1 else KEY_TEXTS.get(key, "")
        self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, **code)
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def faults(self) -> list[str]:
        """Return the errors of the page: exceptions, and what was refused or could not be loaded."""
        self.value("0")
        logged = [event["params"] for event in self._events if event.get("method") == "Log.entryAdded"]
        thrown = [event for event in self._events if event.get("method") == "Runtime.exceptionThrown"]
        errors = [each["entry"]["text"] for each in logged if each["entry"]["level"] == "error"]
        return [*errors, *(json.dumps(each["params"]["exceptionDetails"]) for each in thrown)]

    def picture(self, file: Path) -> None:
        """Save what the window shows as a PNG file."""
        file.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def opened(folder: Path, *options: str) -> Iterator[Page]:
    """Start a browser with an empty profile, and end it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    from_us, requests = os.pipe()
    answers, to_us = os.pipe()
    command = [chromium, "--headless", "--no-sandbox", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
    command += ["--enable-unsafe-swiftshader", "--use-angle=swiftshader", "--hide-scrollbars", *options]
    starter = [sys.executable, "-c", STARTER, str(from_us), str(to_us)]
    with (
        os.fdopen(requests, "wb") as writer,
        os.fdopen(answers, "rb") as reader,
        subprocess.Popen(
            [*starter, *command], pass_fds=(from_us, to_us), stderr=subprocess.DEVNULL
        ) as process,
    ):
        os.close(from_us)
        os.close(to_us)
        try:
            yield Page(writer, reader)
        finally:
            process.terminate()

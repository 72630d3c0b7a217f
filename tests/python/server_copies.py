"""Several servers with copies of one federation, each behind a proxy that can fail in many ways."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import femtobarn as fb

__all__ = ["Copies", "Proxy"]

Mode = Literal["pass", "silent", "dripping", "cut"]


class Proxy:
    """Forwards connections to a port of this machine, as its mode says.

    ``silent`` forwards nothing and closes nothing; ``dripping`` forwards a byte of an answer at a time;
    ``cut`` closes all connections and refuses new ones. Each may begin in the middle of an answer.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.mode: Mode = "pass"
        self.next_mode: tuple[int, Mode] | None = None
        self.writers: set[asyncio.StreamWriter] = set()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.port = 0
        self._run(self._listen())

    def set(self, mode: Mode, after: int = 0) -> None:
        """Change the mode, once this many further bytes of answers were forwarded."""
        self._run(self._set(mode, after))

    def close(self) -> None:
        self.set("cut")
        self._run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(30)
        self.loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    async def _listen(self) -> None:
        self.listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        # Also tasks of connections that were accepted a moment ago, which begin further tasks.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.gather(*others, return_exceptions=True)

    async def _set(self, mode: Mode, after: int) -> None:
        if after > 0:
            self.next_mode = (after, mode)
            return
        before, self.mode, self.next_mode = self.mode, mode, None
        if mode == "cut" and before != "cut":
            # A connection that was accepted, but not begun, when its listener is closed stays open for ever.
            for each in self.listener.sockets:
                self.loop.remove_reader(each.fileno())
            await asyncio.sleep(0)
            self.listener.close()
            for writer in list(self.writers):
                writer.transport.abort()
        elif mode != "cut" and before == "cut":
            await self._listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, target[1]}
        self.writers |= both
        if self.mode == "cut":
            for each in both:
                each.transport.abort()
        answers = asyncio.ensure_future(self._forward(target[0], writer, self._take_answer))
        await self._forward(reader, target[1], self._take_request)
        await answers
        self.writers -= both

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        take: Callable[[asyncio.StreamReader], Coroutine[Any, Any, bytes]],
    ) -> None:
        try:
            while part := await take(reader):
                while self.mode == "silent":
                    await asyncio.sleep(0.01)
                writer.write(part)
                await writer.drain()
        except OSError:
            pass
        writer.transport.abort()

    async def _take_request(self, reader: asyncio.StreamReader) -> bytes:
        return await reader.read(1 << 16)

    async def _take_answer(self, reader: asyncio.StreamReader) -> bytes:
        if self.mode == "dripping":
            await asyncio.sleep(0.1)
            return await reader.read(1)
        part = await reader.read(1 << 13)
        if self.next_mode is not None:
            bytes_left, mode = self.next_mode
            self.next_mode = (bytes_left - len(part), mode)
            if bytes_left <= len(part):
                await self._set(mode, 0)
                if mode == "cut":
                    raise ConnectionAbortedError
        return part


class Copies:
    """A federation with copies in other folders, each served through a proxy."""

    def __init__(self, folder: Path, count: int, fill: Callable[[Path], fb.Federation]) -> None:
        self.folders = [folder / f"site{number}" / "lhc.fed" for number in range(count)]
        self.folders[0].parent.mkdir(parents=True)
        fill(self.folders[0]).close()
        self.servers: list[fb.Server | None] = [None] * count
        self.proxies: list[Proxy] = []
        for number in range(count):
            if number > 0:
                shutil.copytree(self.folders[0], self.folders[number])
            self.start(number)

    def start(self, number: int, setting: str = "") -> None:
        """Start the server of a copy, with a setting of its export; the proxy then forwards to it."""
        folder = self.folders[number]
        config = folder.parent / "server.toml"
        config.write_text(f"[[export]]\nfolder = {json.dumps(str(folder))}\n{setting}\n")
        server = fb.serve(port=0, address="127.0.0.1", anonymous="all", config=config)
        self.servers[number] = server
        if number == len(self.proxies):
            self.proxies.append(Proxy(server.port))
        self.proxies[number].target = server.port

    def stop(self, number: int) -> None:
        server = self.servers[number]
        if server is not None:
            server.stop()
        self.servers[number] = None

    def copy_again(self, number: int) -> None:
        """Bring a copy to the state of the first, as a site does that copies at night."""
        self.stop(number)
        shutil.rmtree(self.folders[number])
        shutil.copytree(self.folders[0], self.folders[number])
        self.start(number)

    @property
    def urls(self) -> list[str]:
        return [f"root://127.0.0.1:{proxy.port}//lhc.fed" for proxy in self.proxies]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for proxy in self.proxies:
            proxy.close()
        for number in range(len(self.servers)):
            self.stop(number)

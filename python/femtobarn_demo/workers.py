"""Concurrent worker processes, timed from the moment when all of them are ready.

Workers start Python, load libraries and prepare, which takes seconds without using the database. Then they
meet at a barrier, and the clock starts.
"""

from __future__ import annotations

import multiprocessing
import queue
import resource
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Any

from tqdm import tqdm

__all__ = ["WorkResult", "cpu_seconds", "run_workers"]

WAIT_SECONDS = 300.0
"""Longest wait for the slowest worker to be ready."""

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class WorkResult:
    """The results of all workers, in order, with their elapsed and CPU time."""

    results: list[Any]
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class _Finished:
    """The last message of a worker: its result, or an error."""

    number: int
    result: Any
    cpu_seconds: float
    error: str


def cpu_seconds() -> float:
    """CPU time that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run_workers(
    prepare: Callable[..., Callable[[Callable[[int], None]], Any]],
    arguments: list[tuple[Any, ...]],
    *,
    total: int,
    label: str,
    progress: bool,
) -> WorkResult:
    """Run one process for each tuple of arguments.

    Parameters
    ----------
    prepare
        Called in the process with its arguments; returns a function that does the work. When all workers
        are ready that function is called with a function to report progress to, and returns the result.
    total
        Events of all workers together, for the progress bar.

    Raises
    ------
    RuntimeError
        If a worker fails; the text has its traceback.
    """
    context = multiprocessing.get_context("spawn")
    barrier, messages = context.Barrier(len(arguments) + 1), context.Queue()
    processes: list[BaseProcess] = [
        context.Process(target=_worker, args=(number, prepare, each, barrier, messages))
        for number, each in enumerate(arguments)
    ]
    for process in processes:
        process.start()
    try:
        return _collect(processes, barrier, messages, total=total, label=label, progress=progress)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _worker(number: int, prepare: Any, arguments: tuple[Any, ...], barrier: Barrier, messages: Any) -> None:
    """Prepare, wait for all others, work, and send the result or the error."""
    try:
        work = prepare(*arguments)
        barrier.wait(WAIT_SECONDS)
        before = cpu_seconds()
        result = work(messages.put)
        messages.put(_Finished(number, result, cpu_seconds() - before, ""))
    except BaseException:
        barrier.abort()
        messages.put(_Finished(number, None, 0.0, traceback.format_exc()))


def _collect(
    processes: list[BaseProcess], barrier: Barrier, messages: Any, *, total: int, label: str, progress: bool
) -> WorkResult:
    """Start the clock, and collect progress and results until all workers have ended."""
    finished: dict[int, _Finished] = {}
    # A worker that fails breaks the barrier; its message has the reason.
    with suppress(BrokenBarrierError):
        barrier.wait(WAIT_SECONDS)
    started = time.perf_counter()
    with tqdm(total=total, desc=label, unit="event", disable=not progress, leave=False) as bar:
        while len(finished) < len(processes):
            message = _next(processes, messages)
            if isinstance(message, _Finished):
                finished[message.number] = message
                _raise_failure(message)
            else:
                bar.update(message)
    seconds = time.perf_counter() - started
    ordered = [finished[number] for number in sorted(finished)]
    return WorkResult([each.result for each in ordered], seconds, sum(each.cpu_seconds for each in ordered))


def _next(processes: list[BaseProcess], messages: Any) -> Any:
    """The next message, or an error if a worker has died without one."""
    while True:
        try:
            return messages.get(timeout=POLL_SECONDS)
        except queue.Empty:
            dead = [process for process in processes if process.exitcode not in (None, 0)]
            if dead:
                raise RuntimeError(f"a worker died with exit code {dead[0].exitcode}") from None


def _raise_failure(message: _Finished) -> None:
    if message.error and "BrokenBarrierError" not in message.error.splitlines()[-1]:
        raise RuntimeError(f"worker {message.number} failed:\n{message.error}")

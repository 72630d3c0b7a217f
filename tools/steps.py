"""Runs the steps of a Makefile target, one line each with the time taken, and a summary at the end.

Rules:
1. A step's output goes to `.cache/log/<step>.log`; it is shown only where the step fails.
2. The first failure ends the run, except on the integration machine (CI=true), which tells all failures.
3. A step whose tools or sources are absent is skipped with one line that says why; on the integration
   machine that is a failure, so that nothing is left out unnoticed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import environment
from environment import BIN, CACHE, PYTHON, ROOT

LOGS = CACHE / "log"
INTEGRATION = os.environ.get("CI", "").lower() == "true"
FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "20"))
FUZZ_SECONDS_LONG = 600
SHOWN_LINES_MAX = 80
BINDING = Path("crates/femtobarn-python/Cargo.toml")


@dataclass(frozen=True)
class Step:
    """One command, the extra environment it runs in, and what has to be there for it."""

    name: str
    action: list[str] | Callable[[], None]
    settings: dict[str, str] = field(default_factory=dict)
    needs: tuple[Path, ...] = ()
    tools: tuple[str, ...] = ()

    def absent(self) -> str | None:
        """The reason why this step cannot run here, if there is one."""
        for tool in self.tools:
            if shutil.which(tool) is None:
                return f"{tool} is not installed"
        for path in self.needs:
            if not (ROOT / path).exists():
                return f"{path} does not exist"
        return None


def main(arguments: list[str]) -> int:
    """Run one target by name."""
    target = arguments[0] if arguments else "help"
    if target not in TARGETS:
        print(f"no target {target!r}; there are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    return Run().all(TARGETS[target]())


class Run:
    """The steps done so far: their outcome, their time and the tests they counted."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.skipped: list[str] = []
        self.tests = {"passed": 0, "failed": 0, "skipped": 0}
        self.started = time.monotonic()
        LOGS.mkdir(parents=True, exist_ok=True)

    def all(self, steps: Iterator[Step]) -> int:
        """Run the steps in order, print the summary, return the exit code."""
        for step in steps:
            if not self.one(step) and not INTEGRATION:
                break
        self.summary()
        return 1 if self.failed else 0

    def one(self, step: Step) -> bool:
        """Run one step; false if it failed."""
        reason = step.absent()
        if reason:
            return self.skip(step, reason)
        if sys.stdout.isatty():
            print(f"  ....  {step.name}", end="\r", flush=True)
        started = time.monotonic()
        log = LOGS / f"{step.name.replace(' ', '-')}.log"
        with log.open("w") as output:
            good = perform(step, output.fileno())
        text = log.read_text(errors="replace")
        self.count(text)
        print(
            f"  {'ok  ' if good else 'FAIL'}  {step.name:<24}{time.monotonic() - started:8.1f} s", flush=True
        )
        for line in re.findall(r"^proof: (.*)$", text, re.MULTILINE):
            print(f"          {line}", flush=True)
        if not good:
            self.failed.append(step.name)
            lines = text.splitlines()
            shown = lines if INTEGRATION else lines[-SHOWN_LINES_MAX:]
            print("\n".join(f"        {line}" for line in shown))
            print(f"        (all of it: {log.relative_to(ROOT)})", flush=True)
        return good

    def skip(self, step: Step, reason: str) -> bool:
        """Say why a step is left out; that is a failure on the integration machine."""
        print(f"  skip  {step.name:<24}{reason}", flush=True)
        (self.failed if INTEGRATION else self.skipped).append(step.name)
        return not INTEGRATION

    def count(self, text: str) -> None:
        """Add up the closing lines of cargo test and pytest."""
        for passed, failed in re.findall(
            r"^test result: .*? (\d+) passed; (\d+) failed;", text, re.MULTILINE
        ):
            self.tests["passed"] += int(passed)
            self.tests["failed"] += int(failed)
        closing = re.findall(r"^=+ (.* in [\d.]+s.*) =+$", text, re.MULTILINE)
        for number, word in re.findall(
            r"(\d+) (passed|failed|skipped|error)", closing[-1] if closing else ""
        ):
            self.tests["failed" if word == "error" else word] += int(number)

    def summary(self) -> None:
        """The closing lines: what failed, what was left out, how many tests ran, and the time."""
        if self.skipped:
            print(f"left out: {', '.join(self.skipped)}")
        if self.failed:
            print(f"failed: {', '.join(self.failed)}")
        print(f"{'FAILED' if self.failed else 'done'} after {time.monotonic() - self.started:.0f} s")
        if any(self.tests.values()):
            print(", ".join(f"{number} {word}" for word, number in self.tests.items()), flush=True)


def perform(step: Step, output: int) -> bool:
    """Run the step's command, or its function in a child of this process, with its output in the log."""
    surroundings = {**os.environ, **step.settings, "VIRTUAL_ENV": str(environment.ENVIRONMENT)}
    surroundings["PATH"] = os.pathsep.join([str(BIN), str(CACHE / "tools" / "bin"), os.environ["PATH"]])
    if callable(step.action):
        command = [sys.executable, "-c", f"import environment; environment.{step.action.__name__}()"]
        surroundings["PYTHONPATH"] = str(ROOT / "tools")
    else:
        command = step.action
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        check=False,
    )
    return done.returncode == 0


# ---- the steps


def install(*groups: str) -> Step:
    """Install packages into `.venv`."""
    return Step("install", [sys.executable, "tools/environment.py", *groups])


def install_programs() -> Step:
    """Install the programs of Debian's that judge ours, if they are not there."""
    return Step("install programs", environment.prepare_programs)


def build() -> Step:
    """Build the extension module in place, optimised, and register the package in `.venv`."""
    command = ["maturin", "develop", "--release", "--locked", "--quiet"]
    return Step("build extension", command, needs=(BINDING,), tools=("cargo",))


def format_checks() -> Iterator[Step]:
    """The formatting of both languages."""
    yield Step("format of Rust", ["cargo", "fmt", "--all", "--check"], tools=("cargo",))
    yield Step("format of Python", ["ruff", "format", "--check", "--quiet", "."])


def lint_rust() -> Step:
    """Clippy over all code, tests and examples included."""
    return Step(
        "clippy",
        ["cargo", "clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
        tools=("cargo",),
    )


def lint_python() -> Iterator[Step]:
    """Ruff, mypy in strict mode, and the stubs against the extension module."""
    yield Step("ruff", ["ruff", "check", "--quiet", "."])
    yield Step("mypy", [str(PYTHON), "-m", "mypy"])
    stub = Path("python/femtobarn/_femtobarn.pyi")
    command = [
        str(PYTHON),
        "-m",
        "mypy.stubtest",
        "--mypy-config-file",
        "pyproject.toml",
        "femtobarn._femtobarn",
    ]
    yield Step("stubs", command, needs=(stub,), settings={"MYPYPATH": "python"})


def rust_docs() -> Step:
    """The reference of the crates, without a single broken link."""
    command = ["cargo", "doc", "--workspace", "--no-deps", "--locked", "--quiet"]
    return Step("docs", command, settings={"RUSTDOCFLAGS": "-D warnings"}, tools=("cargo",))


def rust_tests(*arguments: str, **settings: str) -> Step:
    """All tests of the crates, examples in the documentation included."""
    return Step(
        "tests of Rust",
        ["cargo", "test", "--workspace", "--locked", "--no-fail-fast", *arguments],
        {"XRD_TEST_PYTHON": str(PYTHON), **real_server(), **settings},
        tools=("cargo",),
    )


def real_server() -> dict[str, str]:
    """The XRootD server that the client is tested against, if this machine has one."""
    program = shutil.which("xrootd")
    return {"XRD_TEST_XROOTD": program} if program else {}


def python_tests(*arguments: str) -> Step:
    """All tests through the Python package."""
    return Step("tests of Python", [str(PYTHON), "-m", "pytest", *arguments], needs=(Path("tests/python"),))


def fuzz(seconds: int, with_server: bool = True) -> Iterator[Step]:
    """Every fuzz target for some seconds, from the kept corpus; new inputs go to `.cache/fuzz`.

    That of the server, `sessions`, takes many minutes to build.

    The sanitiser flags are unstable, and the stable compiler takes them with RUSTC_BOOTSTRAP, so that what is
    fuzzed is built by the compiler that builds everything else.
    """
    settings = {"RUSTC_BOOTSTRAP": "1"}
    yield Step("install cargo-fuzz", environment.prepare_cargo_fuzz, tools=("cargo",))
    for folder in sorted([*ROOT.glob("fuzz"), *ROOT.glob("crates/*/fuzz")]):
        place = str(folder.relative_to(ROOT))
        options = ["--fuzz-dir", place, *(["--features", "server"] if with_server else [])]
        yield Step("build fuzz targets", ["cargo", "fuzz", "build", *options], settings, tools=("cargo",))
        for source in sorted(folder.glob("fuzz_targets/*.rs")):
            if source.stem == "sessions" and not with_server:
                continue
            found = CACHE / "fuzz" / source.stem
            found.mkdir(parents=True, exist_ok=True)
            kept = folder / "corpus" / source.stem
            command = ["cargo", "fuzz", "run", *options, source.stem, str(found)]
            command += [str(kept)] if kept.exists() else []
            limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=3072"]
            yield Step(f"fuzz {source.stem}", [*command, "--", *limits], settings)


# ---- the targets


def target_setup() -> Iterator[Step]:
    """Everything a developer needs."""
    yield install("demo", "test", "judge")
    yield build()


def target_test() -> Iterator[Step]:
    """What has to pass before anything lands."""
    yield install("demo", "test", "judge")
    yield install_programs()
    yield from format_checks()
    yield lint_rust()
    yield rust_tests("--quiet")
    yield rust_docs()
    yield build()
    yield from lint_python()
    yield python_tests("-m", "not long")
    yield from fuzz(FUZZ_SECONDS, with_server=False)


def target_test_long() -> Iterator[Step]:
    """The tests that take minutes, more random cases, and long fuzzing."""
    yield install("demo", "test", "judge")
    yield install_programs()
    yield rust_tests("--quiet", "--release", "--", "--include-ignored", PROPTEST_CASES="4096")
    yield build()
    yield python_tests()
    yield from fuzz(FUZZ_SECONDS_LONG)


def target_lint() -> Iterator[Step]:
    """Formatting and static checks."""
    yield install("demo", "test")
    yield from format_checks()
    yield lint_rust()
    yield build()
    yield from lint_python()


def target_fmt() -> Iterator[Step]:
    """Format all code."""
    yield install("demo", "test")
    yield Step("format Rust", ["cargo", "fmt", "--all"], tools=("cargo",))
    yield Step("format Python", ["ruff", "format", "--quiet", "."])
    yield Step("mend Python", ["ruff", "check", "--quiet", "--fix-only", "."])


def target_docs() -> Iterator[Step]:
    """The reference of the crates."""
    yield rust_docs()


def target_fuzz() -> Iterator[Step]:
    """Fuzz every target for FUZZ_SECONDS each."""
    yield from fuzz(FUZZ_SECONDS)


def target_bench() -> Iterator[Step]:
    """What benches/run.py needs."""
    yield install("bench", "judge")
    yield install_programs()
    yield build()


def target_build() -> Iterator[Step]:
    """What a user needs to run the demo."""
    yield install("demo")
    yield build()


TARGETS: dict[str, Callable[[], Iterator[Step]]] = {
    name.removeprefix("target_").replace("_", "-"): function
    for name, function in list(globals().items())
    if name.startswith("target_")
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Machines of a network of their own, which can be cut off from it: network namespaces at a switch."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

__all__ = ["Machine", "network"]

NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Machine:
    """A machine with an address; its files are those of all others."""

    name: str
    address: str
    switch: str
    port: str

    @property
    def here(self) -> tuple[str, ...]:
        """The prefix of a command that runs in this network."""
        return ("ip", "netns", "exec", self.name)

    def cut_off(self) -> None:
        """Let no packet arrive or leave. Nobody is told: connections stay open."""
        ip("-n", self.switch, "link", "set", self.port, "down")

    def come_back(self) -> None:
        ip("-n", self.switch, "link", "set", self.port, "up")


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@contextmanager
def network(*names: str) -> Iterator[tuple[Machine, ...]]:
    """Machines that reach each other, and nothing else."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("networks are made by the superuser with the program ip")
    mark = f"fb{os.getpid()}-{next(NUMBERS)}"
    switch = f"{mark}-switch"
    machines = tuple(
        Machine(f"{mark}-{name}", f"10.99.0.{number}", switch, f"p{number}")
        for number, name in enumerate(names, 1)
    )
    made = []
    try:
        for name in (switch, *(machine.name for machine in machines)):
            ip("netns", "add", name)
            made.append(name)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for machine in machines:
            attach(machine)
        yield machines
    finally:
        for name in made:
            ip("netns", "del", name)


def attach(machine: Machine) -> None:
    """Connect a machine to the switch."""
    ends = ("eth0", "type", "veth", "peer", "name", machine.port, "netns", machine.switch)
    ip("-n", machine.name, "link", "add", *ends)
    ip("-n", machine.switch, "link", "set", machine.port, "master", "bridge", "up")
    ip("-n", machine.name, "address", "add", f"{machine.address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        ip("-n", machine.name, "link", "set", device, "up")

"""Settings of the servers of tests."""

from __future__ import annotations

from pathlib import Path

__all__ = ["QUICK_STOP"]

QUICK_STOP = Path(__file__).with_name("quick_stop.toml")
"""The server stops without waiting until there is no traffic, and passes its files to no client."""

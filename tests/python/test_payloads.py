"""Payloads: opaque bytes as conditions, with a hash that is checked when they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

import femtobarn as fb


def test_payload_keeps_bytes_and_refuses_damage(fed: fb.Federation, tmp_path: Path) -> None:
    file = tmp_path / "map.root"
    file.write_bytes(bytes(range(256)))
    with fed.transaction() as txn:
        maps = txn.series("tpc/map", fb.Payload, create=True)
        maps.put(fb.Payload.from_file(file), since=0, until=10)
        maps.put(fb.Payload(data=b"abc", sha256="0" * 64), since=10)
    found = fed.conditions()["tpc/map"].at(5)
    assert (found.name, found.media_type) == ("map.root", "application/x-root")
    assert fb.payload_bytes(found) == bytes(range(256))
    with pytest.raises(fb.CorruptError, match="its SHA-256 is ba78"):
        fb.payload_bytes(fed.conditions()["tpc/map"].at(10))
    with pytest.raises(fb.WrongTypeError, match="neither a payload"):
        fb.payload_bytes(7)
    with pytest.raises(fb.WrongTypeError, match="not from str"):
        fb.Payload.from_bytes("text")  # type: ignore[arg-type]

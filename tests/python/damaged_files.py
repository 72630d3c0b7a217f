"""Containers with damage in some clusters: reading these clusters fails."""

from __future__ import annotations

from pathlib import Path

import femtobarn as fb

__all__ = ["damaged"]

MARKER = 0x1BADB002_00000000


def damaged(folder: Path) -> fb.Federation:
    """A federation with the container ``d/marked``, whose 2,000 objects are in many clusters.

    Its objects are ``{number, marker: uint64}``, both counted up; `marker` of the first cluster is damaged.
    """
    fields = [{"name": "number", "type": "uint64"}, {"name": "marker", "type": "uint64"}]
    fed = fb.create(folder / "damaged.fed")
    with fed.transaction() as txn:
        container = txn.database("d", create=True).container(
            "marked",
            {"name": "Marked", "fields": fields},
            create=True,
            page_size=4096,
            cluster_size=4096,
            compression="none",
        )
        container.extend({"number": range(2000), "marker": [MARKER + number for number in range(2000)]})
    path = Path(fed.databases()[0]["path"])
    content, wanted = bytearray(path.read_bytes()), (MARKER + 7).to_bytes(8, "little")
    assert content.count(wanted) == 1
    content[content.index(wanted)] ^= 1
    path.write_bytes(content)
    fed.close()
    return fb.open(folder / "damaged.fed")

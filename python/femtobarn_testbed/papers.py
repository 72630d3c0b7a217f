"""The papers' measurements: only points that the papers state, each with its source.

[SCAL]: J. Bunn, K. Holtman, H. Newman, Object database scalability for scientific workloads, 1999.
[EXEMPLAR]: the first test of this kind, April 1998. [MONARC]: K. Holtman, CPU requirements for 100 MB/s
writing, MONARC note 2/98. [BABAR]: J. Becla, A. Hanushevsky, Creating large scale database servers, 2000.
[STAR]: D. Arkhipkin et al., Load balancing and tiered storage for ultimate database access, 2011.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MONARC_RANGES", "STAR_FACTOR", "STAR_READS", "Paper", "Point", "paper_of"]


@dataclass(frozen=True)
class Point:
    """A number that a paper states."""

    quantity: str
    """``"efficiency"``, ``"transaction"`` and ``"first_object"`` (s), or the name of a rate of a run."""
    value: float
    label: str
    """Conditions of the measurement, in a few words."""
    clients: int | None = None
    """Number of clients, or the number of one client; None if the paper does not state it."""


@dataclass(frozen=True)
class Paper:
    """A figure or table of a paper."""

    name: str
    """Beginning of the text ``paper`` of the workloads that repeat it."""
    summary: str
    """Result in words, with the hardware."""
    points: tuple[Point, ...] = ()
    bends: tuple[tuple[int, str], ...] = ()
    """Bends of curves: number of clients, and the curve."""


EXEMPLAR = "HP Exemplar, 256 CPUs"

PAPERS = (
    Paper(
        "[SCAL] Figure 2",
        f"1999, {EXEMPLAR}, 4 file systems of 22 MB/s: nearly linear to 240 clients with 47 MB/s and 42 "
        "events/s; 91 % of the CPU in physics at few clients, 83 % at 240. With half the computation "
        "disk-bound from 160 clients, at best 55 MB/s, 63 % of the raw rate.",
        (
            Point("bytes_per_second", 47e6, "full computation", 240),
            Point("events_per_second", 42.0, "full computation", 240),
            Point("efficiency", 0.83, "full computation", 240),
            Point("bytes_per_second", 55e6, "half computation", 160),
        ),
    ),
    Paper(
        "[SCAL] Figure 3",
        f"1999, {EXEMPLAR}, 2 file systems of 22 MB/s, prefetch buffers of 4 MB: without read-ahead, "
        "disk-bound at 64 clients, and half the top rate.",
        bends=((64, "no read-ahead"),),
    ),
    Paper(
        "[EXEMPLAR]",
        "1998, prefetch buffers of 2 MB: nearly linear to 150 processes with 30 MB/s; without read-ahead, at "
        "best 15 MB/s.",
        (
            Point("bytes_per_second", 30e6, "read-ahead", 150),
            Point("bytes_per_second", 15e6, "no read-ahead"),
        ),
    ),
    Paper(
        "[SCAL] Figure 4",
        f"1999, {EXEMPLAR}, 8 file systems of 22 MB/s: CPU-bound, then disk-bound; best 145 MB/s with 144 "
        "clients, 82 % of the raw rate.",
        (Point("bytes_per_second", 145e6, "best", 144),),
    ),
    Paper(
        "[SCAL] Figure 5",
        f"1999, {EXEMPLAR}, batches of 16: client 240 needed about 20 s until its first transaction and had "
        "its first object after about 60 s; client 241, started alone, needed 5 s.",
        (
            Point("transaction", 20.0, "client 240", 240),
            Point("first_object", 60.0, "client 240", 240),
        ),
    ),
    Paper(
        "[SCAL] Figure 8",
        f"1999, {EXEMPLAR}, 15 file systems, events of 260 KB: six containers with links at best 154 MB/s "
        "with 30 clients, one container without links 172 MB/s with 45.",
        (
            Point("bytes_per_second", 154e6, "6 containers, links", 30),
            Point("bytes_per_second", 172e6, "1 container", 45),
        ),
    ),
    Paper(
        "[SCAL], 18 pairs a minute",
        f"1999, {EXEMPLAR}, remote catalogue: about 18 databases a minute deleted and created, whatever the "
        "number of clients.",
        (Point("pairs_per_second", 18 / 60, "18 a minute"),),
    ),
    Paper(
        "[BABAR], tag selection",
        "2000, hundreds of nodes: analysis with tags went from 35 to 2,000 events/s.",
    ),
    Paper(
        "[BABAR], more than 200 clients",
        "2000: prompt reconstruction went from 8 to 130 events/s, from 50 to over 200 nodes; the "
        "single-threaded lock server was saturated above 200 clients.",
    ),
    Paper(
        "[BABAR], randomised transactions",
        "2000: clients that start together commit together, so transactions were given random lengths, "
        "50 % more or less.",
    ),
    Paper(
        "[BABAR], federations by purpose",
        "2000: acquisition, prompt reconstruction and analysis had federations and servers of their own.",
    ),
    Paper(
        "[STAR] Figures 5 to 7",
        "2011: an SSD made 24,000 random reads of 4 KB a second and a disk 500, in order they read 190 and "
        "90 MB/s; an SSD and memory were alike in a benchmark, at the limit of the CPU, and real jobs gained "
        "moderately.",
    ),
    Paper(
        "[STAR]",
        "2011: sparse selections make look-ups nearly random in time, so that caches miss and jobs wait. "
        "Caches of intervals, jobs in the order of time, load balancing and tiered storage: 5 times faster.",
    ),
    Paper(
        "[MONARC]",
        "1998: CPU time to write depends strongly on the size of objects and on links, hardly on the number "
        "of writers; MB/s of payload by one CPU: 1.5 to 2.2 with objects of 100 B, 3.2 to 4.5 with 1 KB, "
        "3.7 to 5.2 with 4 KB, 4.3 to 5.5 with 8 KB.",
    ),
)

STAR_READS: Mapping[str, float] = {"disk": 500.0, "SSD": 24_000.0}
"""[STAR]: random reads of 4 KB per second."""

STAR_FACTOR = 5.0
"""[STAR]: how much less time jobs spent in database code, in all."""

MONARC_RANGES: Mapping[int, tuple[float, float]] = {
    100: (1.5e6, 2.2e6),
    1_000: (3.2e6, 4.5e6),
    4_000: (3.7e6, 5.2e6),
    8_000: (4.3e6, 5.5e6),
}
"""[MONARC]: lowest and highest payload per CPU second (B/s), by the size of objects (B)."""


def paper_of(run: Mapping[str, Any]) -> Paper | None:
    """Return the figure or table that a run repeats, or None.

    Examples
    --------
    >>> paper_of({"paper": "[SCAL] Figure 4"}).points[0].clients
    144
    >>> paper_of({"paper": ""})
    """
    name = str(run.get("paper") or "")
    fitting = [paper for paper in PAPERS if name.startswith(paper.name)]
    return max(fitting, key=lambda paper: len(paper.name), default=None)

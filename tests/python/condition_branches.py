"""Conditions of which some are on a branch."""

from __future__ import annotations

import femtobarn as fb


@fb.persistent
class Gain:
    value: fb.float64


def with_branch(fed: fb.Federation) -> fb.Federation:
    """Put gains of two channels, and make the frozen tag `prod` of them and the branch `mc` of that."""
    with fed.transaction(message="first") as txn:
        series = txn.series("tpc/gain", Gain, create=True)
        series.put(Gain(value=1.0), since=0, until=100)
        series.put(Gain(value=5.0), since=0, until=100, channel=3)
        txn.series("tpc/hv", Gain, create=True).put(Gain(value=1350.0), since=0)
    fed.conditions.create_tag("prod", state="frozen")
    fed.conditions.create_tag("mc", copy_of="prod", branch=True, message="jets")
    return fed


def put(fed: fb.Federation, value: float, since: int, until: int, branch: str | None = None) -> None:
    with fed.transaction() as txn:
        txn.series("tpc/gain", branch=branch).put(Gain(value=value), since=since, until=until)


def values(fed: fb.Federation, tag: str | None, *moments: int, csn: int | None = None) -> list[float | None]:
    found = fed.conditions(tag, csn=csn)["tpc/gain"].at(list(moments)).to_list()
    return [row and row["value"] for row in found]

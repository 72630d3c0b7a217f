"""Runs a data frame of ROOT over an RNTuple at a URL, distributed by Dask; prints what it finds as JSON.

python root_distributed.py URL NTUPLE FIELD
"""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Count the entries and sum a field, in three ranges of entries, in another process."""
    import ROOT
    from distributed import Client, LocalCluster

    url, ntuple, field = sys.argv[1:]
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        frame = ROOT.RDataFrame(ntuple, url, executor=client, npartitions=3)
        count, total = frame.Count(), frame.Sum(field)
        report = {"class": type(frame).__module__, "count": count.GetValue(), "sum": total.GetValue()}
    print()
    print(json.dumps(report))
    sys.stdout.flush()
    # At exit XRootD's client may be destroyed before ROOT closes its last remote file.
    os._exit(0)


if __name__ == "__main__":
    main()

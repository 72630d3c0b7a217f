"""The chapters of the benchmarks, in the order of the report; framework.py describes their contents."""

NAMES = (
    "monarc",
    "sequential",
    "random",
    "commits",
    "transfers",
    "selection",
    "growth",
    "conditions",
    "python",
    "serving",
    "redirects",
    "caching",
    "hints",
    "stores",
    "replication",
    "locking",
    "remote",
    "postgres",
    "sites",
    "computing",
)

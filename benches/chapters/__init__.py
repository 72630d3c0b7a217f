"""The chapters of the benchmarks; framework.py says what one holds."""

NAMES = (
    "monarc",
    "sequential",
    "random",
    "commits",
    "selection",
    "growth",
    "python",
    "serving",
    "locking",
    "remote",
)

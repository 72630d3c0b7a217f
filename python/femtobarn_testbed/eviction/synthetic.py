"""Synthetic traces: the reads of a site that keeps the runs of an experiment, by a model.

A dataset is a number of files that are read together, in order [Iamnitchi 2009]. Its popularity is Zipf-like,
and highest when it is new: a few datasets are read much more often than others, and which these are changes
[Bellavita 2024]. Users read their sets again and again over weeks, a campaign reads an old run period once
from beginning to end, some datasets are read once by chance, and calibration files are read every day. Of the
files that were read at CERN within eleven months, 56 % were read once and 80 % at most twice, and the number
of files read more than n times falls as n to the power of -1.1 up to 30, and of -0.65 above (the data of
[Purandare 2022]).

[Bellavita 2024] J. Bellavita et al., Understanding data access patterns for dCache system. [Iamnitchi 2009]
A. Iamnitchi et al., Workload characterization in a high-energy data grid. [Purandare 2022] D. Purandare et
al., Analysis and workload characterization of the CERN EOS storage system.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .traces import Trace, trace_of

__all__ = ["Site", "make_trace"]

DAY = 86_400.0
FILE_SECONDS = 300.0
"""Mean time between the files of a pass, and of a dataset that is written."""

OPENS_WITHIN_SECONDS = 3_600.0
"""The time within which the jobs of a pass open the same file."""

Times = NDArray[np.float64]
Files = NDArray[np.int64]


@dataclass(frozen=True)
class Site:
    """The parameters of the model. *Spread* is the standard deviation of a logarithm. Means are Poisson's."""

    days: float
    """Length of the trace."""
    older_days: float
    """Time before it in which datasets were written, too."""
    datasets_per_day: float
    files: float
    """Median of a dataset."""
    files_spread: float
    file_bytes: float
    """Median."""
    file_bytes_spread: float
    popularity_exponent: float
    """The dataset of rank r is read in proportion to r to the power of minus this."""
    fresh_passes: float
    """Mean number of passes over a dataset because it is new."""
    fresh_days: float
    """Age before which half of them come; the rate falls as (1 + age / fresh_days) to the power of -2."""
    sets_per_day: float
    """New sets of users; a set is half of the files of a dataset, chosen by popularity whatever its age."""
    set_passes: float
    """Mean number of times that a set is read, at least once; geometric."""
    set_gap_days: float
    """Mean time between them; exponential."""
    campaign_every_days: float
    """0: no campaigns."""
    campaign_run_days: float
    """Length of the run period that a campaign reads."""
    campaign_age_days: float
    """Least age of that period's end."""
    campaign_days: float
    """Duration of a campaign."""
    chance_passes_per_day: float
    """Passes over any dataset, by chance."""
    calibration_files: float
    calibration_bytes: float
    """Of each of them."""
    calibration_reads_per_day: float
    """Of each of them."""
    opens: float
    """Mean number of times that a pass opens a file, at least once: jobs that share a file."""


@dataclass(frozen=True)
class _Dataset:
    created: float
    files: Files
    weight: float
    """Popularity; the mean is 1."""

    @property
    def complete(self) -> float:
        """The time (s) at which its last file is there."""
        return self.created + FILE_SECONDS * len(self.files)


class _Accesses:
    """Accesses as they are made up, in any order."""

    def __init__(self, site: Site, random: np.random.Generator) -> None:
        self.site, self.random = site, random
        self.times: list[Times] = []
        self.files: list[Files] = []
        self.is_write: list[NDArray[np.bool_]] = []

    def write(self, times: Times, files: Files) -> None:
        self._add(times, files, is_write=True)

    def read(self, times: Times, files: Files) -> None:
        """Each file is opened by one or several jobs."""
        self._add(times, files, is_write=False)
        again = np.repeat(np.arange(len(files)), self.random.poisson(self.site.opens - 1.0, len(files)))
        later = self.random.uniform(0.0, OPENS_WITHIN_SECONDS, len(again))
        self._add(times[again] + later, files[again], is_write=False)

    def read_in_order(self, start: float, files: Files, seconds: float = FILE_SECONDS) -> None:
        """A pass: one file after the other, with a mean time between them."""
        self.read(start + np.cumsum(self.random.exponential(seconds, len(files))), files)

    def _add(self, times: Times, files: Files, *, is_write: bool) -> None:
        is_within = (times >= 0.0) & (times < self.site.days * DAY)
        self.times.append(times[is_within])
        self.files.append(files[is_within])
        self.is_write.append(np.full(int(is_within.sum()), is_write))


def make_trace(site: Site, seed: int) -> Trace:
    """Return a trace of the model; the same seed gives the same trace."""
    random = np.random.default_rng(seed)
    datasets, sizes = _datasets(site, random)
    accesses = _Accesses(site, random)
    for dataset in datasets:
        steps = FILE_SECONDS * np.arange(len(dataset.files), dtype=np.float64)
        accesses.write(dataset.created + steps, dataset.files)
    _fresh(accesses, datasets)
    _sets(accesses, datasets)
    _campaigns(accesses, datasets)
    _chance(accesses, datasets)
    calibration = _calibration(accesses, len(sizes))
    sizes = np.concatenate([sizes, np.full(calibration, int(site.calibration_bytes), np.int64)])
    return trace_of(
        np.concatenate(accesses.times),
        np.concatenate(accesses.files),
        sizes,
        np.concatenate(accesses.is_write),
    )


def _datasets(site: Site, random: np.random.Generator) -> tuple[list[_Dataset], NDArray[np.int64]]:
    """Datasets in the order of their creation, and the sizes of all their files."""
    count = max(round(site.datasets_per_day * (site.days + site.older_days)), 1)
    created = np.sort(random.uniform(-site.older_days * DAY, site.days * DAY, count))
    lengths = np.ceil(site.files * random.lognormal(0.0, site.files_spread, count)).astype(np.int64)
    lengths = np.maximum(lengths, 1)
    weights = random.permutation(np.arange(1.0, count + 1.0) ** -site.popularity_exponent)
    weights /= weights.mean()
    ends = np.cumsum(lengths)
    sizes = site.file_bytes * random.lognormal(0.0, site.file_bytes_spread, int(ends[-1]))
    datasets = [
        _Dataset(float(begin), np.arange(end - length, end), float(weight))
        for begin, end, length, weight in zip(created, ends, lengths, weights, strict=True)
    ]
    return datasets, np.maximum(sizes, 1.0).astype(np.int64)


def _fresh(accesses: _Accesses, datasets: list[_Dataset]) -> None:
    """Passes over datasets because they are new."""
    site, random = accesses.site, accesses.random
    for dataset in datasets:
        passes = random.poisson(site.fresh_passes * dataset.weight)
        # Half of all ages are below fresh_days: the quantile function of a Lomax distribution of shape 1.
        share = random.uniform(0.0, 1.0, passes)
        for age in site.fresh_days * DAY * share / (1.0 - share):
            accesses.read_in_order(dataset.complete + age, dataset.files)


def _sets(accesses: _Accesses, datasets: list[_Dataset]) -> None:
    """Users' sets. Those that began before the trace are part of it."""
    site, random = accesses.site, accesses.random
    weights = np.cumsum([dataset.weight for dataset in datasets])
    longest = site.set_passes * site.set_gap_days * 3.0
    starts = random.uniform(-longest, site.days, random.poisson(site.sets_per_day * (site.days + longest)))
    for start in starts * DAY:
        existing = sum(dataset.complete <= start for dataset in datasets)
        if not existing:
            continue
        drawn = random.uniform(0.0, weights[existing - 1])
        files = datasets[int(weights.searchsorted(drawn))].files
        chosen = np.sort(random.choice(files, (len(files) + 1) // 2, replace=False))
        passes = int(random.geometric(1.0 / site.set_passes))
        gaps = random.exponential(site.set_gap_days * DAY, passes - 1)
        for moment in start + np.concatenate([[0.0], np.cumsum(gaps)]):
            accesses.read_in_order(float(moment), chosen)


def _campaigns(accesses: _Accesses, datasets: list[_Dataset]) -> None:
    """Old run periods, read once from beginning to end."""
    site, random = accesses.site, accesses.random
    if not site.campaign_every_days:
        return
    for start in np.arange(site.campaign_every_days / 2.0, site.days, site.campaign_every_days):
        earliest = -site.older_days
        latest = max(start - site.campaign_age_days - site.campaign_run_days, earliest)
        begin = float(random.uniform(earliest, latest)) * DAY
        end = begin + site.campaign_run_days * DAY
        period = [dataset.files for dataset in datasets if begin <= dataset.created < end]
        if period:
            files = np.concatenate(period)
            accesses.read_in_order(start * DAY, files, site.campaign_days * DAY / len(files))


def _chance(accesses: _Accesses, datasets: list[_Dataset]) -> None:
    """Passes over datasets that are chosen whatever their age and popularity."""
    site, random = accesses.site, accesses.random
    count = random.poisson(site.chance_passes_per_day * site.days)
    for start in random.uniform(0.0, site.days, count) * DAY:
        dataset = datasets[int(random.integers(len(datasets)))]
        if dataset.complete <= start:
            accesses.read_in_order(float(start), dataset.files)


def _calibration(accesses: _Accesses, first: int) -> int:
    """Reads of calibration files, numbered from `first`; returns their number."""
    site, random = accesses.site, accesses.random
    count = round(site.calibration_files)
    reads = random.poisson(site.calibration_reads_per_day * site.days, count)
    times = random.uniform(0.0, site.days * DAY, int(reads.sum()))
    accesses.read(times, first + np.repeat(np.arange(count), reads))
    return count

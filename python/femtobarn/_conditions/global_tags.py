"""The conditions of a federation: jobs that read them, and the global tags that jobs name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from .._exceptions import InvalidError, WrongTypeError, check_text
from .._femtobarn import change_global_tag, global_tag_history, global_tags, open_job
from .checks import problems
from .comparisons import Difference, differences
from .jobs import Job
from .merges import Merged, OnConflict, merge, merges_of
from .proofs import check_proof, verify_job
from .reduction_runs import Reduced, reduce_all
from .reductions import Reduction

if TYPE_CHECKING:
    from .._federations import Federation

__all__ = ["Conditions"]

State = Literal["open", "locked", "frozen"]
Versions = Mapping[str, "int | str | None"] | Iterable[str]
"""The series of a global tag: their paths, or a mapping from paths to a commit, another series, or None."""


class Conditions:
    """The conditions of a federation; call it to read them.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> @fb.persistent
    ... class Gain:
    ...     value: fb.float32
    >>> with fed.transaction(message="first gains") as txn:
    ...     gains = txn.series("tpc/gain", Gain, create=True)
    ...     oid = gains.put(Gain(value=1.5), since="2026-01-01T00:00:00Z")
    >>> tag = fed.conditions.create_tag("prod-2026", message="first production")
    >>> tag = fed.conditions.change_tag("prod-2026", state="frozen", message="validated")
    >>> with fed.transaction(message="better gains") as txn:
    ...     oid = txn.series("tpc/gain").put(Gain(value=1.6), since="2026-01-01T00:00:00Z")
    >>> [fed.conditions(name)["tpc/gain"].at("2026-03-01T12:00:00Z").value for name in ("prod-2026", None)]
    [1.5, 1.600000023841858]
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation

    def __call__(self, global_tag: str | None = None, *, csn: int | None = None) -> Job:
        """Return the series that a global tag names, resolved now and the same from then on.

        Parameters
        ----------
        global_tag
            Name of a global tag; all series if not given.
        csn
            The commit as of which the tag, and series without a commit of their own, are read; the newest if
            not given.

        Raises
        ------
        NotFoundError
            If there is no such global tag or commit.
        """
        if global_tag is not None:
            check_text(global_tag, "global tag")
        return Job(self.federation, open_job(self.federation._handle, global_tag, csn))

    def reopen(self, proof: Mapping[str, Any]) -> Job:
        """Return a job that reads the same versions as another one, from its :meth:`Job.proof`.

        Raises
        ------
        CorruptError
            If the proof was changed.
        InvalidError
            If it is of another federation.
        NotFoundError
            If the snapshot was given up, or a series differs from the one that was read: this is a copy of
            the federation with another history.
        """
        check_proof(proof, str(self.federation.uuid))
        job = self(proof["global_tag"], csn=proof["resolved_at"])
        verify_job(job, proof)
        return job

    def tags(self, *, csn: int | None = None) -> list[dict[str, Any]]:
        """Return all global tags as of a commit, by name, each as :meth:`tag` returns it."""
        snapshot = self.federation.snapshot(csn=csn)
        return [_with_time(tag) for tag in global_tags(snapshot._handle)]

    def tag(self, name: str, *, csn: int | None = None) -> dict[str, Any]:
        """Return a global tag as of a commit.

        Returns
        -------
        dict
            ``name``; ``state``; ``csn``, the commit as of which series are read, or None for the newest;
            ``only_listed``, whether the tag has only the listed series or all; ``series``, the listed ones,
            each with its own commit and the path that is read instead, or None; ``is_branch``; ``branches``,
            for each series of a branch the containers in front of it, the newest first, with their commits;
            ``changed``, the series into which the branch has put conditions; ``time``, ``user`` and
            ``message`` of the last change.

        Raises
        ------
        NotFoundError
            If there is no such global tag.
        """
        tag = self(name, csn=csn).global_tag
        assert tag is not None
        return _with_time(tag)

    def history(self, name: str) -> list[dict[str, Any]]:
        """Return a global tag as it was after each change and each merge, the oldest first; also one that is
        deleted.

        In the row of a merge, ``merge`` has the ``branch``, the tag ``into`` which it was merged (empty for
        the series themselves), the commit ``csn`` as of which the branch was merged, the number of
        ``conflicts`` and the side that was chosen there, ``on_conflict``. In other rows it is None.

        Raises
        ------
        NotFoundError
            If there was no such global tag.
        """
        check_text(name, "global tag")
        snapshot = self.federation.snapshot()
        states = [tag | {"merge": None} for tag in global_tag_history(snapshot._handle, name)]
        if not states:
            self.tag(name, csn=snapshot.csn)
        for row in merges_of(snapshot, name):
            before = [tag for tag in states if tag["time_ns"] <= row["time"] and tag["merge"] is None]
            authorship = {"time_ns": row["time"], "user": row["user"], "message": row["message"]}
            names = ("branch", "into", "csn", "conflicts", "on_conflict")
            merged = {name: row[name] for name in names}
            states.append((before or states)[-1] | authorship | {"merge": merged})
        return [_with_time(tag) for tag in sorted(states, key=lambda tag: int(tag["time_ns"]))]

    def create_tag(
        self,
        name: str,
        series: Versions | None = None,
        *,
        copy_of: str | None = None,
        branch: bool = False,
        state: State | None = None,
        csn: int | None = None,
        message: str = "",
    ) -> dict[str, Any]:
        """Make a global tag, and return it as :meth:`tag` does.

        Parameters
        ----------
        series
            The series of the tag: a list of paths, or a mapping from paths to commits. A series whose commit
            is None is read as of the commit of the tag. A path in place of a commit names a series that is
            read instead. If not given, the tag has all series. Those of a copy are added to the copied ones.
        copy_of
            A global tag to copy. A copy takes little space, however many series there are.
        branch
            Whether the tag is a branch, into which conditions can be put: ``txn.series(path, branch=name)``.
            It is based on the series of `copy_of`, or all series, as of the commit of the tag. Conditions
            that are put into it are seen only by jobs that name it, until it is merged.
        state
            As for :meth:`change_tag`; ``"open"`` by default.
        csn
            The commit as of which series without one of their own are read. If not given, they are read as of
            the newest commit when a job begins; those of a branch as of the newest commit now.
        message
            The reason, for the history of the tag.

        Raises
        ------
        ExistsError
            If there is a global tag of that name.
        NotFoundError
            If a series, a commit or the tag to copy does not exist.
        """
        return self._change(
            name,
            message,
            create=True,
            copy_of=copy_of,
            branch=branch,
            state=state,
            csn=csn,
            only_listed=None if series is None or copy_of is not None else True,
            series=series,
        )

    def change_tag(
        self,
        name: str,
        series: Versions | None = None,
        *,
        remove: Iterable[str] = (),
        state: State | None = None,
        csn: int | None = None,
        message: str = "",
    ) -> dict[str, Any]:
        """Change a global tag, and return it as :meth:`tag` does. All other properties stay.

        Parameters
        ----------
        series
            Series to list, or to read as of another commit, as for :meth:`create_tag`.
        remove
            Paths of listed series to remove from the list.
        state
            ``"open"``: it can be changed. ``"locked"``: it cannot be changed until it is opened again.
            ``"frozen"``: it can never be changed again, and a job that names it reads the same for ever; its
            commit becomes the newest one, unless it has one.
        csn
            The commit as of which series without one of their own are read; 0 for the newest when a job
            begins.
        message
            The reason, for the history of the tag.

        Raises
        ------
        DeniedError
            If the tag is frozen, or locked and not opened by this change.
        NotFoundError
            If the tag, a series or a commit does not exist.
        """
        return self._change(name, message, state=state, csn=csn, series=series, remove=remove)

    def delete_tag(self, name: str, *, message: str = "") -> None:
        """Delete a global tag. Its name is free again; its history and earlier commits keep it.

        Copies, series and commits that it names stay. A branch's conditions go, unless a tag follows them.

        Raises
        ------
        DeniedError
            If the tag is locked or frozen.
        NotFoundError
            If the tag does not exist.
        """
        self._change(name, message, state="deleted", csn=None, series=None)

    def check(self) -> list[str]:
        """Return the problems of series and global tags, a sentence each; an empty list if there are none.

        :meth:`Federation.check` checks catalogue, files and pages. This checks the promises of global tags:
        frozen tags were not altered, and the versions that tags name are kept from vacuum and can be read.
        """
        return problems(self.federation)

    def diff(
        self,
        before: str | Job | None,
        after: str | Job | None,
        series: Iterable[str] | None = None,
        *,
        since: Any = None,
        until: Any = None,
    ) -> list[Difference]:
        """Return where the conditions of two jobs differ, in the order of series, channels and time.

        Parameters
        ----------
        before, after
            Jobs, or names of global tags; None for all series as of now.
        series
            Paths of the series to compare; all of both jobs if not given.
        since, until
            The part of the clock to compare; all of it if not given.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> form = {"name": "Gain", "fields": [{"name": "value", "type": "float64"}]}
        >>> with fed.transaction() as txn:
        ...     oid = txn.series("tpc/gain", form, create=True).put({"value": 1.0}, since=0, until=100)
        >>> before = fed.conditions()
        >>> with fed.transaction() as txn:
        ...     oid = txn.series("tpc/gain").put({"value": 2.0}, since=40, until=60)
        >>> [(each.since, each.until, each.before, each.after) for each in fed.conditions.diff(before, None)]
        [(40, 60, {'value': 1.0}, {'value': 2.0})]
        """
        first, second = (each if isinstance(each, Job) else self(each) for each in (before, after))
        return list(differences(first, second, series, since, until))

    def merge(
        self,
        branch: str,
        into: str | None = None,
        *,
        on_conflict: OnConflict = "refuse",
        message: str = "",
    ) -> Merged:
        """Put the changes of a branch into the series that it is based on, in one transaction.

        Changes of the series since the branch began stay. Changes that were merged are not merged again.

        Parameters
        ----------
        branch
            A global tag that is a branch.
        into
            A global tag: another branch, or one that reads the newest commit. The series themselves if not
            given.
        on_conflict
            How to treat ranges in which both have changed, to different conditions. ``"refuse"``: nothing is
            merged. ``"ours"``: the series keep theirs. ``"theirs"``: they get those of the branch.
        message
            The reason, for the history of both.

        Raises
        ------
        MergeConflictError
            If there are conflicts, and no side was chosen. It lists them.
        InvalidError
            If `branch` is not a branch, or `into` reads the series as of an earlier commit.
        DeniedError
            If `into` is locked or frozen.
        NotFoundError
            If there is no such global tag or series.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> form = {"name": "Gain", "fields": [{"name": "value", "type": "float64"}]}
        >>> with fed.transaction() as txn:
        ...     oid = txn.series("tpc/gain", form, create=True).put({"value": 1.0}, since=0, until=100)
        >>> tag = fed.conditions.create_tag("mc", branch=True, message="gains of the simulation")
        >>> with fed.transaction() as txn:
        ...     oid = txn.series("tpc/gain", branch="mc").put({"value": 2.0}, since=40, until=60)
        >>> [fed.conditions(name)["tpc/gain"].at(50).value for name in ("mc", None)]
        [2.0, 1.0]
        >>> fed.conditions.merge("mc", message="validated").put
        1
        >>> fed.conditions()["tpc/gain"].at(50).value
        2.0
        """
        check_text(branch, "global tag")
        check_text(message, "message")
        if into is not None:
            check_text(into, "global tag")
        return merge(self.federation, branch, into, on_conflict, message)

    def reduce(
        self, reductions: Reduction | Iterable[Reduction], *, since: Any = None, until: Any = None
    ) -> list[Reduced]:
        """Derive series from raw ones, and put only conditions that differ from those derived before.

        Parameters
        ----------
        reductions
            One or more of :class:`DeadBand`, :class:`Mean` and :class:`Function`, in the order in which they
            are run; each is one transaction.
        since, until
            The range to derive unconditionally. If neither is given, a run derives the ranges that changes of
            raw conditions since the last run (new, corrected, ended or deleted ones) can have affected, or
            everything if these cannot be determined.

        Returns
        -------
        list of Reduced
            The result of each reduction.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> form = {"name": "Value", "fields": [{"name": "value", "type": "float64"}]}
        >>> with fed.transaction() as txn:
        ...     raw = txn.series("dcs/hv", form, create=True, overlap="open")
        ...     oids = raw.extend({"value": [1.0, 3.0, 8.0]}, since=[0, 3 * 10**9, 4 * 10**9])
        >>> [done] = fed.conditions.reduce(fb.Mean(to="offline/hv", source="dcs/hv", every="4 s"))
        >>> done.put, fed.conditions()["offline/hv"].at(0).mean
        (1, 1.5)
        """
        listed = [reductions] if isinstance(reductions, Reduction) else reductions
        return reduce_all(self.federation, listed, since, until)

    def _change(
        self,
        name: str,
        message: str,
        *,
        create: bool = False,
        copy_of: str | None = None,
        branch: bool = False,
        state: State | Literal["deleted"] | None,
        csn: int | None,
        only_listed: bool | None = None,
        series: Versions | None,
        remove: Iterable[str] = (),
    ) -> dict[str, Any]:
        check_text(name, "global tag")
        check_text(message, "message")
        if copy_of is not None:
            check_text(copy_of, "global tag")
        changed = change_global_tag(
            self.federation._handle,
            name,
            message,
            create,
            copy_of,
            branch,
            state,
            csn,
            only_listed,
            _versions(series or {}),
            _paths(remove),
        )
        return _with_time(changed)

    def __repr__(self) -> str:
        return f"<Conditions of {self.federation.name!r}>"


def _paths(series: Iterable[str]) -> list[str]:
    if not isinstance(series, Iterable):
        raise WrongTypeError(f"series must be a list of paths, not {series!r}")
    paths = [series] if isinstance(series, str) else list(series)
    for path in paths:
        check_text(path, "series")
    return paths


def _versions(series: Versions) -> dict[str, tuple[int | None, str | None]]:
    """Return the commit, and the path that is read instead, of each series."""
    versions: dict[str, tuple[int | None, str | None]] = {}
    wanted = series if isinstance(series, Mapping) else dict.fromkeys(_paths(series))
    for path, version in zip(_paths(wanted), wanted.values(), strict=True):
        if isinstance(version, str):
            check_text(version, "series")
            versions[path] = None, version
        elif version is None or (type(version) is int and version > 0):
            versions[path] = version, None
        else:
            raise InvalidError(
                f"version {version!r} of {path!r} is neither a commit nor the path of a series"
            )
    return versions


def _with_time(tag: dict[str, Any]) -> dict[str, Any]:
    seconds, nanoseconds = divmod(tag.pop("time_ns"), 10**9)
    return tag | {"time": datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanoseconds // 1000)}

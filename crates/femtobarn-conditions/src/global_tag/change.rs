//! Changes of global tags, checked against the state that they are based on.

use std::collections::BTreeMap;

use femtobarn::{
    Csn, Error, ErrorKind, Federation, Holder, Result, Snapshot, Transaction, TransactionOptions,
    View,
};

use super::branch::drop_containers;
use super::record::{BranchRecord, ChangeRecord, NEWEST, VersionRecord, chain, open_container};
use super::{GlobalTag, GlobalTagState, SeriesVersion, all_in, newest};
use crate::clock;
use crate::series::Series;

/// Changes after which a tag is stored in full.
const CHANGES_MAX: usize = 64;

/// A change of a global tag. Members that are `None` or empty change nothing.
#[derive(Clone, Debug, Default)]
pub struct TagChange {
    /// Creates a new tag, as a copy of the tag with this name if one is given.
    pub create: Option<Option<String>>,
    /// Whether the new tag is a branch, into which conditions can be put.
    pub branch: bool,
    /// The new state.
    pub state: Option<GlobalTagState>,
    /// The commit as of which series without a version of their own are read; `Some(None)` for the newest.
    pub csn: Option<Option<Csn>>,
    /// Whether only the listed series belong to the tag.
    pub only_listed: Option<bool>,
    /// Series to list, with their versions.
    pub set: BTreeMap<String, SeriesVersion>,
    /// Series to remove from the list.
    pub remove: Vec<String>,
    /// The reason, for the tag's history.
    pub message: String,
}

impl GlobalTag {
    /// Changes a global tag, or creates one, in a commit of its own.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `NotFound` if the tag, a series or a commit does not exist; `Exists` if the
    /// tag to create exists; `Denied` if the tag is frozen, or locked and not opened by this change; `Conflict` if
    /// another process changed a tag at the same time.
    pub fn change(federation: &Federation, name: &str, change: &TagChange) -> Result<Self> {
        let reason = if change.message.is_empty() { "" } else { ": " };
        let message = format!("global tag {name}{reason}{}", change.message);
        let options = TransactionOptions { message, ..Default::default() };
        let mut transaction = federation.transaction(options)?;
        Self::change_within(&mut transaction, name, change)?;
        transaction.commit()?;
        let snapshot = federation.snapshot(None)?;
        match change.state {
            Some(GlobalTagState::Deleted) => {
                let states = Self::history(&snapshot, name)?;
                states.into_iter().next_back().ok_or_else(|| missing(name))
            }
            _ => Self::find(&snapshot, name),
        }
    }

    /// Like [`change`](Self::change), as a part of a transaction. The change may list series that the transaction
    /// creates.
    ///
    /// # Errors
    /// The errors of [`change`](Self::change).
    pub fn change_within(
        transaction: &mut Transaction,
        name: &str,
        change: &TagChange,
    ) -> Result<()> {
        check_name(name)?;
        let key = open_container(transaction)?;
        let view = transaction.view_by_key(key)?;
        let current = newest(&view, name)?;
        let base = match (&change.create, current) {
            (Some(_), Some(_)) => {
                return Err(Error::Exists { what: format!("global tag {name:?} exists already") });
            }
            (Some(None), None) => None,
            (Some(Some(from)), None) => Some(found(newest(&view, from)?, from)?),
            (None, current) => Some(found(current, name)?),
        };
        let record = changed(name, base.as_ref(), change, &view, transaction)?;
        keep_commits(view.snapshot().federation(), name, &record)?;
        transaction.rows(key)?.append(&record)?;
        if let (Some(GlobalTagState::Deleted), Some(branch)) = (change.state, base)
            && branch.is_branch
        {
            drop_containers(transaction, &branch, &all_in(&view)?)?;
        }
        Ok(())
    }
}

/// The tag, or the error for a missing tag.
pub(super) fn found(tag: Option<GlobalTag>, name: &str) -> Result<GlobalTag> {
    tag.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Error {
    Error::NotFound { what: format!("global tag {name:?} does not exist") }
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |character: char| character.is_alphanumeric() || "._-+".contains(character);
    if name.is_empty() || name.len() > 128 || !name.chars().all(is_plain) {
        return Err(Error::Invalid {
            what: format!(
                "invalid name {name:?} of a global tag: use 1 to 128 letters, digits and the characters . _ - +"
            ),
        });
    }
    Ok(())
}

/// The record of a change, checked against the state that it is based on.
fn changed(
    name: &str,
    base: Option<&GlobalTag>,
    change: &TagChange,
    view: &View,
    transaction: &mut Transaction,
) -> Result<ChangeRecord> {
    let is_new = change.create.is_some();
    let old_state = base.filter(|_| !is_new).map_or(GlobalTagState::Open, |base| base.state);
    let state = change.state.unwrap_or(old_state);
    let refuse = |what: String| Err(Error::Denied { what });
    match old_state {
        GlobalTagState::Frozen => {
            return refuse(format!(
                "global tag {name:?} is frozen for ever; make a copy of it and change that"
            ));
        }
        GlobalTagState::Locked
            if matches!(state, GlobalTagState::Locked | GlobalTagState::Deleted) =>
        {
            return refuse(format!("global tag {name:?} is locked; open it first"));
        }
        GlobalTagState::Locked | GlobalTagState::Open | GlobalTagState::Deleted => {}
    }
    let snapshot = transaction.snapshot()?;
    let old_csn = base.and_then(|base| base.csn);
    let mut csn = change.csn.unwrap_or(old_csn);
    if state == GlobalTagState::Frozen && csn.is_none() {
        csn = Some(snapshot.csn());
    }
    if change.branch && csn.is_none() {
        csn = Some(snapshot.csn());
    }
    check_commit(csn, &snapshot)?;
    let mut set = checked_versions(name, base, change, transaction, &snapshot)?;
    check_existence(&set, csn, &snapshot)?;
    if change.branch || state == GlobalTagState::Frozen {
        pin_branches(base, &mut set, snapshot.csn());
    }
    let record = ChangeRecord {
        name: name.to_owned(),
        state: state.name().to_owned(),
        csn: csn.map_or(NEWEST, |csn| csn.0),
        only_listed: change.only_listed.unwrap_or(base.is_some_and(|base| base.only_listed)),
        is_branch: if is_new { change.branch } else { base.is_some_and(|base| base.is_branch) },
        message: change.message.clone(),
        ..Default::default()
    };
    signed(record, base, set, &change.remove, view)
}

/// The versions that a change sets, checked.
fn checked_versions(
    name: &str,
    base: Option<&GlobalTag>,
    change: &TagChange,
    transaction: &mut Transaction,
    snapshot: &Snapshot,
) -> Result<BTreeMap<String, SeriesVersion>> {
    let own = base.filter(|base| base.is_branch && change.create.is_none());
    let has_branch = |series: &String| {
        own.and_then(|base| base.series.get(series)).is_some_and(|it| !it.branches.is_empty())
    };
    if let Some(series) = change.set.keys().chain(&change.remove).find(|series| has_branch(series))
    {
        return Err(Error::Denied {
            what: format!(
                "branch {name:?} has conditions of {series}, which are based on the version that it lists; make \
                 another branch for another version"
            ),
        });
    }
    for (series, version) in &change.set {
        check_series(transaction, version.source.as_deref().unwrap_or(series))?;
        check_commit(version.csn, snapshot)?;
    }
    for series in &change.remove {
        if !base.is_some_and(|base| base.series.contains_key(series)) {
            return Err(Error::NotFound {
                what: format!("global tag {name:?} does not list series {series:?}"),
            });
        }
    }
    Ok(change.set.clone())
}

/// Pins the containers of branches that follow the newest commit to commit `newest`.
fn pin_branches(base: Option<&GlobalTag>, set: &mut BTreeMap<String, SeriesVersion>, newest: Csn) {
    for (series, version) in base.iter().flat_map(|base| &base.series) {
        if !set.contains_key(series) && version.branches.iter().any(|it| it.csn.is_none()) {
            let mut pinned = version.clone();
            pinned.branches.iter_mut().for_each(|it| it.csn = it.csn.or(Some(newest)));
            set.insert(series.clone(), pinned);
        }
    }
}

/// A record with its author, its base, and the series that differ from it.
pub(super) fn signed(
    mut record: ChangeRecord,
    base: Option<&GlobalTag>,
    mut set: BTreeMap<String, SeriesVersion>,
    remove: &[String],
    view: &View,
) -> Result<ChangeRecord> {
    record.base = base.map_or(-1, |base| base.entry as i64);
    if let Some(base) = base
        && chain(view, base.entry)?.len() >= CHANGES_MAX
    {
        let kept = base.series.iter().filter(|(series, _)| !remove.contains(series));
        for (series, version) in kept {
            set.entry(series.clone()).or_insert_with(|| version.clone());
        }
        record.base = -1;
    }
    for (series, version) in set {
        record.branches.extend(version.branches.iter().map(|branch| BranchRecord {
            series: series.clone(),
            container: branch.container.clone(),
            csn: branch.csn.map_or(NEWEST, |csn| csn.0),
        }));
        record.versions.push(VersionRecord {
            series,
            csn: version.csn.map_or(NEWEST, |csn| csn.0),
            source: version.source.unwrap_or_default(),
            is_removed: false,
        });
    }
    if record.base >= 0 {
        record.versions.extend(remove.iter().map(|series| VersionRecord {
            series: series.clone(),
            is_removed: true,
            ..Default::default()
        }));
    }
    record.time = clock::unix_nanoseconds();
    record.user = Holder::this_process().user;
    Ok(record)
}

/// Checks that a path leads to a series.
fn check_series(transaction: &mut Transaction, path: &str) -> Result<()> {
    let view = transaction.view(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::NotFound { what: format!("series {path:?} does not exist") },
        _ => error,
    })?;
    Series::open(vec![view]).map(drop)
}

/// Checks that the series of a change exist at the commits as of which they are read.
fn check_existence(
    set: &BTreeMap<String, SeriesVersion>,
    of_tag: Option<Csn>,
    snapshot: &Snapshot,
) -> Result<()> {
    for (series, version) in set {
        let Some(csn) = version.csn.or(of_tag) else { continue };
        let source = version.source.as_ref().unwrap_or(series);
        if !snapshot.federation().snapshot(Some(csn))?.has(source)? {
            return Err(Error::NotFound {
                what: format!(
                    "series {source:?} does not exist as of commit {csn}, as of which it would be read; give a later \
                     commit (csn)"
                ),
            });
        }
    }
    Ok(())
}

fn check_commit(csn: Option<Csn>, snapshot: &Snapshot) -> Result<()> {
    match csn {
        Some(csn) if csn > snapshot.csn() || csn == Csn::ZERO => Err(Error::NotFound {
            what: format!("commit {csn} does not exist; the newest is {}", snapshot.csn()),
        }),
        _ => Ok(()),
    }
}

/// Tags the commits that a record names, so that vacuum keeps their snapshots.
pub(super) fn keep_commits(
    federation: &Federation,
    name: &str,
    record: &ChangeRecord,
) -> Result<()> {
    let named = record.versions.iter().map(|version| version.csn).chain([record.csn]);
    let named = named.chain(record.branches.iter().map(|branch| branch.csn));
    let mut named: Vec<u64> = named.filter(|csn| *csn != NEWEST).collect();
    named.sort_unstable();
    named.dedup();
    for csn in named {
        let tag = format!("{name}@{csn}");
        match federation.tag(&tag, Some(Csn(csn)), "kept for a global tag") {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Exists => {
                let known = federation.catalog().tag(&tag)?.csn;
                if known != Csn(csn) {
                    return Err(Error::Exists {
                        what: format!(
                            "tag {tag:?}, which would keep commit {csn}, exists already and names commit {known}; remove it"
                        ),
                    });
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

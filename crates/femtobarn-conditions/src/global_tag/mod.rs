//! Global tags: names for a version of every series, and the history of each name.
//!
//! Global tags are objects of the container `conditions/global_tags`. Each object is one change of one name: it holds
//! the difference from the object that it is based on, so a copy of a tag costs one small object however many series
//! the tag has. `record` stores them, `change` creates new ones. A branch is a tag that conditions can be put into:
//! `branch` opens its container of a series. Specified in docs/format.md.
//!
//! 1. Objects are only appended. The last object of a name is its state, up to the one that froze it. A name whose last
//!    object deletes it is free again.
//! 2. What a frozen tag names never changes: every series is read as of a commit, which a federation's tag keeps.

use std::collections::BTreeMap;

use femtobarn::{Csn, Error, Result, Snapshot, View};
use rntuple::Value;

mod branch;
mod change;
mod record;

pub use branch::BranchSeries;
pub use change::TagChange;
use record::{Changes, NEWEST, NameRecord, chain, container};

/// The state of a global tag, which decides whether it can be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GlobalTagState {
    /// It can be changed.
    #[default]
    Open,
    /// It cannot be changed until it is opened again.
    Locked,
    /// It can never be changed again, and neither can anything that it names.
    Frozen,
    /// It is only found in the history.
    Deleted,
}

impl GlobalTagState {
    /// Its name: `open`, `locked`, `frozen` or `deleted`.
    pub fn name(self) -> &'static str {
        match self {
            GlobalTagState::Open => "open",
            GlobalTagState::Locked => "locked",
            GlobalTagState::Frozen => "frozen",
            GlobalTagState::Deleted => "deleted",
        }
    }

    /// The state with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Open, Self::Locked, Self::Frozen, Self::Deleted];
        all.into_iter().find(|state| state.name() == name)
    }
}

/// The version of one series that a global tag names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesVersion {
    /// The commit as of which it is read; `None` if the tag's own commit applies.
    pub csn: Option<Csn>,
    /// The container that is read instead of the series.
    pub source: Option<String>,
    /// The containers of branches in front of it, the newest first.
    pub branches: Vec<BranchVersion>,
}

impl SeriesVersion {
    /// The paths and commits of the containers to read for a series: first its own, whose commit is `None` if that of
    /// the tag applies, then those of branches, whose commit is `None` if they follow the newest.
    pub(crate) fn containers<'a>(
        &'a self,
        series: &'a str,
    ) -> impl Iterator<Item = (&'a str, Option<Csn>)> {
        let branches = self.branches.iter().rev().map(|it| (&*it.container, it.csn));
        [(self.source.as_deref().unwrap_or(series), self.csn)].into_iter().chain(branches)
    }
}

/// A branch's own container of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchVersion {
    /// The path of the container.
    pub container: String,
    /// The commit as of which it is read; `None` for the newest.
    pub csn: Option<Csn>,
}

/// A global tag as of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalTag {
    /// Its name.
    pub name: String,
    /// Whether it can be changed.
    pub state: GlobalTagState,
    /// The commit as of which series without a version of their own are read; `None` for the newest.
    pub csn: Option<Csn>,
    /// Whether only the listed series belong to the tag, rather than all.
    pub only_listed: bool,
    /// Whether conditions can be put into it.
    pub is_branch: bool,
    /// The listed series.
    pub series: BTreeMap<String, SeriesVersion>,
    /// When it was last changed, in nanoseconds since 1970.
    pub time: i64,
    /// The user who last changed it.
    pub user: String,
    /// The reason of the last change.
    pub message: String,
    /// The last change's entry.
    pub entry: u64,
}

impl GlobalTag {
    /// The global tag with a name.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `NotFound` if there is none; `Corrupt` if the stored bytes are damaged.
    pub fn find(snapshot: &Snapshot, name: &str) -> Result<Self> {
        match Self::look_up(snapshot, name)? {
            Some(tag) => Ok(tag),
            None => {
                let known: Vec<String> =
                    Self::all(snapshot)?.into_iter().map(|it| it.name).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(Error::NotFound {
                    what: format!(
                        "global tag {name:?} does not exist; existing global tags: {known}"
                    ),
                })
            }
        }
    }

    /// Like [`find`](Self::find); `None` if there is no such tag.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `Corrupt` if the stored bytes are damaged.
    pub fn look_up(snapshot: &Snapshot, name: &str) -> Result<Option<Self>> {
        match container(snapshot)? {
            Some(view) => newest(&view, name),
            None => Ok(None),
        }
    }

    /// All global tags, by name.
    ///
    /// # Errors
    /// The errors of [`look_up`](Self::look_up).
    pub fn all(snapshot: &Snapshot) -> Result<Vec<Self>> {
        container(snapshot)?.map_or_else(|| Ok(vec![]), |view| all_in(&view))
    }

    /// The commit that last changed a global tag; `None` if no tag ever existed. Until the next such commit, all tags
    /// are the same.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `Io` or `Unavailable` if the catalogue cannot be read.
    pub(crate) fn last_change(snapshot: &Snapshot) -> Result<Option<Csn>> {
        Ok(container(snapshot)?.map(|view| view.version().csn))
    }

    /// The states that the tag had, the oldest first.
    ///
    /// # Errors
    /// The errors of [`look_up`](Self::look_up).
    pub fn history(snapshot: &Snapshot, name: &str) -> Result<Vec<Self>> {
        let Some(view) = container(snapshot)? else { return Ok(vec![]) };
        let entries = entries_of(&view, name)?;
        entries.into_iter().map(|entry| resolve(&view, entry)).collect()
    }

    /// The series into which conditions were put, if the tag is a branch.
    pub fn changed_series(&self) -> impl Iterator<Item = &str> {
        let own = |series: &str, version: &SeriesVersion| {
            let container = branch::container_path(&self.name, series).ok();
            self.is_branch && version.branches.first().map(|it| &it.container) == container.as_ref()
        };
        let changed = self
            .series
            .iter()
            .filter(move |(series, version)| !version.branches.is_empty() && own(series, version));
        changed.map(|(series, _)| series.as_str())
    }
}

/// All tags, by name.
fn all_in(view: &View) -> Result<Vec<GlobalTag>> {
    let mut names = vec![];
    view.cursor::<NameRecord>()?.for_each(0..view.entries(), |_, change| {
        names.push(change.name);
        Ok(())
    })?;
    names.sort_unstable();
    names.dedup();
    names.iter().filter_map(|name| newest(view, name).transpose()).collect()
}

/// The entries of a name's changes, ascending, up to the one that froze it.
fn entries_of(view: &View, name: &str) -> Result<Vec<u64>> {
    let mut entries = view.find_all(&[("name", Value::String(name.to_owned()))])?;
    let mut changes = Changes::of(view)?;
    for place in 0..entries.len() {
        if changes.get(entries[place])?.state == GlobalTagState::Frozen.name() {
            entries.truncate(place + 1);
            break;
        }
    }
    Ok(entries)
}

/// The tag with a name, unless it is deleted.
fn newest(view: &View, name: &str) -> Result<Option<GlobalTag>> {
    let found = entries_of(view, name)?.last().map(|entry| resolve(view, *entry)).transpose()?;
    Ok(found.filter(|tag| tag.state != GlobalTagState::Deleted))
}

fn resolve(view: &View, entry: u64) -> Result<GlobalTag> {
    let chain = chain(view, entry)?;
    let mut series = BTreeMap::new();
    let commit = |csn: u64| (csn != NEWEST).then_some(Csn(csn));
    for (change, version) in
        chain.iter().rev().flat_map(|change| change.versions.iter().map(move |it| (change, it)))
    {
        if version.is_removed {
            series.remove(&version.series);
            continue;
        }
        let source = (!version.source.is_empty()).then(|| version.source.clone());
        let branches = change.branches.iter().filter(|branch| branch.series == version.series);
        let branches = branches.map(|branch| BranchVersion {
            container: branch.container.clone(),
            csn: commit(branch.csn),
        });
        let (csn, branches) = (commit(version.csn), branches.collect());
        series.insert(version.series.clone(), SeriesVersion { csn, source, branches });
    }
    let last = &chain[0];
    let state = GlobalTagState::from_name(&last.state).ok_or_else(|| Error::Corrupt {
        what: format!(
            "{}: unknown state {:?} of global tag {:?}",
            view.path(),
            last.state,
            last.name
        ),
    })?;
    Ok(GlobalTag {
        name: last.name.clone(),
        state,
        csn: commit(last.csn),
        only_listed: last.only_listed,
        is_branch: last.is_branch,
        series,
        time: last.time,
        user: last.user.clone(),
        message: last.message.clone(),
        entry,
    })
}

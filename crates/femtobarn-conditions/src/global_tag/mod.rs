//! Global tags: names for a version of every series, and the history of each name.
//!
//! Global tags are objects of the container `conditions/global_tags`. Each object is one change of one name: it holds what
//! differs from the object it is based on, so a copy of a tag costs one small object however many series the tag
//! has. `record` stores them, `change` makes new
//! ones. Specified in docs/format.md.
//!
//! 1. Objects are only appended. The last object of a name is its state, up to the one that froze it. A name whose last
//!    object deletes it is free again.
//! 2. What a frozen tag names never changes: every series is read as of a commit, which a federation's tag keeps.

use std::collections::BTreeMap;

use femtobarn::{Csn, Error, Result, Snapshot, View};
use rntuple::Value;

mod change;
mod record;

pub use change::TagChange;
use record::{ChangeRecord, NEWEST, chain, container};

/// Whether a global tag can be changed.
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
    /// The commit as of which it is read; none if the tag's own applies.
    pub csn: Option<Csn>,
    /// The container that is read instead of the series, such as a branch of it.
    pub source: Option<String>,
}

/// A global tag as of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalTag {
    /// Its name.
    pub name: String,
    /// Whether it can be changed.
    pub state: GlobalTagState,
    /// The commit as of which series without a version of their own are read; none if that is the newest.
    pub csn: Option<Csn>,
    /// Whether the tag names only the listed series, or all.
    pub only_listed: bool,
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

    /// As [`find`](Self::find); `None` if there is no such tag.
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
    /// As [`look_up`](Self::look_up).
    pub fn all(snapshot: &Snapshot) -> Result<Vec<Self>> {
        let Some(view) = container(snapshot)? else { return Ok(vec![]) };
        let mut names = vec![];
        view.cursor::<ChangeRecord>()?.for_each(0..view.entries(), |_, change| {
            names.push(change.name);
            Ok(())
        })?;
        names.sort_unstable();
        names.dedup();
        names.iter().filter_map(|name| newest(&view, name).transpose()).collect()
    }

    /// The states that the tag had, the oldest first.
    ///
    /// # Errors
    /// As [`look_up`](Self::look_up).
    pub fn history(snapshot: &Snapshot, name: &str) -> Result<Vec<Self>> {
        let Some(view) = container(snapshot)? else { return Ok(vec![]) };
        let entries = entries_of(&view, name)?;
        entries.into_iter().map(|entry| resolve(&view, entry)).collect()
    }
}

/// The entries of a name's changes, ascending, up to the one that froze it.
fn entries_of(view: &View, name: &str) -> Result<Vec<u64>> {
    let mut entries = view.find_all(&[("name", Value::String(name.to_owned()))])?;
    let mut changes = view.cursor::<ChangeRecord>()?;
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
    for version in chain.iter().rev().flat_map(|change| &change.versions) {
        if version.is_removed {
            series.remove(&version.series);
        } else {
            let csn = (version.csn != NEWEST).then_some(Csn(version.csn));
            let source = (!version.source.is_empty()).then(|| version.source.clone());
            series.insert(version.series.clone(), SeriesVersion { csn, source });
        }
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
        csn: (last.csn != NEWEST).then_some(Csn(last.csn)),
        only_listed: last.only_listed,
        series,
        time: last.time,
        user: last.user.clone(),
        message: last.message.clone(),
        entry,
    })
}

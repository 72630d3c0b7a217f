//! A follower becomes the leader of its federation.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_archive::Archive;
use femtobarn_catalog::{Csn, DatabaseState, ErrorKind, LocalCatalogue, Role, Successor, clock};

use super::copied::bytes_of;
use super::follower::Follower;
use super::leader::Leader;
use super::lock::lock;
use super::options::FollowOptions;
use crate::error::{Error, Result};
use crate::storage::file::DatabaseFile;
use crate::storage::key_chain;

/// How long to wait for stores that are being marked.
const MARKING_TIME: Duration = Duration::from_secs(20);

/// The result of a promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// The newest commit of the new leader.
    pub head: Csn,
    /// The generation that begins with it.
    pub generation: u64,
    /// The URL of the former leader if it was left behind: it must still be informed, and commits that it took after
    /// `head` are not here.
    pub untold: Option<String>,
    /// Stores that could not be marked, each with the reason, if the former leader was not informed: it may still
    /// remove objects there.
    pub unmarked: Vec<String>,
    /// Open databases whose files are damaged or missing, each with the reason: repair them before they are written to.
    pub unsound: Vec<String>,
}

/// Makes the follower in `folder` the leader of its federation, served at `url` from now on. Once everything is copied,
/// the former leader is informed, so that it takes no more changes, and the commits that it took meanwhile are copied.
/// With `is_forced`, a leader is left behind that does not answer, or cannot write that it is succeeded: its disk is
/// full or has failed. A failed promotion may be repeated.
///
/// With `is_forced`, a leader that was succeeded leads again, for a promotion that cannot be completed.
///
/// # Errors
/// `Busy` if a process follows in the folder; `Denied` if the federation there is no follower; `Unavailable` if the
/// leader does not answer, or cannot write, and `is_forced` is not set; `Conflict` if another follower was promoted, or
/// the histories differ; `Corrupt` if the copy is between two commits, or not complete yet, and its leader does not
/// answer.
pub fn promote(folder: &Path, url: &str, is_forced: bool) -> Result<Promotion> {
    let here = LocalCatalogue::open(folder)?;
    let of = match here.role()? {
        Role::Follower { of } => of,
        Role::Succeeded { .. } if is_forced => {
            let generation = here.lead_again()?;
            let (untold, unmarked, unsound) = (None, vec![], vec![]);
            return Ok(Promotion { head: here.head()?, generation, untold, unmarked, unsound });
        }
        Role::Succeeded { by } => {
            return Err(Error::Denied {
                what: format!(
                    "{} was succeeded by {by}; if no leader runs there, make this one lead again with --force",
                    folder.display()
                ),
            });
        }
        Role::Leader => {
            return Err(Error::Denied {
                what: format!("{} follows no leader; it needs no promotion", folder.display()),
            });
        }
    };
    let (successor, untold) = match take_over(&of, &here, url) {
        Ok(successor) => (successor, None),
        Err(error) if is_forced && error.kind() == ErrorKind::Unavailable => {
            (here.begin_promotion(url)?, Some(of))
        }
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            return Err(femtobarn_catalog::Error::Unavailable {
                what: format!(
                    "{error}. Start it again, or promote with --force: its commits after commit {} are then lost, unless \
                     it returns",
                    here.head()?
                ),
            }
            .into());
        }
        Err(error) => return Err(error),
    };
    let _lock = lock(folder)?;
    if here.is_beginning()? && here.horizon()? > Csn::ZERO {
        let what = format!(
            "{} has only a part of the federation; only its leader can complete it",
            folder.display()
        );
        return Err(Error::Corrupt { what });
    }
    if here.is_incomplete()? {
        return Err(Error::Corrupt {
            what: format!(
                "{} has bytes of a later commit, since its leader has reused space; only that leader can complete it",
                folder.display()
            ),
        });
    }
    let unsound = complete_keys(&here)?;
    here.promote(&successor, untold.as_deref())?;
    let (head, generation) = (here.head()?, successor.generation);
    // A leader that was informed removes nothing any more.
    let unmarked = if untold.is_some() { mark_stores(here) } else { vec![] };
    Ok(Promotion { head, generation, untold, unmarked, unsound })
}

/// Marks the stores of a federation with the generation that has begun; returns the reasons for those that could not be
/// marked.
fn mark_stores(here: LocalCatalogue) -> Vec<String> {
    let until = clock::now() + MARKING_TIME;
    let marked = Archive::open(Arc::new(here))
        .and_then(|archive| archive.mark_generation(&mut |_| clock::now() < until));
    match marked {
        Ok(failed) => failed.into_iter().map(|(store, why)| format!("{store}: {why}")).collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Informs a leader that the promotion of the federation in `folder` left behind, if there is one, that it has a
/// successor.
///
/// # Errors
/// `Unavailable` if it does not answer yet.
pub fn inform_former_leader(folder: &Path) -> Result<()> {
    let here = LocalCatalogue::open(folder)?;
    let Some((untold, successor)) = here.uninformed_leader()? else { return Ok(()) };
    Leader::connect(&untold, Duration::from_secs(5))?.yield_to(&successor)?;
    Ok(here.leader_is_informed()?)
}

/// Gives up on a leader that the promotion of the federation in `folder` left behind, because it will never return: it
/// is not informed of its successor, and the objects that it wrote to stores belong to the federation here.
///
/// # Errors
/// `Denied` if no leader was left behind.
pub fn forget_former_leader(folder: &Path) -> Result<()> {
    let here = LocalCatalogue::open(folder)?;
    if here.uninformed_leader()?.is_none() {
        let what = format!("no leader was left behind by a promotion of {}", folder.display());
        return Err(Error::Denied { what });
    }
    Ok(here.leader_is_informed()?)
}

/// Copies the leader's commits, stops it, and copies the rest. Steps that may fail for long are tried before it is
/// stopped.
fn take_over(of: &str, here: &LocalCatalogue, url: &str) -> Result<Successor> {
    let (name, timeout) = (url.to_owned(), Duration::from_secs(10));
    let options = FollowOptions { name, timeout, ..FollowOptions::default() };
    let mut follower = Follower::open(of, here.folder(), options)?;
    let successor = here.begin_promotion(url)?;
    follower.catch_up()?;
    complete_keys(here)?;
    let last = follower.leader().yield_to(&successor).map_err(|error| cannot_yield(of, error))?;
    follower.take_all(last)?;
    Ok(successor)
}

/// The error of a leader that refuses to yield. If it cannot write that it is succeeded, it is as one that does not
/// answer: it may take commits once it is started again.
fn cannot_yield(of: &str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Closed | ErrorKind::Full | ErrorKind::Io => {
            let what = format!("{of} cannot write that it is succeeded: {error}");
            femtobarn_catalog::Error::Unavailable { what }.into()
        }
        _ => error,
    }
}

/// Completes the chains of keys in the files of open databases: only headers beside data were copied.
///
/// Returns the files that cannot be read, with the reasons.
fn complete_keys(here: &LocalCatalogue) -> Result<Vec<String>> {
    let mut unsound = vec![];
    for record in here.every_database()? {
        let path = here.folder().join(&record.row.path);
        let is_gone = record.dropped.is_some() && !path.exists();
        if record.row.state != DatabaseState::Open || is_gone {
            continue;
        }
        let completed = || {
            let file = DatabaseFile::open_to_write(path)?;
            let live = bytes_of(&file, &here.all_versions(record.row.id)?)?;
            key_chain::cover(&file, &live)?;
            file.sync()
        };
        match completed() {
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => {
                unsound.push(format!("{}: {error}", record.row.name));
            }
            other => other?,
        }
    }
    Ok(unsound)
}

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

/// How long stores are waited for that are to be marked.
const MARKING_TIME: Duration = Duration::from_secs(20);

/// What a promotion did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// The newest commit of the new leader.
    pub head: Csn,
    /// The generation that begins with it.
    pub generation: u64,
    /// The URL of the leader until now if it did not answer: it has to be told, and commits that it took after `head`
    /// are not here.
    pub untold: Option<String>,
    /// Stores that could not be marked, each with the reason, if the leader until now was not told: it may still remove
    /// objects there.
    pub unmarked: Vec<String>,
    /// Open databases whose files are damaged or missing, each with the reason: repair them before they are written to.
    pub unsound: Vec<String>,
}

/// Makes the follower in `folder` the leader of its federation, served at `url` from now on. When everything is here, the
/// leader until now is told, so that it takes no more changes, and what it has taken meanwhile is copied. With
/// `is_forced`, one that does not answer is left behind. May be repeated if it failed.
///
/// With `is_forced`, a leader that was succeeded leads again, for a promotion that cannot be completed.
///
/// # Errors
/// `Busy` if a process follows in the folder; `Denied` if nobody is followed there; `Unavailable` if the leader does not
/// answer and `is_forced` is not set; `Conflict` if another follower was promoted, or the histories differ; `Corrupt` if
/// the copy is between two commits, or not complete yet, and its leader does not answer.
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
                    "{} was succeeded by {by}; if that leads nothing, make this lead again with --force",
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
                    "{error}. Start it, or promote with --force: what it took after commit {} is lost then, \
                     unless it comes back",
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
                "{} has bytes of a later commit, since its leader has given out space again; only that \
                 leader can complete it",
                folder.display()
            ),
        });
    }
    let unsound = complete_keys(&here)?;
    here.promote(&successor, untold.as_deref())?;
    let (head, generation) = (here.head()?, successor.generation);
    // One that was told removes nothing any more.
    let unmarked = if untold.is_some() { mark_stores(here) } else { vec![] };
    Ok(Promotion { head, generation, untold, unmarked, unsound })
}

/// Marks the stores of a federation with the generation that has begun; returns why some are not.
fn mark_stores(here: LocalCatalogue) -> Vec<String> {
    let until = clock::now() + MARKING_TIME;
    let marked = Archive::open(Arc::new(here))
        .and_then(|archive| archive.mark_generation(&mut |_| clock::now() < until));
    match marked {
        Ok(failed) => failed.into_iter().map(|(store, why)| format!("{store}: {why}")).collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Tells a leader that was left behind by the promotion of the federation in `folder`, if there is one, that it has a
/// successor.
///
/// # Errors
/// `Unavailable` if it does not answer yet.
pub fn tell_former_leader(folder: &Path) -> Result<()> {
    let here = LocalCatalogue::open(folder)?;
    let Some((untold, successor)) = here.untold_leader()? else { return Ok(()) };
    Leader::connect(&untold, Duration::from_secs(5))?.yield_to(&successor)?;
    Ok(here.leader_is_told()?)
}

/// Forgets a leader that was left behind by the promotion of the federation in `folder`: it is gone for good, so it is
/// not told that it has a successor, and what it wrote to stores belongs to the federation here.
///
/// # Errors
/// `Denied` if there is none.
pub fn forget_former_leader(folder: &Path) -> Result<()> {
    let here = LocalCatalogue::open(folder)?;
    if here.untold_leader()?.is_none() {
        let what = format!("no leader was left behind by a promotion of {}", folder.display());
        return Err(Error::Denied { what });
    }
    Ok(here.leader_is_told()?)
}

/// Copies what the leader has, stops it, and copies the rest. Whatever may fail for long is tried before it is stopped.
fn take_over(of: &str, here: &LocalCatalogue, url: &str) -> Result<Successor> {
    let (name, timeout) = (url.to_owned(), Duration::from_secs(10));
    let options = FollowOptions { name, timeout, ..FollowOptions::default() };
    let mut follower = Follower::open(of, here.folder(), options)?;
    let successor = here.begin_promotion(url)?;
    follower.catch_up()?;
    complete_keys(here)?;
    let last = follower.leader().yield_to(&successor)?;
    follower.take_all(last)?;
    Ok(successor)
}

/// Gives the files of open databases whole chains of keys: only the headers of those were copied that lie beside data.
///
/// Returns which of them cannot be read, and why.
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

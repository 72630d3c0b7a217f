//! The commits of a federation's history, by which a cache detects bytes of another history.

use std::collections::HashMap;
use std::sync::Arc;

use femtobarn_catalog::{Catalogue, Csn, ErrorKind};
use parking_lot::Mutex;

/// Commits whose times are remembered; all are forgotten when there are more.
const TIMES_MAX: usize = 4096;

/// A commit. The time distinguishes it from a commit of the same number in another history of the federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitMark {
    pub csn: Csn,
    pub time_us: i64,
}

/// The times of commits, each asked of the catalogue once.
#[derive(Debug)]
pub(crate) struct CommitHistory {
    catalog: Arc<dyn Catalogue>,
    /// `None` for a commit that the federation does not have.
    times: Mutex<HashMap<Csn, Option<i64>>>,
}

impl CommitHistory {
    pub(crate) fn new(catalog: Arc<dyn Catalogue>) -> Self {
        CommitHistory { catalog, times: Mutex::default() }
    }

    /// The mark of a commit; `None` if the federation does not have it, or the catalogue does not answer.
    pub(crate) fn mark(&self, csn: Csn) -> Option<CommitMark> {
        let known = self.times.lock().get(&csn).copied();
        let time = match known {
            Some(time) => time,
            None => {
                let time = match self.catalog.commit_by_csn(csn) {
                    Ok(commit) => Some(commit.time_us),
                    Err(error) if error.kind() == ErrorKind::NotFound => None,
                    Err(_) => return None,
                };
                let mut times = self.times.lock();
                if times.len() >= TIMES_MAX {
                    times.clear();
                }
                *times.entry(csn).or_insert(time)
            }
        };
        time.map(|time_us| CommitMark { csn, time_us })
    }

    /// Whether the federation has this commit, and not another one of the same number.
    pub(crate) fn has(&self, mark: CommitMark) -> bool {
        self.mark(mark.csn) == Some(mark)
    }
}

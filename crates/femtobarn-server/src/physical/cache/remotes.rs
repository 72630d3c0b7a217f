//! One file of the origin: open over one connection, and over more while many fetches of it are in progress.
//!
//! 1. Servers read for a connection one request after another, so a connection is one turn at their disk, however many
//!    readers wait here. More connections give more turns.
//! 2. Each open file is compared with the expected version, since the files of a redirector may be at different
//!    servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;
use nix::errno::Errno;
use parking_lot::Mutex;
use xrd::client::File;

use super::file::CachedFile;
use super::origin::{self, CONNECTIONS};
use crate::physical::{StorageError, StorageResult};

/// Fetches over one connection above which another connection is used, too: more than one sequential reader needs.
const FETCHES_MAX: usize = 12;

/// The time between two attempts to open the file once more.
const GROW_AGAIN: Duration = Duration::from_secs(1);

/// The file at the origin, once for each connection over which it is open.
#[derive(Debug, Default)]
pub(super) struct Remotes {
    open: Mutex<Vec<Arc<Remote>>>,
    /// Held while the file is opened for the first time.
    opening: tokio::sync::Mutex<()>,
    /// When opening the file once more was last begun.
    grown: Mutex<Option<Instant>>,
}

/// The file, open over one connection.
#[derive(Debug)]
pub(super) struct Remote {
    pub file: File,
    /// The number of the connection.
    connection: usize,
    /// When the version was compared with the file's, and how often that had been opened again.
    compared: Mutex<Option<(Instant, u64)>>,
    /// Held during a comparison.
    comparing: tokio::sync::Mutex<()>,
}

impl Remotes {
    /// Accepts a file that was just opened and compared, if there is none yet.
    pub(super) fn offer(&self, file: File, connection: usize) {
        let compared = Some((clock::now(), file.times_reopened())).into();
        let mut open = self.open.lock();
        if open.is_empty() {
            open.push(Arc::new(Remote {
                file,
                connection,
                compared,
                comparing: Default::default(),
            }));
        }
    }

    /// The open file with the fewest fetches. If all have many, another is opened for later ones.
    pub(super) async fn take(&self, of: &Arc<CachedFile>) -> StorageResult<Arc<Remote>> {
        if self.least_used().is_none() {
            let _turn = self.opening.lock().await;
            if self.least_used().is_none() {
                return self.open_another(of).await;
            }
        }
        if self.needs_more() {
            self.grow(of);
        }
        let gone = || StorageError::refused(Errno::EIO, "the origin's file was closed");
        self.least_used().ok_or_else(gone)
    }

    /// Begins to open the file once more, unless that was tried recently.
    fn grow(&self, of: &Arc<CachedFile>) {
        let mut growing = self.grown.lock();
        if growing.is_some_and(|last| last.elapsed() < GROW_AGAIN) {
            return;
        }
        *growing = Some(clock::now());
        let of = Arc::clone(of);
        // If it fails, the existing connections are enough.
        drop(of.shared.origin.tasks.clone().spawn(async move {
            drop(of.remotes.open_another(&of).await);
        }));
    }

    /// All open files, to be closed.
    pub(super) fn take_all(&mut self) -> Vec<Arc<Remote>> {
        std::mem::take(self.open.get_mut())
    }

    fn least_used(&self) -> Option<Arc<Remote>> {
        self.open.lock().iter().min_by_key(|remote| Arc::strong_count(remote)).cloned()
    }

    fn needs_more(&self) -> bool {
        let open = self.open.lock();
        // Each is counted once for the list.
        let is_full = |remote: &Arc<Remote>| Arc::strong_count(remote) > FETCHES_MAX;
        open.len() < CONNECTIONS && open.iter().all(is_full)
    }

    async fn open_another(&self, of: &CachedFile) -> StorageResult<Arc<Remote>> {
        let origin = &of.shared.origin;
        let turn = origin.turn();
        let connection = {
            let open = self.open.lock();
            let is_free = |number: &usize| open.iter().all(|remote| remote.connection != *number);
            let numbers = (turn..turn + CONNECTIONS).map(|number| number % CONNECTIONS);
            numbers.clone().find(is_free).unwrap_or(turn)
        };
        let file = origin.open(&of.location, connection).await?;
        let (compared, comparing) = Default::default();
        let remote = Arc::new(Remote { file, connection, compared, comparing });
        remote.compare(of, clock::now()).await?;
        self.open.lock().push(Arc::clone(&remote));
        Ok(remote)
    }
}

impl Remote {
    /// Compares the version with that of the file, unless that was done since a time and the file has not been opened
    /// again. Of concurrent callers, one compares for all.
    ///
    /// # Errors
    /// `ESTALE` if the versions differ; those of the origin.
    pub(super) async fn compare(&self, of: &CachedFile, since: Instant) -> StorageResult<()> {
        let is_known = || {
            self.compared.lock().is_some_and(|(when, reopened)| {
                let is_recent = of.shared.is_immutable || when >= since;
                is_recent && reopened == self.file.times_reopened()
            })
        };
        // A caller that needs no comparison does not wait for one.
        if is_known() {
            return Ok(());
        }
        let _turn = self.comparing.lock().await;
        if is_known() {
            return Ok(());
        }
        let (begun, reopened) = (clock::now(), self.file.times_reopened());
        let stat = of.shared.origin.stat_open(&self.file).await?;
        if of.shared.is_same(origin::version_of(&stat, &of.path)?, of.version) {
            *self.compared.lock() = Some((begun, reopened));
            return Ok(());
        }
        let what = format!("{} was changed at the origin; open it again", of.path);
        Err(StorageError::refused(Errno::ESTALE, what))
    }
}

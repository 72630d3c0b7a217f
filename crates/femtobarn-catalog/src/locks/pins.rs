//! Pins: the snapshots that processes are reading, so that vacuum leaves them alone.
//!
//! A pin is a shared lock on the byte of `locks/snapshots` whose position is the CSN. Nobody locks
//! there exclusively, so pinning never waits, and it leaves nothing behind when a process dies.
//!
//! Where the lock file cannot be opened, as on a medium that cannot be written, pins do nothing:
//! nobody can vacuum there through this folder either.
//!
//! After a fork the child's copies of guards are its own: dropping one leaves the parent's pin alone.
//! At its first pin the child pins again, for itself, what its inherited guards hold; until then
//! they hold only as long as the parent's do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::file::{Kind, LockFile, Span};
use super::leased::LeasedPins;
use crate::error::Result;
use crate::host;
use crate::ids::Csn;
use crate::local::LOCKS_FOLDER;

const SNAPSHOTS_FILE: &str = "snapshots";

/// The pins of one process in one federation. Clones share them.
#[derive(Clone, Debug)]
pub struct SnapshotPins {
    shared: Arc<Shared>,
}

/// A pinned snapshot, until this is dropped, or its process dies or its session ends.
#[derive(Debug)]
#[must_use = "the snapshot is pinned until the guard is dropped"]
pub struct PinGuard {
    keeper: Keeper,
    csn: Csn,
}

#[derive(Clone, Debug)]
enum Keeper {
    Kernel(Arc<Shared>),
    Leased(Arc<dyn LeasedPins>),
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// None before the first pin, and where there can be none.
    file: Option<LockFile>,
    pid: u32,
    /// How many guards hold each.
    counts: BTreeMap<Csn, usize>,
}

impl SnapshotPins {
    /// The pins of this process in the federation in `federation`. Opens nothing yet.
    pub fn new(federation: &Path) -> Self {
        let path = federation.join(LOCKS_FOLDER).join(SNAPSHOTS_FILE);
        SnapshotPins { shared: Arc::new(Shared { path, state: Mutex::default() }) }
    }

    /// Pins the snapshot of a commit. Ask afterwards whether it still exists
    /// ([`crate::LocalCatalogue::pin`] does both).
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the operating system refuses the lock.
    pub fn pin(&self, csn: Csn) -> Result<PinGuard> {
        let mut state = self.shared.lock();
        state.renew(&self.shared.path)?;
        if let (Some(file), false) = (&state.file, state.counts.contains_key(&csn)) {
            share(file, csn)?;
        }
        *state.counts.entry(csn).or_default() += 1;
        Ok(PinGuard { keeper: Keeper::Kernel(Arc::clone(&self.shared)), csn })
    }

    /// The snapshots before `horizon` that any process has pinned, this one included, in order.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the lock file cannot be looked at.
    pub fn pinned_below(&self, horizon: Csn) -> Result<Vec<Csn>> {
        if !self.shared.path.exists() {
            return Ok(vec![]);
        }
        // The kernel does not tell of locks of the description that asks.
        let probe = LockFile::open_to_look(&self.shared.path)?;
        let mut pinned: Vec<Csn> = probe
            .locked_between(0, horizon.0)?
            .into_iter()
            .flat_map(|locked| locked.bytes.map(Csn))
            .collect();
        pinned.sort_unstable();
        pinned.dedup();
        Ok(pinned)
    }
}

impl PinGuard {
    /// A snapshot that somebody else has pinned for this process.
    pub fn on_lease(pins: Arc<dyn LeasedPins>, csn: Csn) -> Self {
        PinGuard { keeper: Keeper::Leased(pins), csn }
    }

    /// The commit whose snapshot is pinned.
    pub fn csn(&self) -> Csn {
        self.csn
    }
}

impl Clone for PinGuard {
    fn clone(&self) -> Self {
        match &self.keeper {
            Keeper::Kernel(shared) => *shared.lock().counts.entry(self.csn).or_default() += 1,
            Keeper::Leased(pins) => pins.pin_again(self.csn),
        }
        PinGuard { keeper: self.keeper.clone(), csn: self.csn }
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        match &self.keeper {
            Keeper::Kernel(shared) => shared.lock().unpin(self.csn),
            Keeper::Leased(pins) => pins.unpin(self.csn),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn unpin(&mut self, csn: Csn) {
        let count = self.counts.entry(csn).or_default();
        *count = count.saturating_sub(1);
        if *count > 0 {
            return;
        }
        self.counts.remove(&csn);
        if let (Some(file), true) = (&self.file, self.pid == host::process_id()) {
            file.unlock(Span::byte(csn.0));
        }
    }

    /// Opens the file at the first use in this process.
    fn renew(&mut self, path: &Path) -> Result<()> {
        if self.pid == host::process_id() {
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            // Where this fails, so does opening the file.
            drop(fs::create_dir(folder));
        }
        let file = LockFile::open(path).or_else(|_| LockFile::open_to_look(path)).ok();
        if let Some(file) = &file {
            self.counts.keys().try_for_each(|csn| share(file, *csn))?;
        }
        self.file = file;
        self.pid = host::process_id();
        Ok(())
    }
}

/// Waits only for somebody who locks exclusively, which nobody does.
fn share(file: &LockFile, csn: Csn) -> Result<()> {
    file.lock(Kind::Shared, Span::byte(csn.0))
}

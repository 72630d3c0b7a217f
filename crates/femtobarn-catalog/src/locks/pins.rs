//! Pins: the snapshots that processes are reading, which vacuum keeps.
//!
//! A pin is a shared lock on the byte of `locks/snapshots` at the offset of the CSN. No process locks these bytes
//! exclusively, so pinning never waits, and the kernel removes the pins of a dead process.
//!
//! Where the lock file cannot be opened, as on a read-only medium, pins do nothing: no process can vacuum there
//! through this folder either.
//!
//! After a fork the child's copies of guards are its own: dropping one does not affect the parent's pin. At its first
//! pin the child locks the snapshots of its inherited guards again, for itself; until then they are pinned only as long
//! as the parent pins them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::backend::Backend;
use super::file::{LockFile, LockKind, Span};
use super::leased::LeasedPins;
use crate::error::Result;
use crate::host;
use crate::ids::Csn;
use crate::paths::LOCKS_FOLDER;

const SNAPSHOTS_FILE: &str = "snapshots";

/// The pins of one process in one federation. Clones share them.
#[derive(Clone, Debug)]
pub struct SnapshotPins {
    kernel: Arc<KernelPins>,
}

/// A pinned snapshot, until this is dropped, its process dies or its session ends.
#[derive(Debug)]
#[must_use = "the snapshot is pinned until the guard is dropped"]
pub struct PinGuard {
    backend: Backend<Arc<KernelPins>, Arc<dyn LeasedPins>>,
    csn: Csn,
}

/// The pins of this process that are locks in the kernel.
#[derive(Debug)]
struct KernelPins {
    path: PathBuf,
    state: Mutex<PinState>,
}

#[derive(Debug, Default)]
struct PinState {
    /// `None` before the first pin, and where the lock file cannot be opened.
    file: Option<LockFile>,
    /// The process that opened the file; a forked child opens the file again.
    pid: u32,
    /// The number of guards of each pinned snapshot.
    counts: BTreeMap<Csn, usize>,
}

impl SnapshotPins {
    /// The pins of this process in the federation in the folder `federation`. Opens no file yet.
    pub fn new(federation: &Path) -> Self {
        let path = federation.join(LOCKS_FOLDER).join(SNAPSHOTS_FILE);
        SnapshotPins { kernel: Arc::new(KernelPins { path, state: Mutex::default() }) }
    }

    /// Pins the snapshot of a commit, which may not exist any more: check that afterwards, or use
    /// [`LocalCatalogue::pin`](crate::LocalCatalogue::pin), which does both.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the operating system refuses the lock.
    pub fn pin(&self, csn: Csn) -> Result<PinGuard> {
        let mut state = self.kernel.state.lock();
        state.open_in_this_process(&self.kernel.path)?;
        if let (Some(file), false) = (&state.file, state.counts.contains_key(&csn)) {
            lock_shared(file, csn)?;
        }
        *state.counts.entry(csn).or_default() += 1;
        Ok(PinGuard { backend: Backend::Kernel(Arc::clone(&self.kernel)), csn })
    }

    /// The snapshots before `horizon` that any process has pinned, this one included, in order.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the lock file cannot be inspected.
    pub fn pinned_below(&self, horizon: Csn) -> Result<Vec<Csn>> {
        let state = self.kernel.state.lock();
        let own = state.file.as_ref().filter(|_| state.pid == host::process_id());
        // For each question the kernel walks past all earlier locks and reports one, so this process's own pins come
        // from memory. The kernel does not report locks of the open file description that asks.
        let opened;
        let (probe, own) = match own {
            Some(file) => (file, state.counts.range(..horizon).map(|(csn, _)| *csn).collect()),
            None if !self.kernel.path.exists() => return Ok(vec![]),
            None => {
                opened = LockFile::open_read_only(&self.kernel.path)?;
                (&opened, vec![])
            }
        };
        let others = probe.locked_between(0, horizon.0)?;
        let others = others.into_iter().flat_map(|locked| locked.bytes.map(Csn));
        let mut pinned: Vec<Csn> = own.into_iter().chain(others).collect();
        pinned.sort_unstable();
        pinned.dedup();
        Ok(pinned)
    }
}

impl PinGuard {
    /// The guard of a snapshot that a server has pinned for this process.
    pub fn on_lease(pins: Arc<dyn LeasedPins>, csn: Csn) -> Self {
        PinGuard { backend: Backend::Leased(pins), csn }
    }

    /// The commit whose snapshot is pinned.
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// Whether a server has pinned the snapshot, which may lose the pin.
    pub fn is_on_lease(&self) -> bool {
        matches!(self.backend, Backend::Leased(_))
    }

    /// Whether the snapshot is still pinned. A pin on a lease is lost if the server was away, or the session ended, and the
    /// snapshot did not exist any more when the session was opened again.
    pub fn is_held(&self) -> bool {
        match &self.backend {
            Backend::Kernel(_) => true,
            Backend::Leased(pins) => pins.is_pinned(self.csn),
        }
    }
}

impl Clone for PinGuard {
    fn clone(&self) -> Self {
        match &self.backend {
            Backend::Kernel(pins) => *pins.state.lock().counts.entry(self.csn).or_default() += 1,
            Backend::Leased(pins) => pins.pin_again(self.csn),
        }
        PinGuard { backend: self.backend.clone(), csn: self.csn }
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        match &self.backend {
            Backend::Kernel(pins) => pins.state.lock().unpin(self.csn),
            Backend::Leased(pins) => pins.unpin(self.csn),
        }
    }
}

impl PinState {
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

    /// Opens the file at the first pin in this process.
    fn open_in_this_process(&mut self, path: &Path) -> Result<()> {
        if self.pid == host::process_id() {
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            // A failure here makes the opening of the file fail, too.
            drop(fs::create_dir(folder));
        }
        let file = LockFile::open(path).or_else(|_| LockFile::open_read_only(path)).ok();
        if let Some(file) = &file {
            self.counts.keys().try_for_each(|csn| lock_shared(file, *csn))?;
        }
        self.file = file;
        self.pid = host::process_id();
        Ok(())
    }
}

/// Never waits, because no process locks these bytes exclusively.
fn lock_shared(file: &LockFile, csn: Csn) -> Result<()> {
    file.lock(LockKind::Shared, Span::byte(csn.0))
}

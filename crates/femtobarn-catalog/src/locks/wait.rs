//! Waiting for a lock, in turn and for a limited time.
//!
//! As for the turn to commit there are two locks: who waits takes the *queue* first, then waits for
//! who holds the slot, and then frees the queue. So whoever frees the slot and comes straight back
//! finds somebody in front of it. One waiter at a time looks at the slot, the others at the queue.
//! Those who share take the queue shared, so that they pass it together, but not while somebody who
//! wants the slot alone is in it.
//!
//! The kernel's own waiting has no time limit that would not take a signal or another thread, so a
//! waiter looks again and again. It pauses an eighth of what it has waited so far, and never longer
//! than [`PAUSE_MAX`], so it waits little longer than it must and looks at most 50 times a second.
//!
//! Who has waited for [`REGISTER_AFTER`] says so in a file of `locks/waits`, for those who ask who
//! waits. It holds a lock on that file, so that what a killed process leaves can be told.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::WAITS_FOLDER;
use super::file::{Kind, LockFile, Span};
use super::holder::Holder;
use super::monitor::Waiter;
use super::target::LockTarget;
use crate::error::Result;
use crate::host;

/// First and longest pause between two attempts to take a lock.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A pause is at most this part of the time waited so far.
const PAUSE_DIVISOR: u32 = 8;
/// How long somebody waits before others are told.
const REGISTER_AFTER: Duration = Duration::from_millis(10);

/// Locks a slot, or says how long it waited in vain.
pub(super) fn acquire(
    file: &LockFile,
    kind: Kind,
    target: &LockTarget,
    locks: &Path,
    wait: Duration,
) -> Result<std::result::Result<(), Duration>> {
    let mut waiting = Waiting { target, locks, limit: wait, started: None, registered: None };
    let slot = target.slot();
    if !waiting.until_locked(file, kind, Span::queue(slot))? {
        return Ok(Err(waiting.waited()));
    }
    let locked = waiting.until_locked(file, kind, Span::hold(slot));
    file.unlock(Span::queue(slot));
    Ok(if locked? { Ok(()) } else { Err(waiting.waited()) })
}

struct Waiting<'a> {
    target: &'a LockTarget,
    locks: &'a Path,
    limit: Duration,
    /// None until something was locked.
    started: Option<std::time::Instant>,
    registered: Option<Registered>,
}

impl Waiting<'_> {
    fn waited(&self) -> Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }

    /// Whether it got the lock in time.
    fn until_locked(&mut self, file: &LockFile, kind: Kind, span: Span) -> Result<bool> {
        while !file.try_lock(kind, span)? {
            self.started.get_or_insert_with(host::monotonic);
            let waited = self.waited();
            if waited >= self.limit {
                return Ok(false);
            }
            if waited >= REGISTER_AFTER && self.registered.is_none() {
                self.registered = Some(Registered::new(self.locks, self.target, waited));
            }
            let pause = (waited / PAUSE_DIVISOR).clamp(PAUSE_MIN, PAUSE_MAX);
            host::sleep(pause.min(self.limit - waited));
        }
        Ok(true)
    }
}

/// The file that says that this process waits; none where it could not be written, because
/// waiting is more important than telling.
struct Registered {
    entry: Option<(PathBuf, LockFile)>,
    pid: u32,
}

impl Registered {
    fn new(locks: &Path, target: &LockTarget, waited: Duration) -> Self {
        Registered { entry: Self::write(locks, target, waited).ok(), pid: host::process_id() }
    }

    fn write(locks: &Path, target: &LockTarget, waited: Duration) -> Result<(PathBuf, LockFile)> {
        let folder = locks.join(WAITS_FOLDER);
        drop(fs::create_dir(&folder));
        let path = folder.join(uuid::Uuid::new_v4().simple().to_string());
        let file = LockFile::open(&path)?;
        file.lock(Kind::Exclusive, Span::byte(0))?;
        let mut by = Holder::this_process();
        by.since_ms = by.since_ms.saturating_sub(waited.as_millis() as u64);
        file.write_text(&Waiter { target: *target, by, holder: None }.to_text())?;
        Ok((path, file))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let (Some((path, _)), true) = (&self.entry, self.pid == host::process_id()) {
            // What stays behind is removed by the next who lists waiters.
            drop(fs::remove_file(path));
        }
    }
}

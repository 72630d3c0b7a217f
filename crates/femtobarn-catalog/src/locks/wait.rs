//! Waiting for a lock, in turn and for a limited time.
//!
//! In front of each slot are [`STAIRS`] stairs, each of which one waiter can stand on. Who comes while
//! nobody waits stands on the lowest at once, others enter at the top and go down whenever the next
//! stair is free; from the lowest one takes the slot. So waiters are served in the order in which they
//! came, and whoever frees a slot and comes straight back finds the others in front of it. If there
//! are more waiters than stairs, chance decides who gets the topmost next.
//!
//! Those who share stand on stairs together, but behind somebody who wants the slot alone.
//!
//! The kernel's own waiting has no time limit that would not take a signal or another thread, so a
//! waiter looks again and again, but only at the one place in front of it. It pauses an eighth of what
//! it has waited there, so it waits little longer than it must; the further up, the longer at least,
//! and never longer than [`PAUSE_MAX`].
//!
//! Who has waited for [`REGISTER_AFTER`] says so in a file of `locks/waits`, for those who ask who
//! waits. It holds a lock on that file, so that what a killed process leaves can be told.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::WAITS_FOLDER;
use super::file::{Kind, LockFile, STAIRS, Span};
use super::holder::Holder;
use super::monitor::Waiter;
use super::target::LockTarget;
use crate::clock;
use crate::error::Result;
use crate::host;

/// First pause of who is next; so much longer on each stair further up.
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// Longest pause between two attempts to take a lock.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A pause is at most this part of the time waited on one stair so far.
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
    let mut waiting =
        Waiting { file, kind, target, locks, limit: wait, started: None, registered: None };
    let locked = waiting.go_down(target.slot());
    file.unlock(Span::stairs(target.slot()));
    Ok(if locked? { Ok(()) } else { Err(waiting.waited()) })
}

struct Waiting<'a> {
    file: &'a LockFile,
    kind: Kind,
    target: &'a LockTarget,
    locks: &'a Path,
    limit: Duration,
    /// None until something was locked.
    started: Option<Instant>,
    registered: Option<Registered>,
}

impl Waiting<'_> {
    fn waited(&self) -> Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }

    /// Whether it got the slot in time. It may be left standing on stairs.
    fn go_down(&mut self, slot: u64) -> Result<bool> {
        let mut stair = match self.file.try_lock(self.kind, Span::stairs(slot))? {
            true if self.file.try_lock(self.kind, Span::hold(slot))? => return Ok(true),
            true => {
                self.file.unlock(Span::stairs_above(slot, 0));
                0
            }
            false => match self.until_locked(Span::stair(slot, STAIRS - 1), STAIRS)? {
                true => STAIRS - 1,
                false => return Ok(false),
            },
        };
        while stair > 0 {
            if !self.until_locked(Span::stair(slot, stair - 1), stair)? {
                return Ok(false);
            }
            self.file.unlock(Span::stair(slot, stair));
            stair -= 1;
        }
        self.until_locked(Span::hold(slot), 0)
    }

    /// Whether it got the lock in time, from so far up.
    fn until_locked(&mut self, span: Span, stair: u64) -> Result<bool> {
        let mut here = None;
        let pause_min = PAUSE_MIN * (1 + stair as u32);
        while !self.file.try_lock(self.kind, span)? {
            let here = *here.get_or_insert_with(clock::now);
            self.started.get_or_insert(here);
            let waited = self.waited();
            if waited >= self.limit {
                return Ok(false);
            }
            if waited >= REGISTER_AFTER && self.registered.is_none() {
                self.registered = Some(Registered::new(self.locks, self.target, waited));
            }
            let pause = (here.elapsed() / PAUSE_DIVISOR).clamp(pause_min, PAUSE_MAX);
            clock::sleep(pause.min(self.limit - waited));
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

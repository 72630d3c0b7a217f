//! Waiting for a slot: in the order of arrival, and for a limited time.
//!
//! In front of each slot are [`STAIRS`] stairs, and one waiter can stand on each. A process that finds all stairs
//! free steps onto the lowest; otherwise it enters at the top and steps down whenever the next stair is free. From
//! the lowest stair it takes the slot.
//!
//! Invariants:
//! 1. Waiters are served in the order of arrival. A process that frees a slot and asks for it again finds the
//!    others in front of it.
//! 2. Waiters for a shared lock stand on one stair together, but behind a waiter for an exclusive lock.
//! 3. With more waiters than stairs, chance decides which of them gets the topmost stair next.
//!
//! The kernel cannot wait with a time limit except by a signal or another thread, so a waiter polls the one byte in
//! front of it. It pauses for an eighth of the time that it has stood there, so it waits at most an eighth longer
//! than it must; further up the pauses are longer, and none is longer than [`PAUSE_MAX`].

use std::path::Path;
use std::time::{Duration, Instant};

use super::file::{LockFile, LockKind, STAIRS, Span};
use super::target::LockTarget;
use super::waiters::Registration;
use crate::clock;
use crate::error::Result;

/// The first pause on the lowest stair; each stair further up adds as much.
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A pause is at most this part of the time waited on one stair so far.
const PAUSE_DIVISOR: u32 = 8;
/// How long a process waits before it registers as a waiter.
const REGISTER_AFTER: Duration = Duration::from_millis(10);

/// Locks the slot of `target`, or returns how long it waited in vain.
pub(super) fn acquire(
    file: &LockFile,
    kind: LockKind,
    target: &LockTarget,
    locks: &Path,
    wait: Duration,
) -> Result<std::result::Result<(), Duration>> {
    let mut descent =
        Descent { file, kind, target, locks, limit: wait, started: None, registration: None };
    let locked = descent.go_down(target.slot());
    file.unlock(Span::stairs(target.slot()));
    Ok(if locked? { Ok(()) } else { Err(descent.waited()) })
}

/// One waiter's way down the stairs to the slot.
struct Descent<'a> {
    file: &'a LockFile,
    kind: LockKind,
    target: &'a LockTarget,
    locks: &'a Path,
    limit: Duration,
    /// When the first lock was found taken; none until then.
    started: Option<Instant>,
    registration: Option<Registration>,
}

impl Descent<'_> {
    fn waited(&self) -> Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }

    /// Whether it got the slot in time. It may still hold stairs, which the caller frees.
    fn go_down(&mut self, slot: u64) -> Result<bool> {
        let mut stair;
        if self.file.try_lock(self.kind, Span::stairs(slot))? {
            if self.file.try_lock(self.kind, Span::hold(slot))? {
                return Ok(true);
            }
            self.file.unlock(Span::stairs_above(slot, 0));
            stair = 0;
        } else {
            stair = STAIRS - 1;
            if !self.lock_in_time(Span::stair(slot, stair), STAIRS)? {
                return Ok(false);
            }
        }
        while stair > 0 {
            if !self.lock_in_time(Span::stair(slot, stair - 1), stair)? {
                return Ok(false);
            }
            self.file.unlock(Span::stair(slot, stair));
            stair -= 1;
        }
        self.lock_in_time(Span::hold(slot), 0)
    }

    /// Whether it got the lock before the time limit, standing on `stair`.
    fn lock_in_time(&mut self, span: Span, stair: u64) -> Result<bool> {
        let mut here = None;
        let pause_min = PAUSE_MIN * (1 + stair as u32);
        while !self.file.try_lock(self.kind, span)? {
            let here = *here.get_or_insert_with(clock::now);
            self.started.get_or_insert(here);
            let waited = self.waited();
            if waited >= self.limit {
                return Ok(false);
            }
            if waited >= REGISTER_AFTER && self.registration.is_none() {
                self.registration = Some(Registration::new(self.locks, self.target, waited));
            }
            let pause = (here.elapsed() / PAUSE_DIVISOR).clamp(pause_min, PAUSE_MAX);
            clock::sleep(pause.min(self.limit - waited));
        }
        Ok(true)
    }
}

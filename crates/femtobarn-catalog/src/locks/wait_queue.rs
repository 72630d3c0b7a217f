//! Waiting for a slot, in the order of arrival.
//!
//! In front of each slot are [`STAIRS`] stairs, each with room for one waiter. A process that finds all stairs free
//! steps onto the lowest; otherwise it enters at the top and steps down whenever the next stair is free. From the
//! lowest stair it takes the slot.
//!
//! Invariants:
//! 1. Waiters on stairs are served in the order of arrival. A process that frees a slot and asks for it again is served
//!    after those that wait.
//! 2. Waiters for a shared lock share one stair, but stay behind a waiter for an exclusive lock.
//! 3. If the topmost stair is taken, since there are more waiters than stairs or those on the stairs have not moved on
//!    yet, chance decides which of the waiters before it gets it next.
//! 4. A waiter keeps its stair until it has the slot or gives up, whatever its thread does meanwhile.
//!
//! The kernel cannot wait with a time limit except by a signal or another thread, so a waiter asks again and again for
//! the one byte in front of it. [`Descent::step`] asks and never blocks; the caller pauses between two steps, and
//! decides how long to continue. In [`Descent::pause`] it sleeps until the holder of that byte frees it and rings its
//! bell ([`super::bells`]); a task that must not block a thread sleeps in its own way for [`Descent::pause_length`].
//! Without a ring a pause lasts an eighth of the waiter's time on this stair, so it waits at most an eighth longer than
//! necessary; further up the pauses are longer, and none is longer than [`PAUSE_MAX`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bells::{Bells, Listener};
use super::claim::OwnedFile;
use super::file::{LockKind, STAIRS, Span};
use super::target::LockTarget;
use super::waiters::Registration;
use crate::clock;
use crate::error::Result;

/// The first pause on the lowest stair, without a ring; each stair further up adds as much.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A pause is at most this part of the time waited on one stair so far.
const PAUSE_DIVISOR: u32 = 8;
/// The wait after which a process registers as a waiter.
const REGISTER_AFTER: Duration = Duration::from_millis(10);

/// Wakes the first waiter for a slot that was just freed.
pub(super) fn ring_for(target: &LockTarget, bells: Option<&Arc<Bells>>) {
    ring(target, bells, Span::hold(target.slot()));
}

fn ring(target: &LockTarget, bells: Option<&Arc<Bells>>, span: Span) {
    if let Some(bells) = bells {
        bells.ring(target, span.byte_in_slot());
    }
}

/// One waiter's way down the stairs to the slot. Dropping it frees its stair.
#[derive(Debug)]
pub(super) struct Descent {
    file: Arc<OwnedFile>,
    target: LockTarget,
    kind: LockKind,
    /// The byte that the waiter needs next; `None` before the first step.
    next: Option<NextByte>,
    /// When the first lock was found taken; `None` until then.
    started: Option<Instant>,
    registration: Option<Registration>,
}

/// The byte in front of a waiter.
#[derive(Debug)]
struct NextByte {
    /// The waiter's stair; [`STAIRS`] if it is before the topmost.
    stair: u64,
    /// When the byte was found taken; `None` until then.
    taken: Option<Instant>,
    /// The listener to the byte's bell, and the bell's count of rings before the last attempt; `None` before the first
    /// pause.
    listener: Option<(Listener, u32)>,
}

impl NextByte {
    fn from(stair: u64) -> Self {
        NextByte { stair, taken: None, listener: None }
    }

    fn span(&self, slot: u64) -> Span {
        match self.stair.checked_sub(1) {
            Some(next) => Span::stair(slot, next),
            None => Span::hold(slot),
        }
    }
}

impl Descent {
    /// A waiter for the slot of `target`. It has no stair before its first step.
    pub(super) fn new(file: &Arc<OwnedFile>, target: LockTarget, kind: LockKind) -> Self {
        let file = Arc::clone(file);
        Descent { file, target, kind, next: None, started: None, registration: None }
    }

    /// The time waited so far.
    pub(super) fn waited(&self) -> Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }

    /// Descends as far as is possible now; returns whether it got the slot.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the lock file cannot be used.
    pub(super) fn step(&mut self) -> Result<bool> {
        let mut next = match self.next.take() {
            Some(next) => next,
            None => match self.arrive()? {
                Some(next) => next,
                None => return Ok(true),
            },
        };
        while self.try_lock(next.span(self.target.slot()))? {
            if next.stair == 0 {
                return Ok(true);
            }
            if next.stair < STAIRS {
                self.leave(next.stair);
            }
            next = NextByte::from(next.stair - 1);
        }
        let taken = *next.taken.get_or_insert_with(clock::now);
        self.started.get_or_insert(taken);
        self.next = Some(next);
        let waited = self.waited();
        if waited >= REGISTER_AFTER && self.registration.is_none() {
            self.registration = Some(Registration::new(&self.file.folder, &self.target, waited));
        }
        Ok(false)
    }

    /// The pause before the next step, if no bell rings.
    pub(super) fn pause_length(&self) -> Duration {
        let Some(next) = &self.next else { return Duration::ZERO };
        let here = next.taken.map(|taken| taken.elapsed()).unwrap_or_default();
        (here / PAUSE_DIVISOR).clamp(PAUSE_MIN * (1 + next.stair as u32), PAUSE_MAX)
    }

    /// Pauses until it is time for the next step, for at most `limit`.
    pub(super) fn pause(&mut self, limit: Duration) {
        let pause = self.pause_length().min(limit);
        let slot = self.target.slot();
        let (Some(next), Some(bells)) = (&mut self.next, &self.file.bells) else {
            return clock::sleep(pause);
        };
        match &mut next.listener {
            Some((listener, rings)) => {
                listener.pause(*rings, pause);
                *rings = listener.rings();
            }
            // The bell may have rung before the waiter listened to it, so it asks once more.
            None => {
                let listener = bells.listen(&self.target, next.span(slot).byte_in_slot());
                let rings = listener.rings();
                next.listener = Some((listener, rings));
            }
        }
    }

    /// Takes the slot if there are no waiters; otherwise joins them. Returns the byte in front of it, unless it got the
    /// slot.
    fn arrive(&self) -> Result<Option<NextByte>> {
        let slot = self.target.slot();
        // Usually the slot and its stairs are free: one system call instead of two.
        if self.try_lock(Span::whole(slot))? {
            return Ok(None);
        }
        if !self.try_lock(Span::stairs(slot))? {
            return Ok(Some(NextByte::from(STAIRS)));
        }
        if self.try_lock(Span::hold(slot))? {
            return Ok(None);
        }
        self.file.file.unlock(Span::stairs_above(slot, 0));
        (1..STAIRS).for_each(|stair| self.ring(stair));
        Ok(Some(NextByte::from(0)))
    }

    fn try_lock(&self, span: Span) -> Result<bool> {
        self.file.file.try_lock(self.kind, span)
    }

    fn leave(&self, stair: u64) {
        self.file.file.unlock(Span::stair(self.target.slot(), stair));
        self.ring(stair);
    }

    fn ring(&self, stair: u64) {
        ring(&self.target, self.file.bells.as_ref(), Span::stair(self.target.slot(), stair));
    }
}

impl Drop for Descent {
    fn drop(&mut self) {
        if self.file.is_own() {
            self.file.file.unlock(Span::whole_but_hold(self.target.slot()));
            (0..STAIRS).for_each(|stair| self.ring(stair));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use super::super::file::LockFile;
    use super::super::table::LockTable;
    use super::*;
    use crate::ids::{ContainerId, DatabaseId};
    use crate::paths::LOCKS_FOLDER;

    const DATABASE: DatabaseId = DatabaseId(3);
    const CONTAINER: ContainerId = ContainerId(7);

    /// Blocks until exactly `count` waiters are on the stairs. A waiter before the topmost stair does not count. A
    /// waiter that moves down during a look is seen twice, so two looks have to be equal.
    fn until_standing(federation: &Path, count: usize) {
        let target = LockTarget::Container(DATABASE, CONTAINER);
        let path = federation.join(LOCKS_FOLDER).join(target.file_name());
        let file = LockFile::open_read_only(&path).unwrap();
        let stairs = Span::stairs(target.slot()).bytes();
        let look = || {
            let locked = file.locked_between(stairs.start, stairs.end).unwrap();
            let mut places: Vec<_> = locked.into_iter().map(|each| each.bytes.start).collect();
            places.sort_unstable();
            places
        };
        let mut before = look();
        loop {
            std::thread::sleep(Duration::from_millis(1));
            let now = look();
            if now.len() == count && now == before {
                break;
            }
            before = now;
        }
    }

    /// Each waiter queues again as soon as it has freed the lock, so the order of the rounds is certain.
    #[test]
    fn waiters_are_served_in_the_order_of_arrival() {
        const WAITERS: usize = 8;
        const ROUNDS: usize = 3;
        let folder = tempfile::tempdir().unwrap();
        let table = LockTable::new(folder.path());
        let order = Mutex::new(Vec::new());
        let lock = || table.lock_container(DATABASE, CONTAINER, Duration::from_secs(20)).unwrap();
        let held = lock();
        std::thread::scope(|scope| {
            for number in 0..WAITERS {
                let (lock, order, folder) = (&lock, &order, folder.path());
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let turn = lock();
                        let left = {
                            let mut order = order.lock().unwrap();
                            order.push(number);
                            WAITERS * ROUNDS - order.len()
                        };
                        // The previous holder is back on a stair, so its position is certain.
                        until_standing(folder, left.min(WAITERS - 1));
                        drop(turn);
                    }
                });
                until_standing(folder, number + 1);
            }
            drop(held);
        });
        let expected: Vec<_> = (0..ROUNDS).flat_map(|_| 0..WAITERS).collect();
        assert_eq!(order.into_inner().unwrap(), expected);
    }
}

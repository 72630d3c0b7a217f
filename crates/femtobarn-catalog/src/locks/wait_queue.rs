//! Waiting for a slot: in the order of arrival, and for a limited time.
//!
//! In front of each slot are [`STAIRS`] stairs, and one waiter can stand on each. A process that finds all stairs
//! free steps onto the lowest; otherwise it enters at the top and steps down whenever the next stair is free. From
//! the lowest stair it takes the slot.
//!
//! Invariants:
//! 1. Waiters on stairs are served in the order of arrival. A process that frees a slot and asks for it again finds the
//!    others in front of it.
//! 2. Waiters for a shared lock stand on one stair together, but behind a waiter for an exclusive lock.
//! 3. Of the waiters that find the topmost stair taken, since there are more waiters than stairs or those on the
//!    stairs have not moved on yet, chance decides which one gets it next.
//!
//! The kernel cannot wait with a time limit except by a signal or another thread, so a waiter polls the one byte in
//! front of it, and whoever frees that byte rings its bell ([`super::bells`]). If nobody rings, it pauses for an eighth
//! of the time that it has stood there, so it waits at most an eighth longer than it must; further up the pauses are
//! longer, and none is longer than [`PAUSE_MAX`].

use std::path::Path;
use std::time::{Duration, Instant};

use super::bells::{Bell, Bells, Listener};
use super::file::{LockFile, LockKind, STAIRS, Span};
use super::target::LockTarget;
use super::waiters::Registration;
use crate::clock;
use crate::error::Result;

/// The first pause on the lowest stair, if nobody rings; each stair further up adds as much.
const PAUSE_MIN: Duration = Duration::from_millis(1);
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
    (locks, bells): (&Path, Option<&Bells>),
    wait: Duration,
) -> Result<std::result::Result<(), Duration>> {
    let mut descent = Descent {
        file,
        kind,
        target,
        locks,
        bells,
        limit: wait,
        started: None,
        registration: None,
    };
    let locked = descent.go_down(target.slot());
    file.unlock(Span::stairs(target.slot()));
    (0..STAIRS).for_each(|stair| descent.ring(Span::stair(target.slot(), stair)));
    Ok(if locked? { Ok(()) } else { Err(descent.waited()) })
}

/// Wakes the first waiter for a slot that was just freed.
pub(super) fn ring_for(target: &LockTarget, bells: Option<&Bells>) {
    if let Some(bells) = bells {
        bell(bells, target, Span::hold(target.slot())).ring();
    }
}

fn bell<'a>(bells: &'a Bells, target: &LockTarget, span: Span) -> Bell<'a> {
    bells.bell(target, span.byte_in_slot())
}

/// One waiter's way down the stairs to the slot.
struct Descent<'a> {
    file: &'a LockFile,
    kind: LockKind,
    target: &'a LockTarget,
    locks: &'a Path,
    bells: Option<&'a Bells>,
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
            (1..STAIRS).for_each(|stair| self.ring(Span::stair(slot, stair)));
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
            self.ring(Span::stair(slot, stair));
            stair -= 1;
        }
        self.lock_in_time(Span::hold(slot), 0)
    }

    /// Whether it got the lock before the time limit, standing on `stair`.
    fn lock_in_time(&mut self, span: Span, stair: u64) -> Result<bool> {
        if self.file.try_lock(self.kind, span)? {
            return Ok(true);
        }
        let mut here = None;
        let pause_min = PAUSE_MIN * (1 + stair as u32);
        let listener = self.bells.map(|bells| bell(bells, self.target, span).listen());
        loop {
            let rings = listener.as_ref().map_or(0, Listener::rings);
            if self.file.try_lock(self.kind, span)? {
                return Ok(true);
            }
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
            let pause = pause.min(self.limit - waited);
            match &listener {
                Some(listener) => listener.pause(rings, pause),
                None => clock::sleep(pause),
            }
        }
    }

    fn ring(&self, span: Span) {
        if let Some(bells) = self.bells {
            bell(bells, self.target, span).ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::table::LockTable;
    use super::*;
    use crate::ids::{ContainerId, DatabaseId};
    use crate::paths::LOCKS_FOLDER;

    const DATABASE: DatabaseId = DatabaseId(3);
    const CONTAINER: ContainerId = ContainerId(7);

    /// Blocks until exactly `count` waiters stand on the stairs. One at the top that finds a stair taken does not.
    /// A waiter that moves down during a look is seen twice, so two looks have to be equal.
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

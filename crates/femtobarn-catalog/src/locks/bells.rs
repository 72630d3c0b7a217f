//! Bells: a waiter for a lock pauses until the holder rings, whichever processes of this host the two are in.
//!
//! The kernel cannot wait for a lock with a time limit, so waiters ask again and again ([`super::wait_queue`]). A bell
//! cuts a pause short. It is two numbers in `locks/bells`, a file that all processes map: the count of rings, on which
//! its waiters sleep (a futex), and the count of waiters. Ringing without waiters costs one load. Behind the bells of
//! locks are those of changes, for the committers that wait for the sync of the catalogue's log.
//!
//! Invariants:
//! 1. A ring is only a hint. There is no ring for a holder that was killed, or that does not know bells.
//! 2. No ring is missed: a waiter counts itself and notes the count of rings before it asks for the lock, and sleeps
//!    only while that count stays.
//! 3. Several locks may share a bell, and a killed waiter stays counted for ever: both cost needless rings.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::shared_numbers::{AtomicU32, SharedNumbers, sleep_while, wake_all};
use super::target::LockTarget;
use crate::ids::DatabaseId;

const FILE: &str = "bells";
/// Bells of locks.
const BELLS: usize = 512;
/// Bells of changes; more than committers wait for one sync, mostly.
const CHANGE_BELLS: usize = 64;
/// Bytes of a bell: the rings, and then the waiters.
const BELL_BYTES: usize = 8;

/// The bells of a federation.
#[derive(Debug)]
pub(super) struct Bells {
    numbers: SharedNumbers,
}

/// The bell of one lock.
#[derive(Clone, Copy)]
struct Bell<'a> {
    rings: &'a AtomicU32,
    waiters: &'a AtomicU32,
}

/// A waiter, until this is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    bells: Arc<Bells>,
    number: usize,
}

impl Bells {
    /// Opens the bells of the federation whose lock files are in `locks`; `None` if that fails.
    pub(super) fn open(locks: &Path) -> Option<Self> {
        let size = (BELLS + CHANGE_BELLS) * BELL_BYTES;
        Some(Bells { numbers: SharedNumbers::open(&locks.join(FILE), size).ok()? })
    }

    /// Wakes all waiters for a byte of the slot of `target`. The caller has freed it.
    pub(super) fn ring(&self, target: &LockTarget, byte: u64) {
        self.ring_number(number_of(target, byte));
    }

    /// Wakes all waiters for the sync of a change. The caller has made it durable, or passes the sync on to its
    /// committer.
    pub(super) fn ring_for_change(&self, change: u64) {
        self.ring_number(number_of_change(change));
    }

    fn ring_number(&self, number: usize) {
        let bell = self.bell(number);
        if bell.waiters.load(Ordering::SeqCst) > 0 {
            bell.rings.fetch_add(1, Ordering::SeqCst);
            // A waiter that is not woken asks again on its own.
            wake_all(bell.rings);
        }
    }

    /// Counts the caller among the waiters for a byte of the slot of `target`.
    pub(super) fn listen(self: &Arc<Self>, target: &LockTarget, byte: u64) -> Listener {
        self.listen_to(number_of(target, byte))
    }

    /// Counts the caller among the waiters for the sync of a change.
    pub(super) fn listen_for_change(self: &Arc<Self>, change: u64) -> Listener {
        self.listen_to(number_of_change(change))
    }

    fn listen_to(self: &Arc<Self>, number: usize) -> Listener {
        let listener = Listener { bells: Arc::clone(self), number };
        listener.bell().waiters.fetch_add(1, Ordering::SeqCst);
        listener
    }

    fn bell(&self, number: usize) -> Bell<'_> {
        let at = number * BELL_BYTES;
        Bell { rings: self.numbers.u32_at(at), waiters: self.numbers.u32_at(at + 4) }
    }
}

/// The number of the bell of a byte of the slot of `target`; below [`BELLS`].
fn number_of(target: &LockTarget, byte: u64) -> usize {
    let database = target.database().unwrap_or(DatabaseId(0));
    let key = (target.slot() << 6 | byte) ^ u64::from(database.0).rotate_right(20);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % BELLS
}

/// The number of the bell of a change; these follow the bells of locks.
fn number_of_change(change: u64) -> usize {
    BELLS + change as usize % CHANGE_BELLS
}

impl Listener {
    /// How many times the bell was rung.
    pub(super) fn rings(&self) -> u32 {
        self.bell().rings.load(Ordering::SeqCst)
    }

    /// Pauses until the bell has been rung more than `rings` times, for at most `pause`.
    pub(super) fn pause(&self, rings: u32, pause: Duration) {
        // The caller asks for the lock again, whatever ended the pause.
        sleep_while(self.bell().rings, rings, pause);
    }

    fn bell(&self) -> Bell<'_> {
        self.bells.bell(self.number)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.bell().waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::ids::ContainerId;

    const TARGET: LockTarget = LockTarget::Container(DatabaseId(3), ContainerId(7));
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_ring_through_one_file_ends_the_pause_of_a_waiter_through_another() {
        let folder = tempfile::tempdir().unwrap();
        let [rings, waits] = [(); 2].map(|()| Arc::new(Bells::open(folder.path()).unwrap()));
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let listener = waits.listen(&TARGET, 0);
                let before = listener.rings();
                tell.send(()).unwrap();
                listener.pause(before, LONG);
                tell.send(()).unwrap();
            });
            told.recv().unwrap();
            // The ring may be before or after the waiter falls asleep: it must not sleep on.
            rings.ring(&TARGET, 0);
            told.recv_timeout(Duration::from_secs(60)).expect("the waiter hears the bell");
        });
    }

    #[test]
    fn bells_ring_for_listeners_only() {
        let folder = tempfile::tempdir().unwrap();
        let bells = Arc::new(Bells::open(folder.path()).unwrap());
        drop(bells.listen(&TARGET, 0));
        bells.ring(&TARGET, 0);
        let listener = bells.listen(&TARGET, 0);
        assert_eq!(listener.rings(), 0);
        bells.ring(&TARGET, 0);
        assert_eq!(listener.rings(), 1);
        listener.pause(0, LONG);
        let other = bells.listen(&TARGET, 32);
        assert_eq!(other.rings(), 0, "a stair has a bell of its own");
    }
}

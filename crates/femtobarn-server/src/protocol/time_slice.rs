//! Short time slices for threads that serve connections, which yield to other threads between their requests.
//!
//! A thread with many connections finds the next request whenever it has answered one, so it does not sleep. The kernel
//! then takes the core from it only at a tick, every 4 ms, and its clients on the same machine, and the other threads
//! of this kind, wait for as long. A bare loop in C on two cores, beside its 8 clients, answered the slowest hundredth
//! of reads in 0.3 to 4 ms from run to run; with short slices and `sched_yield` in 0.3 ms, as a thread for each session
//! does. A thread that yields loses the rest of its slice, which must be short for that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::libc;

/// The shortest slice that Linux grants.
const SHORTEST: Duration = Duration::from_micros(100);

/// Threads and processes that this thread starts run for long, so they get the usual slices
/// (`SCHED_FLAG_RESET_ON_FORK`).
const FOR_THIS_ALONE: u64 = 1;

/// `struct sched_attr` of Linux, in its first version, for `sched_getattr` and `sched_setattr`.
#[repr(C)]
#[derive(Debug, Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The slice of a thread without real-time priority, in nanoseconds (since Linux 6.12).
    runtime: u64,
    deadline: u64,
    period: u64,
}

const ATTRIBUTES_BYTES: u32 = size_of::<SchedulingAttributes>() as u32;
const _: () = assert!(ATTRIBUTES_BYTES == 48);

/// The time slice of a thread that serves connections.
#[derive(Debug, Default)]
pub(super) struct TimeSlice {
    is_short: AtomicBool,
}

impl TimeSlice {
    /// Shortens the slices of this thread, if the kernel can do that.
    pub(super) fn shorten(&self) {
        self.is_short.store(shortened().is_some(), Ordering::Relaxed);
    }

    /// Lets a waiting thread have the core of this one.
    pub(super) fn make_way(&self) {
        if self.is_short.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}

/// Shortens the slices of this thread; `None` if they are as long as before.
fn shortened() -> Option<()> {
    let before = attributes()?;
    let policy = i32::try_from(before.policy).ok()?;
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&policy) {
        return None;
    }
    let runtime = SHORTEST.as_nanos() as u64;
    let flags = before.flags | FOR_THIS_ALONE;
    set_attributes(&SchedulingAttributes { runtime, flags, ..before });
    // A kernel without support for slices accepts them, too, and ignores them.
    (attributes()?.runtime == runtime).then_some(())
}

/// The attributes of this thread.
fn attributes() -> Option<SchedulingAttributes> {
    let mut attributes = SchedulingAttributes::default();
    let (this, flags) = (0, 0);
    // SAFETY: the kernel writes at most the given number of bytes.
    let got = unsafe {
        libc::syscall(libc::SYS_sched_getattr, this, &raw mut attributes, ATTRIBUTES_BYTES, flags)
    };
    (got == 0).then_some(attributes)
}

fn set_attributes(attributes: &SchedulingAttributes) {
    let (this, flags) = (0, 0);
    // SAFETY: the kernel reads as many bytes as the attributes say that they have.
    let set =
        unsafe { libc::syscall(libc::SYS_sched_setattr, this, &raw const *attributes, flags) };
    // If this fails, the slice is as long as before, which the caller checks.
    let _ = set;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_makes_way_if_its_slice_became_short_and_its_priority_stays() {
        let tried = std::thread::spawn(|| {
            let before = attributes().expect("every kernel tells them");
            let slice = TimeSlice::default();
            slice.shorten();
            slice.make_way();
            let after = attributes().expect("every kernel tells them");
            assert_eq!((before.policy, before.nice), (after.policy, after.nice));
            let is_short = after.runtime == SHORTEST.as_nanos() as u64;
            assert_eq!(slice.is_short.load(Ordering::Relaxed), is_short);
            let begun = std::thread::spawn(|| attributes().expect("every kernel tells them"));
            assert_eq!(begun.join().unwrap().runtime, before.runtime);
        });
        tried.join().unwrap();
    }
}

//! What a history must not depend on: the addresses that the kernel chooses, and the programs that other threads of
//! this process start.

use std::io;
use std::panic::resume_unwind;
use std::thread;

use nix::errno::Errno;
use nix::libc;
use nix::sys::personality::{self, Persona};

/// The first descriptor after the standard ones.
const FIRST_OWN: libc::c_uint = 3;

/// Whether simulated processes have their memory at the same addresses in every run. If the kernel refuses that, as in
/// some containers, two histories of the same seed may differ.
pub fn are_addresses_kept() -> bool {
    // This changes only the new thread, and processes that it starts.
    thread::spawn(use_the_same_addresses).join().is_ok_and(|is_kept| is_kept)
}

/// Gives the program that this thread starts the same addresses in every run, because the behaviour of some programs
/// depends on the addresses that they wait at. Returns whether the kernel allows it.
pub(super) fn use_the_same_addresses() -> bool {
    personality::get()
        .and_then(|current| personality::set(current | Persona::ADDR_NO_RANDOMIZE))
        .is_ok()
}

/// Does some work in a thread that has its own table of descriptors, with only the standard ones in it. A program that
/// another thread starts has copies of all descriptors of that thread for a moment: copies of simulated connections
/// would keep their ends from being seen.
///
/// # Errors
/// Those of the system.
pub(super) fn with_own_descriptors<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let isolated = || {
        let flags = libc::CLOSE_RANGE_UNSHARE as libc::c_int;
        // SAFETY: it closes descriptors in the new table only, where nothing owns them yet.
        Errno::result(unsafe { libc::close_range(FIRST_OWN, libc::c_uint::MAX, flags) })?;
        Ok(work())
    };
    thread::scope(|scope| scope.spawn(isolated).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

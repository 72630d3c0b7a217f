//! Replaces functions of the C library, between this program and the kernel.
//!
//! | module | functions of the C library |
//! |---|---|
//! | `c_library` | functions that change files, which `watch` records |
//! | `threads` | start and end of threads, waits between threads, random numbers |
//! | `waits` | clocks, sleeps and waits for descriptors |
//! | `sockets` | connections |
//!
//! In a simulation, the last three ask it by `turns`, and follow its answers. Without a simulation they forward to the
//! kernel.
//!
//! The linker takes the first definition of a name that it finds, and the program's own comes before the C library's.

mod c_library;
mod sockets;
mod threads;
mod turns;
mod waits;
mod watch;

pub(crate) use turns::start as simulate;
pub(crate) use watch::{OperationRecord, Watch, acknowledge, lift, start, stop};

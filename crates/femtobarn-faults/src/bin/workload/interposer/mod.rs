//! Stands between this program and the kernel.
//!
//! | module | functions of the C library |
//! |---|---|
//! | `c_library` | those that change files, as `watch` says |
//! | `threads` | threads, their waits for each other, and random numbers |
//! | `waits` | clocks, sleeps and waits for descriptors |
//! | `sockets` | connections |
//!
//! The last three do what the simulation says, which `turns` asks; without a simulation they forward to the kernel.
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

//! The pieces of Femtobarn that threads and processes share, run in every order of their steps up to a bound. It has nothing for users.
//!
//! The files of the pieces are those of the product, compiled once more with other threads, mutexes, condition variables, atomic
//! numbers, locks of the kernel and futexes: those of loom, which runs a scenario again and again until it has seen every
//! order, up to a number of preemptions, and what each load may return under the memory model. Nothing is timed: a wait that
//! only its time-out would end is a deadlock here, which fails.
//!
//! | scenarios | pieces | what has to hold |
//! |---|---|---|
//! | [`local`] | group commit of a process | every commit has one result, in the order of submission |
//! | [`locks`] | the turn to commit, the sync of the log, bells | a change is durable before it is acknowledged; nobody sleeps on |
//! | [`logical`] | the server's table of locks | exclusion, and every cycle of waits is found |
//! | [`prefetch`] | buffers that are fetched ahead | a reader gets its bytes or none, and no reader waits for ever |
//!
//! A piece imports mutexes from `parking_lot`, which is this crate here, and the rest from the files that its folder has here
//! under the same names.

extern crate self as parking_lot;

mod kernel;
pub mod local;
pub mod locks;
pub mod logical;
pub mod prefetch;
mod sync;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use sync::{Condvar, Mutex, MutexGuard};

/// What the pieces of the catalogue import from their crate.
mod error {
    pub(crate) use femtobarn_catalog::{Error, Result};
}

mod commit {
    pub(crate) use femtobarn_catalog::Commit;
}

mod ids {
    pub(crate) use femtobarn_catalog::{Csn, DatabaseId};
}

/// What the buffers of the engine import from their crate.
mod storage {
    pub(crate) mod remote {
        pub(crate) mod cached_file {
            pub(crate) use crate::prefetch::ServedFile as CachedRemoteFile;
        }
    }
}

/// Runs a scenario in every order of the steps of its threads with at most so many preemptions (a thread that waits or ends
/// is none), and prints how many there were.
///
/// # Panics
/// With the first order in which the scenario panics, or all its threads wait.
pub(crate) fn explore(what: &str, preemptions: usize, scenario: impl Fn() + Sync + Send + 'static) {
    let orders = Arc::new(AtomicU64::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let counted = Arc::clone(&orders);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        scenario();
    });
    let orders = orders.load(Ordering::Relaxed);
    println!("{what}: {orders} orders with at most {preemptions} preemptions");
}

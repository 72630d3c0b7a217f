//! Locks between writers, and pins of readers. Locks are politeness: they save transactions work that the commit would
//! refuse.
//!
//! On a host that has the federation's folder, locks are byte ranges of small files in its `locks` folder, locked in
//! the kernel for an *open file description*: a few microseconds, and no server. Elsewhere a server keeps the locks on
//! a lease ([`LeasedLocks`]). Most locks are *slots* of 64 bytes: the holder of a slot locks its first 16 bytes, and
//! each waiter one of the 16 bytes from byte 32.
//!
//! | file | slot or byte | locks |
//! |---|---|---|
//! | `locks/<database id>` | slot 0 | the allocation of space in the database's file |
//! | `locks/<database id>` | slot 1 | the database: shared by transactions, or exclusive |
//! | `locks/<database id>` | slot: container id + 1 | a container, for the transaction that writes it |
//! | `locks/maintenance` | slot 0 | the federation: shared by backups, exclusive for vacuum |
//! | `locks/snapshots` | the byte at a CSN | shared: a process reads that snapshot |
//! | `locks/commit` | slots 0 and 1 | the turn to commit |
//! | `locks/commit` | slot 2 | the sync of the catalogue's log |
//! | `locks/commit` | slot 4 | the writing back of bytes that the catalogue's log has |
//! | `locks/commit` | slot 5 | moving the catalogue to another place |
//! | `locks/recent` | | none: the rows that the last changes of the catalogue touched |
//! | `locks/bells` | | none: rung when a lock is freed or the log synced, for the waiters |
//! | `locks/servers/<name>` | slot 0 | shared: the server of that name runs here |
//! | `locks/waits/*` | byte 0 | the process that the file describes is waiting |
//!
//! Invariants:
//! 1. Safety never rests on a lock of a container: the version check of the commit does that.
//! 2. When a process dies, the kernel frees its locks, so nothing has to be repaired. The lock files of dropped
//!    databases stay until a vacuum removes them.
//! 3. Every [`LockOwner`] has an open file description of its own, so two transactions of one process exclude each
//!    other as two processes do.
//! 4. The 64 bytes of a slot name its exclusive holder, for error messages. They are written after the lock is
//!    taken, and stay there; they mean nothing while the slot is not locked exclusively.
//!
//! A guard must not be used after a fork. The child shares the open file description: its copy of the guard neither
//! frees the lock when dropped, nor keeps it after the parent has freed it, but if the parent is killed the lock stays
//! until the child's copy is closed. Pins are the exception.
//!
//! Lock order: maintenance, databases, containers (all with a time-out, so any order will do), then allocation, moving
//! (which is never waited for), writing back, the turn to commit, and the sync of the log. A thread that holds a later
//! lock never waits for an earlier one.
//!
//! Modules, from below: `record`, `target` and `shared_numbers`; `file`, a lock file; `bells`, `claim`, `waiters` and
//! `wait_queue`; `monitor`, which lists holders; `kernel` and `leased`, the two backends of `owner`, `table` and
//! `pins`; beside these `commit_turn`, `file_turn`, `log_progress`, `presence` and `recent_changes`, which the catalogue alone
//! uses.

mod backend;
mod bells;
mod claim;
mod commit_turn;
mod file;
mod file_turn;
mod kernel;
mod leased;
mod log_progress;
mod monitor;
mod owner;
mod pins;
mod presence;
mod recent_changes;
mod record;
mod shared_numbers;
mod table;
mod target;
mod wait_queue;
mod waiters;

pub(crate) use commit_turn::CommitTurns;
pub use file::LockKind;
pub(crate) use file_turn::{FileTurn, TurnKind};
pub use leased::{LeasedLocks, LeasedPins, NewestRows};
pub(crate) use log_progress::{LogNumbers, LogProgress, SharedLogNumbers};
pub use monitor::HeldLock;
pub use owner::{LockGuard, LockOwner, LockStep, LockWait};
pub use pins::{PinGuard, SnapshotPins};
pub(crate) use presence::{ServerPresence, ended_servers};
pub(crate) use recent_changes::{
    LOG_STATE_WORDS, LogState, RecentChanges, RecentPage, TouchedRows,
};
pub use table::LockTable;
pub(crate) use target::LockCatalogue;
pub use target::LockTarget;
pub use waiters::Waiter;

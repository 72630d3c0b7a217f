//! The locks of remote sessions: a table in memory, above the locks of the kernel.
//!
//! | module | contents |
//! |---|---|
//! | `deadlock` | owners, and cycles in the graph of their waits |
//! | `shards` | a map that threads share with little contention |
//! | `table` | holders and queues of all locks, in shards |
//! | `kernel` | the kernel's locks that the server holds for all its sessions |
//!
//! Locks of containers are in the table only. Local processes in the same folder do not see them; between a session and
//! such a process the version check of the commit decides. Locks of containers are politeness, and to take them in the
//! kernel, too, would cost more than everything else. Locks of databases, of allocation and of maintenance protect
//! data, and are in both.
//!
//! Lock order: waits, then shards. No thread holds two shards.

mod deadlock;
mod kernel;
mod shards;
mod table;
#[cfg(test)]
mod tests;

pub use deadlock::{OwnerId, WaitEdge, deadlocks};
pub use kernel::ServerKernelLocks;
pub use table::{LockAnswer, QueuedRequest, SessionLockTable, TableEntry, WaitingRequest};

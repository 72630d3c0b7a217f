//! The locks of remote sessions: a table in memory, above the locks of the kernel.
//!
//! | module | what |
//! |---|---|
//! | `table` | who holds what and who waits, in shards |
//! | `cycle` | whether a wait would never end |
//! | `kernel` | what the server holds of the kernel's locks, for all its sessions together |
//!
//! Locks of containers are in the table only: local processes on the same folder do not see them, and
//! the version check of the commit decides between the two. To have them in the kernel would cost more
//! than all the rest, and they are only politeness. Locks of databases, of allocation and of maintenance
//! are more than that, and are in both.
//!
//! Lock order: waits, then shards, of which nobody holds two.

mod cycle;
mod kernel;
mod table;
#[cfg(test)]
mod tests;

pub use kernel::KernelLocks;
pub use table::{Answer, Held, Owner, Table, Waiting};

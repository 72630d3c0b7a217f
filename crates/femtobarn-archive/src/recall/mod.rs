//! Recall: stages databases in the order of their tapes, fairly between users.
//!
//! `queue` decides which request is next, without threads or clocks; `recaller` has the threads that stage, and makes
//! estimates; `rates` measures the times that these are based on; `wanted` is a client's wish with its deadline;
//! `excerpt` is shown to people. `evictor` removes files from the disk on behalf of clients.

mod evictor;
mod excerpt;
mod queue;
mod rates;
mod recaller;
mod wanted;

pub use evictor::{EvictionCounts, EvictionReport, Evictor, PendingEviction};
pub use excerpt::{QueueExcerpt, QueuedRecall};
pub use queue::{Recall, RecallQueue, Tape};
pub use recaller::{RecallCounts, Recaller};
pub use wanted::{Deadline, WantedBy};

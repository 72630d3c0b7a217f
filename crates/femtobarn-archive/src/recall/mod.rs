//! Recall: databases come back to the disk in the order of their tapes, fairly between users.
//!
//! `queue` decides which request is next, without threads or clocks; `recaller` has the threads that stage, and the
//! estimates; `rates` measures what these are made of; `wanted` is who asks, and until when; `excerpt` is what people see.
//! `evictor` removes files from the disk for whoever asks.

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

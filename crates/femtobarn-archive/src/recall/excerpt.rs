//! [`QueueExcerpt`]: what is shown of a queue to people.

use std::time::Duration;

use super::queue::{Recall, Tape};

/// The first recalls of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueExcerpt {
    /// The tapes that are mounted; objects of stores without tapes, too.
    pub mounted: Vec<Tape>,
    /// The recalls that are being carried out, and then those that wait, in about the order in which their turns come.
    pub recalls: Vec<QueuedRecall>,
}

/// A recall in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedRecall {
    /// What is wanted, and by whom.
    pub recall: Recall,
    /// Whether it is being carried out.
    pub is_running: bool,
    /// How long ago it was asked for.
    pub age: Duration,
    /// How long it will still take, by the estimate that was made then.
    pub remaining: Duration,
}

//! [`QueueExcerpt`]: the part of a queue that is shown to people.

use std::time::Duration;

use super::queue::{Recall, Tape};

/// The first recalls of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueExcerpt {
    /// The tapes that are mounted; objects of stores without tapes, too.
    pub mounted: Vec<Tape>,
    /// The recalls that are being carried out, then those that wait, in about the order in which their turns come.
    pub recalls: Vec<QueuedRecall>,
}

/// A recall in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedRecall {
    /// The recall, with its database and user.
    pub recall: Recall,
    /// Whether it is being carried out.
    pub is_running: bool,
    /// The time since it was asked for.
    pub age: Duration,
    /// The time that it will still take, by the estimate made when it was asked for.
    pub remaining: Duration,
}

//! The settings of a follower, and the result of one of its steps.

use std::time::Duration;

use femtobarn_catalog::Csn;

/// The settings of a follower.
#[derive(Clone, Debug)]
pub struct FollowOptions {
    /// The URL under which this copy is served, `root://host:port//federation`, or its name; the leader lists it.
    pub name: String,
    /// How long to wait for a leader that does not answer.
    pub timeout: Duration,
    /// How long readers of this copy may hold up the reuse of space that the leader has given out while the two were
    /// not connected. After that, they find damaged pages.
    pub reader_patience: Duration,
}

impl Default for FollowOptions {
    fn default() -> Self {
        FollowOptions {
            name: String::new(),
            timeout: Duration::from_secs(30),
            reader_patience: Duration::from_secs(60),
        }
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The newest commit here.
    pub at: Csn,
    /// The newest commit of the leader when it was asked.
    pub head: Csn,
    /// Bytes of files that were copied.
    pub bytes: u64,
    /// Pages that are damaged at the leader, and so are here.
    pub damaged_pages: u64,
}

//! New versions of whole RNTuples, made of old ones.
//!
//! Invariants:
//! 1. Entries keep their numbers.
//! 2. Nothing that the old version refers to is written again, so it stays what it is; what does not
//!    change is shared by both.

mod cluster;
mod compile;
mod complete;
mod evolve;
mod fill;
mod groups;
mod numbers;
mod plan;
mod widening;

pub use complete::{DELETED_FIELD, complete};
pub use evolve::{Evolved, evolve};
pub use plan::{Change, ChangeKind, Member, Origin, Plan, plan};

use crate::locator::EnvelopeLink;

/// Where the version that was made of another one, with the same header, is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revised {
    /// The footer envelope.
    pub footer: EnvelopeLink,
    /// Bytes of pages and envelopes that were written.
    pub bytes: u64,
    /// Clusters of the old version.
    pub clusters_before: u64,
    /// Clusters of the new version.
    pub clusters: u64,
}

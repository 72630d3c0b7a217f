//! New versions of whole RNTuples, made of old ones.
//!
//! Invariants:
//! 1. Entries keep their numbers.
//! 2. Nothing that the old version refers to is written again, so it stays what it is; what does not
//!    change is shared by both.

mod cluster;
mod compact;
mod compile;
mod complete;
mod conversion;
mod evolve;
mod fill;
mod groups;
mod numbers;
mod plan;
mod widening;

pub use compact::{Compaction, compact};
pub use complete::{Completed, DELETED_FIELD, complete};
pub use conversion::{Conversion, convert_array};
pub use evolve::{Evolved, evolve};
pub use plan::{ChangeKind, EvolutionPlan, FieldChange, Nesting, NewMember, ValueOrigin, plan};

use crate::locator::EnvelopeLink;
use crate::summary::ClusterSummary;

/// Where the version that was made of another one, with the same header, is described.
#[derive(Clone, Debug, PartialEq)]
pub struct Revised {
    /// The footer envelope.
    pub footer: EnvelopeLink,
    /// Bytes of pages and envelopes that were written.
    pub bytes: u64,
    /// Clusters of the old version.
    pub clusters_before: u64,
    /// Clusters of the new version.
    pub clusters: u64,
    /// What is known of the clusters whose entries were written anew.
    pub summaries: Vec<ClusterSummary>,
}

impl Revised {
    /// The version is what it was.
    fn nothing(footer: EnvelopeLink, clusters: u64) -> Self {
        Revised { footer, bytes: 0, clusters_before: clusters, clusters, summaries: vec![] }
    }
}

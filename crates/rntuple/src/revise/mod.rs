//! New versions of RNTuples from old ones, and conversion of arrays.
//!
//! `evolve` changes types, by a `plan` (with `widening` of numbers) that `compile` maps to columns, with
//! constant columns of `fill`. `compact` makes fewer clusters, `complete` a version for other readers;
//! all three write `groups`. `conversion` applies a plan to arrays, with `numbers`.
//!
//! Invariants:
//! 1. Entries keep their numbers.
//! 2. Nothing that the old version refers to is written again, so it stays readable; unchanged pages are
//!    shared by both versions.

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

/// A version that was made of another one, with the same header.
#[derive(Clone, Debug, PartialEq)]
pub struct Revised {
    /// Location of the footer envelope.
    pub footer: EnvelopeLink,
    /// Bytes of pages and envelopes that were written.
    pub bytes: u64,
    /// Clusters of the old version.
    pub clusters_before: u64,
    /// Clusters of the new version.
    pub clusters: u64,
    /// Summaries of the clusters whose entries were rewritten.
    pub summaries: Vec<ClusterSummary>,
}

impl Revised {
    /// The old version, because there was nothing to do.
    fn unchanged(footer: EnvelopeLink, clusters: u64) -> Self {
        Revised { footer, bytes: 0, clusters_before: clusters, clusters, summaries: vec![] }
    }
}

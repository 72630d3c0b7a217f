//! Series of conditions: containers whose objects are valid for a range of a clock.
//!
//! A container is a series if its options say so. Its class then begins with the fields of [`VALIDITY_FIELDS`].

use serde::{Deserialize, Serialize};

/// The first fields of a series' class: the validity of an object and its channel. All are `int64`.
pub const VALIDITY_FIELDS: [&str; 3] = ["since", "until", "channel"];

/// The field behind them in a container of a branch, `int64`: the condition of the containers behind it that the
/// object replaces; -1 for none.
pub const REPLACED_FIELD: &str = "replaced_entry";

/// The clock that the validities of a series refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeriesClock {
    /// Nanoseconds since 1970 (UTC).
    #[default]
    Time,
    /// A run number in the upper, a luminosity block in the lower 32 bits.
    Run,
}

/// What validities of one channel that overlap mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// The object that was inserted last hides the others.
    #[default]
    Newest,
    /// A validity ends where the next one begins. Of objects with the same beginning, the last one is valid.
    Open,
    /// Writers refuse them.
    Refuse,
}

/// What makes a container a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesOptions {
    /// The clock of the validities.
    pub clock: SeriesClock,
    /// The meaning of validities that overlap.
    pub overlap: Overlap,
    /// Whether the container has what a branch changed of a series, and is read before the containers behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_branch: bool,
}

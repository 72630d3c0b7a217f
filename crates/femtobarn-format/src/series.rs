//! Series of conditions: containers whose objects are valid for a range of a clock.
//!
//! A container is a series if its options have [`SeriesOptions`]. Its class then begins with the fields of
//! [`VALIDITY_FIELDS`].

use serde::{Deserialize, Serialize};

/// The first fields of a series' class: the validity of an object and its channel. All are `int64`.
pub const VALIDITY_FIELDS: [&str; 3] = ["since", "until", "channel"];

/// The field after them in a container of a branch, `int64`: the entry, counted through the containers behind it, of
/// the condition that the object replaces; -1 for none.
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

/// The rule for overlapping validities of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// The object that was inserted last hides the earlier ones.
    #[default]
    Newest,
    /// A validity ends where the next one begins. Of objects with the same beginning, the last one is valid.
    Open,
    /// Writers refuse overlapping validities.
    Refuse,
}

/// The options by which a container is a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesOptions {
    /// The clock of the validities.
    pub clock: SeriesClock,
    /// The rule for overlapping validities.
    pub overlap: Overlap,
    /// Whether the container holds a branch's changes of a series, and is read before the containers behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_branch: bool,
}

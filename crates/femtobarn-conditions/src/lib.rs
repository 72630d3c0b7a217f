//! Conditions: the calibration, detector state or slow-control value that was valid at a time, as of any commit.
//!
//! # Map
//!
//! A module may import those above it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `timeline` | [`Interval`]; the rows of a series resolved to disjoint segments, by channel |
//! | `class` | [`series_class`]: the class of a series' objects, from the class of its payload |
//! | `sources` | the containers that a series is read from: its own, and those of branches in front of it |
//! | `timelines` | the timelines that a process keeps, within a budget of bytes |
//! | `windows` | the parts of a series' clock that are read together |
//! | `series` | [`Series`], [`SeriesCursor`]: look-ups in one series as of a snapshot |
//! | `version_names` | the name of a series' version, the same for ever |
//! | `global_tag` | [`GlobalTag`]: names for a version of every series, with their history |
//! | `job` | [`Job`]: a global tag that was resolved once, and its series |
//! | `series_tables` | the containers of all series as of commits, from rows of the catalogue |
//! | `listed_series` | [`ListedSeries`]: the series of a job with their versions, from such rows |
//! | `http` | [`routes`]: conditions over HTTP, for programs without XRootD and for caches |
//!
//! 1. An answer depends on the snapshot and the arguments alone, never on later commits or on caches.
//! 2. A validity is half-open: `since <= t < until`. A time without a valid object is an answer, too: a gap.
//! 3. Entries of a container are in the order of their commits, so of two objects the later entry is the newer.

mod class;
mod clock;
mod global_tag;
mod http;
mod job;
mod listed_series;
mod series;
mod series_tables;
mod sources;
mod timeline;
mod timelines;
mod version_names;
mod windows;

pub use class::{payload_class, series_class};
pub use global_tag::{
    BranchSeries, BranchVersion, GlobalTag, GlobalTagState, SeriesVersion, TagChange,
};
pub use http::routes;
pub use job::{Job, JobOptions};
pub use listed_series::{ListedContainer, ListedSeries};
pub use series::{Series, SeriesCursor};
pub use timeline::{Interval, Timeline, ValidityRow};

//! Keeping: what moves databases between the disk and the stores.
//!
//! `archive` is [`Archive`] with what it knows; `migrate`, `stage` and `evict` add the movements, each under the
//! database's lock; `rules` applies the settings, `keeper` again and again; `generations` marks the stores of a leader;
//! `away` knows stores that do not answer; `lease` tells whether a process has a file open.

mod archive;
mod away;
mod evict;
mod generations;
mod keeper;
mod lease;
mod migrate;
mod rules;
mod stage;

pub use archive::Archive;
pub use keeper::RuleKeeper;
pub use rules::Applied;
pub use stage::{is_staging_path, remove_staged, staging_path};

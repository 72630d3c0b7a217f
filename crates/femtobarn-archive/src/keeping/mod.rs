//! Moves databases between the disk and the stores.
//!
//! `archive` is [`Archive`] with its look-ups; `migrate`, `stage` and `evict` add the movements, each under the
//! database's lock; `rules` applies the settings once, `keeper` repeatedly; `generations` marks the stores of a leader;
//! `silent_stores` records stores that do not answer; `lease` finds out whether a process has a file open.

mod archive;
mod evict;
mod generations;
mod keeper;
mod lease;
mod migrate;
mod rules;
mod silent_stores;
mod stage;

pub use archive::Archive;
pub use keeper::RuleKeeper;
pub use rules::Applied;
pub use stage::{is_staging_path, remove_staged, staging_path};

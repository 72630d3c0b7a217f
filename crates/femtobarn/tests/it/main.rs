//! Tests of the engine at its public seam.

#![allow(clippy::unwrap_used)]

mod backups;
mod changes;
mod check;
mod commits;
mod compaction;
mod conflicts;
mod cursors;
mod deletions;
mod detach;
mod evolution;
mod faults;
mod forks;
mod growth;
mod history;
mod index_model;
mod indexes;
mod isolation;
mod large;
mod link_resolution;
mod link_rows;
mod links;
mod model;
mod names;
mod naming;
mod nearline;
mod places;
mod power;
mod processes;
mod rebuild;
mod repair;
mod row_types;
mod savepoints;
mod seal;
mod statistics;
mod support;
mod threads;
mod types;
mod updates;
mod vacuum;
#[path = "../../../rntuple/tests/it/values.rs"]
#[allow(dead_code)]
mod values;
mod writers;

//! Tests of the public interface.

#![allow(clippy::unwrap_used)]

mod allocations;
mod baskets;
mod codecs;
mod cursors;
mod damage;
mod editing;
mod evolution;
mod hostile;
mod hostile_schemas;
mod many_versions;
mod parts;
mod real_files;
mod remote;
mod representations;
mod revision_compact;
mod revision_complete;
mod revision_convert;
mod revision_hostile;
mod revision_model;
mod round_trips;
mod sample;
mod savepoints;
mod seeds;
mod shared;
mod store;
mod tfile;
mod values;
mod versions;
mod widened;

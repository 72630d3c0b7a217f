//! Tests of the crate's public face.

#![allow(clippy::unwrap_used)]

mod allocations;
mod baskets;
mod codecs;
mod cursors;
mod damage;
mod editing;
mod far;
mod hostile;
mod many_versions;
mod real_files;
mod representations;
mod revising;
mod revising_compact;
mod revising_complete;
mod revising_convert;
mod revising_hostile;
mod revising_model;
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

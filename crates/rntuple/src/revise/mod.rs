//! New versions of whole RNTuples, made of old ones.
//!
//! Invariants:
//! 1. Entries keep their numbers.
//! 2. Nothing that the old version refers to is written again, so it stays what it is; what does not
//!    change is shared by both.

mod compile;
mod evolve;
mod fill;
mod groups;
mod numbers;
mod plan;
mod widening;

pub use evolve::{Evolved, evolve};
pub use plan::{Change, ChangeKind, Member, Origin, Plan, plan};

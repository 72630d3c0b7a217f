//! Objects of one version of a class as those of another.

pub(crate) mod evolution;
pub(crate) mod narrowing;

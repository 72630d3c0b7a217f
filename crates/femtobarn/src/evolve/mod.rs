//! Conversion of objects between versions of their class: `evolution` of stored objects, `narrowing` for readers.

pub(crate) mod evolution;
pub(crate) mod narrowing;

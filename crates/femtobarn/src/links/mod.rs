//! Links between objects: `translate` converts them between their stored form and the one that users see, `row` has
//! links as members of Rust rows.

pub(crate) mod row;
pub(crate) mod translate;

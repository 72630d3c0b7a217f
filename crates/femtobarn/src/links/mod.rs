//! Links between objects: as they are stored, and as users have them.

pub(crate) mod row;
pub(crate) mod translate;

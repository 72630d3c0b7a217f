//! What operators do: giving back space, checking, mending, copying, making the catalogue again.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod compaction;
pub(crate) mod rebuild;
pub(crate) mod repair;
pub(crate) mod republication;
pub(crate) mod vacuum;

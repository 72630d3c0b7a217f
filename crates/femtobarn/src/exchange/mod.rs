//! Files that others write and read: taken in, given away, made complete.

pub(crate) mod attach;
pub(crate) mod detach;
pub(crate) mod export;
pub(crate) mod seal;

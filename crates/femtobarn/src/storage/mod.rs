//! Database files: what lies where in them, who may write where, and how their bytes are read and written.

pub(crate) mod commit_record;
pub(crate) mod extent;
pub(crate) mod file;
pub(crate) mod identify;
pub(crate) mod key_chain;
pub(crate) mod open_files;
pub(crate) mod places;
pub(crate) mod remote;
pub(crate) mod scan;

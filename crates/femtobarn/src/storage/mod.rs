//! Database files: the bytes in them, and which writer owns which of them.
//!
//! `file` is a file on this machine or on a server, `file_source` the bytes of one, `open_files` the files that a
//! process keeps open, `places` their folders, `remote` the files on a server. `extent` writes blobs, `key_chain`
//! repairs the chain of keys, `commit_record` repeats a commit in a file, `scan` finds these records, `identify`
//! describes a file, `nearline` explains why a file is not on the disk.

pub(crate) mod commit_record;
pub(crate) mod extent;
pub(crate) mod file;
pub(crate) mod file_source;
pub(crate) mod identify;
pub(crate) mod key_chain;
pub(crate) mod nearline;
pub(crate) mod open_files;
pub(crate) mod places;
pub(crate) mod remote;
pub(crate) mod scan;

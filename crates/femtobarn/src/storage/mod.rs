//! Database files: the bytes in them, and who may write where.
//!
//! `file` is a file on this machine or on a server, `file_source` the bytes of one, `open_files` the ones that a process
//! keeps open, `places` the folders that they lie in, `remote` the files on a server. `extent` writes blobs, `key_chain` repairs the chain
//! of keys, `commit_record` repeats a commit in a file, `scan` finds these records, `identify` describes a file,
//! `nearline` says why a file is not there.

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

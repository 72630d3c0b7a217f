//! Database files on a server: opened over `root://`, prefetched, and cached on a local disk.
//!
//! `folder` is the client of one federation's folder. `cached_file` reads one of its files through
//! `disk_cache`. `prefetch` decides what to fetch early and reads it through `cached_file`.

pub(crate) mod cached_file;
pub(crate) mod disk_cache;
pub(crate) mod folder;
pub(crate) mod prefetch;

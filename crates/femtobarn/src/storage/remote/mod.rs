//! Database files that are not on this machine's disk: on a server, opened over `root://`, prefetched, and cached.
//!
//! `folder` is the client of one federation's folder, `site` that of a federation with several servers, `servers` that of several which have copies of it, `stored_copy` a copy in a store; the
//! files of all are a `server_file`. `connect` says how the catalogue there is reached. `passed_file` gets files of a server on this machine. `cached_file` reads one of its files through its tiers, which
//! `tier` defines: `disk_cache` on a local disk, then `memcached`; `caches` has those of a federation, and `history`
//! tells its commits from those of another history. `recent_ranges` has what this process wrote of late. `prefetch` decides what to fetch early and reads it through
//! `cached_file`.

pub(crate) mod cached_file;
pub(crate) mod caches;
pub(crate) mod connect;
pub(crate) mod disk_cache;
pub(crate) mod folder;
pub(crate) mod history;
pub(crate) mod memcached;
pub(crate) mod passed_file;
pub(crate) mod prefetch;
pub(crate) mod recent_ranges;
pub(crate) mod server_file;
pub(crate) mod servers;
pub(crate) mod site;
pub(crate) mod stored_copy;
pub(crate) mod tier;

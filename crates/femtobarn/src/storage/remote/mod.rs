//! Database files that are not on this machine's disk: on a server, opened over `root://`, prefetched, and cached.
//!
//! `folder` is the client of one federation's folder, `site` of a federation with several servers, `servers` of several
//! servers that have copies of it, `stored_copy` a copy in a store; each of their files is a `server_file`. `connect`
//! has the settings for connecting to the catalogue there. `passed_file` gets files of a server on this machine.
//! `cached_file` reads a file through its tiers, which `tier` defines: `disk_cache` on a local disk, then `memcached`;
//! `caches` has those of a federation, and `history` distinguishes its commits from those of another history.
//! `recent_ranges` has ranges that this process wrote recently. `prefetch` decides which ranges to fetch early, and
//! reads them through `cached_file`.

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

//! Files of a server: read ahead of their use, and kept on a disk here.

pub(crate) mod cached_file;
pub(crate) mod disk_cache;
pub(crate) mod folder;
pub(crate) mod prefetch;
pub(crate) mod prefetch_buffer;

//! The state that all open files of a cache share.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::file::CachedFile;
use super::header::Version;
use super::origin::Origin;
use super::rooms::Rooms;
use crate::physical::fetch::Fetch;

/// KiB that may be on their way from the origin and to the disk.
const ON_THE_WAY_KIB: usize = 256 << 10;
/// The most fetches whose pages the disk did not accept that stay in memory, of at most 1 MiB each.
const UNKEPT_MAX: usize = 64;

/// The state that all open files of a cache share.
#[derive(Debug)]
pub(super) struct Shared {
    pub origin: Origin,
    pub rooms: Rooms<CachedFile>,
    /// Files of the origin never change.
    pub is_immutable: bool,
    /// KiB that may still be fetched.
    pub on_the_way: Arc<Semaphore>,
    /// The latest fetches whose pages the disk did not accept, the oldest first.
    unkept: Mutex<VecDeque<(Weak<CachedFile>, Arc<Fetch>)>>,
}

impl Shared {
    pub(super) fn new(origin: Origin, rooms: Rooms<CachedFile>, is_immutable: bool) -> Self {
        let on_the_way = Arc::new(Semaphore::new(ON_THE_WAY_KIB));
        Shared { origin, rooms, is_immutable, on_the_way, unkept: Mutex::default() }
    }

    /// Whether two versions of a file have the same bytes.
    pub(super) fn is_same(&self, one: Version, other: Version) -> bool {
        one == other || self.is_immutable && one.size == other.size
    }

    /// Keeps a fetch in memory for a while.
    pub(super) fn remember(&self, file: &Arc<CachedFile>, fetch: &Arc<Fetch>) {
        let mut unkept = self.unkept.lock();
        unkept.push_back((Arc::downgrade(file), Arc::clone(fetch)));
        let oldest = if unkept.len() > UNKEPT_MAX { unkept.pop_front() } else { None };
        drop(unkept);
        if let Some((file, fetch)) = oldest
            && let Some(file) = file.upgrade()
        {
            file.forget(&fetch);
        }
    }
}

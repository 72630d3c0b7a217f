//! The lists of the global tags that jobs ask for, as of the newest commit.
//!
//! After a commit, tags are resolved anew; lists that the commit did not change keep the parts that were read. A tag
//! that is no longer requested is dropped, so that vacuum can free its snapshot.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use femtobarn::{Csn, Federation, Result};
use parking_lot::Mutex;

use super::overview::{TagLists, TagOverview};
use super::payload_lists::PayloadList;
use crate::http::expiring_cache::ExpiringCache;

/// Tags that are kept, at most.
const TAGS_MAX: usize = 8;

/// A global tag, resolved.
pub(super) struct ResolvedTag {
    csn: Csn,
    pub lists: Vec<(Arc<str>, PayloadList)>,
}

/// The tags by name.
pub(super) struct ResolvedTags {
    kept: Arc<ExpiringCache<String, ResolvedTag>>,
    /// Held by the request that resolves, so that concurrent requests wait for the result instead of reading the same.
    resolving: Mutex<()>,
}

impl Default for ResolvedTags {
    fn default() -> Self {
        ResolvedTags { kept: ExpiringCache::new(TAGS_MAX), resolving: Mutex::default() }
    }
}

impl ResolvedTags {
    /// A tag that was resolved as of a commit or a later one.
    pub(super) fn known(&self, csn: Csn, name: &String) -> Option<Arc<ResolvedTag>> {
        self.kept.get(name).filter(|tag| tag.csn >= csn)
    }

    /// A tag as of the commit of an overview. Must be called on a thread of a tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `NotFound` if there is no such tag; `Corrupt` if stored bytes are damaged.
    pub(super) fn find(
        &self,
        federation: &Federation,
        overview: &TagOverview,
        name: &str,
    ) -> Result<Arc<ResolvedTag>> {
        let csn = overview.csn;
        let name = name.to_owned();
        let is_new = |tag: &Arc<ResolvedTag>| tag.csn >= csn;
        if let Some(found) = self.kept.get(&name).filter(is_new) {
            return Ok(found);
        }
        let lists = overview.tag(&name)?;
        let _resolving = self.resolving.lock();
        let old = self.kept.get(&name);
        if let Some(found) = old.clone().filter(is_new) {
            return Ok(found);
        }
        let tag = Arc::new(resolve(federation, csn, lists, old.as_deref())?);
        self.kept.insert(name, tag.clone());
        Ok(tag)
    }
}

fn resolve(
    federation: &Federation,
    csn: Csn,
    tag: &TagLists,
    old: Option<&ResolvedTag>,
) -> Result<ResolvedTag> {
    let known: HashMap<&str, &PayloadList> =
        old.into_iter().flat_map(|it| &it.lists).map(|(path, list)| (&**path, list)).collect();
    let mut snapshots = HashMap::new();
    // For a tag whose snapshot was given up, an overview has no lists; it must not look like a tag without lists.
    if let Some(own) = tag.tag.csn {
        snapshots.insert(own, federation.snapshot(Some(own))?);
    }
    let mut lists = Vec::with_capacity(tag.lists.len());
    for (path, list) in &*tag.lists {
        let at = list.csn.unwrap_or(csn);
        let snapshot = match snapshots.entry(at) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(federation.snapshot(Some(at))?),
        };
        let list = match known.get(&**path).filter(|known| known.is_of(&list.path, &list.row)) {
            Some(known) => known.through(snapshot),
            None => PayloadList::open(path, snapshot.view(&list.path)?)?,
        };
        lists.push((path.clone(), list));
    }
    Ok(ResolvedTag { csn, lists })
}

//! The lists of the global tags that jobs ask for, as of the newest commit.
//!
//! A commit makes a tag be resolved anew; lists that it did not change keep what was read of them. A tag that nobody asks for
//! is given up, so that its snapshot is not kept from vacuum for ever.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use femtobarn::{Csn, Federation, Result};
use parking_lot::Mutex;

use super::overview::{TagLists, TagOverview};
use super::payload_lists::PayloadList;

/// Tags that are kept, at most.
const TAGS_MAX: usize = 8;
/// A tag that was not asked for between two sweeps is given up.
const SWEEP: Duration = Duration::from_secs(60);

/// A global tag, resolved.
pub(super) struct ResolvedTag {
    csn: Csn,
    pub lists: Vec<(String, PayloadList)>,
}

/// The tags by name.
#[derive(Default)]
pub(super) struct ResolvedTags {
    kept: Mutex<HashMap<String, KeptTag>>,
    /// Held by the request that resolves, so that others wait for it instead of reading the same.
    resolving: Mutex<()>,
    is_swept: AtomicBool,
}

struct KeptTag {
    tag: Arc<ResolvedTag>,
    was_used: bool,
}

impl ResolvedTags {
    /// A tag as of the commit of an overview. It must be called on a thread of a tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `NotFound` if there is no such tag; `Corrupt` if stored bytes are damaged.
    pub(super) fn find(
        self: &Arc<Self>,
        federation: &Federation,
        overview: &TagOverview,
        name: &str,
    ) -> Result<Arc<ResolvedTag>> {
        let csn = overview.csn;
        if let Some(found) = self.kept_at(name, csn) {
            return Ok(found);
        }
        let lists = overview.tag(name)?;
        let _resolving = self.resolving.lock();
        if let Some(found) = self.kept_at(name, csn) {
            return Ok(found);
        }
        let old = self.kept.lock().get(name).map(|kept| kept.tag.clone());
        let tag = Arc::new(resolve(federation, csn, lists, old.as_deref())?);
        self.keep(name, tag.clone());
        self.sweep_from_now_on();
        Ok(tag)
    }

    fn kept_at(&self, name: &str, csn: Csn) -> Option<Arc<ResolvedTag>> {
        let mut kept = self.kept.lock();
        let found = kept.get_mut(name).filter(|it| it.tag.csn >= csn)?;
        found.was_used = true;
        Some(found.tag.clone())
    }

    fn keep(&self, name: &str, tag: Arc<ResolvedTag>) {
        let mut kept = self.kept.lock();
        if kept.len() >= TAGS_MAX && !kept.contains_key(name) {
            let unused = kept.iter().min_by_key(|(_, it)| (it.was_used, it.tag.csn));
            if let Some(unused) = unused.map(|(name, _)| name.clone()) {
                kept.remove(&unused);
            }
        }
        kept.insert(name.to_owned(), KeptTag { tag, was_used: true });
    }

    /// Starts the task that gives up tags, unless it runs. It ends when none is kept.
    fn sweep_from_now_on(self: &Arc<Self>) {
        if self.is_swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let tags = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(tags) = tags.upgrade() else { return };
                let mut kept = tags.kept.lock();
                kept.retain(|_, it| std::mem::take(&mut it.was_used));
                if kept.is_empty() {
                    tags.is_swept.store(false, Ordering::Release);
                    return;
                }
            }
        });
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
    // An overview has no lists of a tag whose snapshot was given up, which must not look like a tag without any.
    if let Some(own) = tag.tag.csn {
        snapshots.insert(own, federation.snapshot(Some(own))?);
    }
    let mut lists = Vec::with_capacity(tag.lists.len());
    for (path, list) in &tag.lists {
        let at = list.csn.unwrap_or(csn);
        let snapshot = match snapshots.entry(at) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(federation.snapshot(Some(at))?),
        };
        let view = snapshot.view(&list.path)?;
        let same = match known.get(&**path) {
            Some(list) => list.through(&view)?,
            None => None,
        };
        let list = match same {
            Some(list) => list,
            None => PayloadList::open(path, view)?,
        };
        lists.push((path.clone(), list));
    }
    Ok(ResolvedTag { csn, lists })
}

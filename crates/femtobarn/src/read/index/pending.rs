//! Pending keys: keys that a transaction has yet to write into the indexes of a container.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::annex::IndexState;

/// The keys that are not in a container's indexes yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingKeys {
    /// All indexes that are not new have the keys of the entries before this one.
    indexed: u64,
    /// Indexes that have no keys yet.
    new: BTreeSet<String>,
    /// By index, entries before `indexed` whose key fields changed.
    updated: BTreeMap<String, Vec<Range<u64>>>,
}

impl PendingKeys {
    /// The keys of the entries from `indexed` on.
    pub(crate) fn from(indexed: u64) -> Self {
        PendingKeys { indexed, ..PendingKeys::default() }
    }

    /// Adds the keys of objects of which a field changed.
    pub(crate) fn update(&mut self, indexes: &[IndexState], path: &str, entries: &[u64]) {
        let is_part =
            |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|a| a.starts_with('.'));
        for index in indexes {
            if index.fields.iter().any(|field| is_part(field, path) || is_part(path, field)) {
                let ranges = self.updated.entry(index.name.clone()).or_default();
                for &entry in entries.iter().filter(|entry| **entry < self.indexed) {
                    match ranges.last_mut() {
                        Some(last) if last.end == entry => last.end = entry + 1,
                        _ => ranges.push(entry..entry + 1),
                    }
                }
            }
        }
    }

    /// Removes all runs of an index, and adds all its keys.
    pub(crate) fn rebuild(&mut self, index: &mut IndexState) {
        index.runs.clear();
        self.new.insert(index.name.clone());
    }

    /// Drops the keys of an index that is removed.
    pub(super) fn forget(&mut self, index: &str) {
        self.new.remove(index);
        self.updated.remove(index);
    }

    /// The entries whose keys are not in an index, as ascending, disjoint ranges.
    pub(super) fn entries(&self, index: &str, entries: u64) -> Vec<Range<u64>> {
        if self.new.contains(index) {
            return std::iter::once(0..entries).collect();
        }
        let mut ranges = self.updated.get(index).cloned().unwrap_or_default();
        ranges.push(self.indexed..entries);
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = vec![];
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        joined
    }
}

//! Changes: the entries that may have other objects in a later version of a container.
//!
//! A version refers to the pages of an earlier one wherever no value was updated, so that comparing which pages and
//! which deletions two versions have reads no values.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::read::view::View;

impl View {
    /// The entries of an earlier version of this container whose objects may have been updated or deleted since, as
    /// ranges in order.
    ///
    /// The other entries have the same objects in both versions. Ranges of updates are those of whole clusters; if
    /// the container was compacted or given a newer class meanwhile, the ranges are all entries.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `earlier` is of another container, or has more entries; [`Error::Corrupt`] if page lists
    /// or deletions are damaged.
    pub fn changed_entries(&self, earlier: &View) -> Result<Vec<Range<u64>>> {
        let (new, old) = (self.opened_version(), earlier.opened_version());
        let is_same =
            (old.row.database, old.row.container) == (new.row.database, new.row.container);
        if !is_same || earlier.entries() > self.entries() {
            let what = format!(
                "{} as of commit {} is not an earlier version of {}",
                earlier.path(),
                earlier.snapshot().csn(),
                self.path()
            );
            return Err(Error::Invalid { what });
        }
        if old.epoch != new.epoch {
            return Ok(vec![0..earlier.entries()]);
        }
        let mut changed =
            new.reader.changed_entries(&old.reader).map_err(Error::storage(self.path()))?;
        if old.row.deleted != new.row.deleted {
            let all = 0..earlier.entries();
            changed.extend(without(&earlier.live_runs(all.clone())?, &self.live_runs(all)?));
        }
        Ok(joined(changed))
    }
}

/// The parts of ranges that are in none of some others. Both are in order.
fn without(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = vec![];
    let mut others = others.iter().peekable();
    for range in ranges {
        let mut start = range.start;
        while let Some(other) = others.peek() {
            if other.start >= range.end {
                break;
            }
            left.push(start..other.start.max(start));
            start = start.max(other.end);
            if other.end > range.end {
                break;
            }
            others.next();
        }
        left.push(start..range.end);
    }
    left.retain(|range| !range.is_empty());
    left
}

/// Ranges in order, of which those that touch or overlap are one.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_without_others_are_what_sets_say() {
        let sets: [&[Range<u64>]; 6] =
            [&[], &[0..9], &[0..2, 4..9], &[1..3, 3..5], &[2..4, 8..12], &[20..21]];
        for ranges in sets {
            for others in sets {
                let expected: Vec<u64> = ranges
                    .iter()
                    .cloned()
                    .flatten()
                    .filter(|entry| !others.iter().any(|other| other.contains(entry)))
                    .collect();
                let found: Vec<u64> = without(ranges, others).into_iter().flatten().collect();
                assert_eq!(found, expected, "{ranges:?} without {others:?}");
            }
        }
    }

    #[test]
    fn ranges_that_touch_are_joined() {
        assert_eq!(joined(vec![5..7, 0..2, 2..3, 6..9, 6..7]), [0..3, 5..9]);
    }
}

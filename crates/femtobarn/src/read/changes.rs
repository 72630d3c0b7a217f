//! Changes: the entries whose objects may differ in a later version of a container.
//!
//! A version refers to the pages of an earlier one wherever no value was updated, so comparing the pages and the
//! deletions of two versions reads no values.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::inventory::Ranges;
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
        let changed = new.reader.changed_entries(&old.reader);
        // The page lists of both versions are read.
        let changed = earlier.snapshot().kept(changed.map_err(Error::storage(self.path())));
        let mut changed: Ranges = self.snapshot().kept(changed)?.into_iter().collect();
        if old.row.csn != new.row.csn && (old.row.deleted, new.row.deleted) != (0, 0) {
            // A repair can also bring objects back.
            let live = |view: &View| -> Result<Ranges> {
                Ok(view.live_runs(0..earlier.entries())?.into_iter().collect())
            };
            for (one, other) in [(self, earlier), (earlier, self)] {
                let mut lost = live(one)?;
                lost.remove_all(&live(other)?);
                lost.iter().for_each(|range| changed.insert(range));
            }
        }
        Ok(changed.iter().collect())
    }
}

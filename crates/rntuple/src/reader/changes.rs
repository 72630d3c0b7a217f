//! Which entries may have other values in a later version of an RNTuple.

use std::ops::Range;

use super::Reader;
use super::cluster::{PageRun, StoredCluster};
use crate::error::Result;
use crate::page_list::PageLocation;

impl Reader {
    /// The entries of an earlier version of this RNTuple, in the same file, that may have other values here: those of
    /// clusters whose pages are not all shared. All entries, if the header is another one.
    ///
    /// Reads page lists, except those that both versions refer to, but no pages.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) if a page list is damaged, [`Io`](crate::ErrorKind::Io) if the source
    /// cannot be read.
    pub fn changed_entries(&self, earlier: &Reader) -> Result<Vec<Range<u64>>> {
        if self.footer.header_checksum != earlier.footer.header_checksum {
            return Ok(vec![0..earlier.entries()]);
        }
        let groups = &self.footer.cluster_groups;
        let others = earlier.footer.cluster_groups.iter().filter(|group| !groups.contains(group));
        let mut changed = vec![];
        for group in others {
            let entries = group.min_entry..group.min_entry + group.entry_span;
            let now = self.clusters_of(&entries)?;
            for cluster in earlier.clusters_of(&entries)? {
                let same = now.partition_point(|one| one.entries.start < cluster.entries.start);
                if !now.get(same).is_some_and(|one| has_pages_of(one, cluster)) {
                    changed.push(cluster.entries.clone());
                }
            }
        }
        Ok(changed)
    }
}

/// Whether two clusters have the same entries, on the same pages.
fn has_pages_of(one: &StoredCluster, other: &StoredCluster) -> bool {
    fn pages(run: &Option<PageRun>) -> Option<(u64, &[PageLocation])> {
        run.as_ref().map(|run| (run.missing, &*run.pages))
    }
    one.entries == other.entries && one.runs.iter().map(pages).eq(other.runs.iter().map(pages))
}

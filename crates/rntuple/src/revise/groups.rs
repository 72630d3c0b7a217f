//! [`GroupWriter`]: the page lists and the footer of a new version.
//!
//! Invariants:
//! 1. Clusters and groups come in the order of their entries, from entry 0 on without gap.
//! 2. A group has at most [`LOCATORS_MAX`] page locators, unless a single cluster has more, or all clusters must form
//!    one group.

use crate::envelope::write_envelope;
use crate::error::Result;
use crate::footer::{ClusterGroup, Footer};
use crate::locator::EnvelopeLink;
use crate::page_list::{Cluster, PageList};
use crate::schema::Schema;
use crate::source::BlobSink;

/// Most page locators in one page list: about 256 KiB, which a reader of any of its entries reads.
const LOCATORS_MAX: usize = 16 << 10;

/// Collects clusters one by one and writes a page list whenever they have enough pages.
pub(super) struct GroupWriter {
    header_checksum: u64,
    locators_max: usize,
    clusters: Vec<Cluster>,
    locators: usize,
    groups: Vec<ClusterGroup>,
    /// First entry of the next cluster or group.
    next_entry: u64,
    /// Number of clusters so far.
    pub count: u64,
    /// Bytes written so far.
    pub bytes: u64,
}

impl GroupWriter {
    pub(super) fn new(header_checksum: u64) -> Self {
        let (clusters, groups) = (vec![], vec![]);
        GroupWriter {
            header_checksum,
            locators_max: LOCATORS_MAX,
            clusters,
            locators: 0,
            groups,
            next_entry: 0,
            count: 0,
            bytes: 0,
        }
    }

    /// A writer of one group for all clusters that are pushed without a [`keep`](Self::keep) between.
    pub(super) fn of_one_group(header_checksum: u64) -> Self {
        GroupWriter { locators_max: usize::MAX, ..Self::new(header_checksum) }
    }

    pub(super) fn push(&mut self, sink: &mut dyn BlobSink, cluster: Cluster) -> Result<()> {
        assert_eq!(cluster.first_entry, self.next_entry, "clusters follow each other");
        self.next_entry += cluster.entries;
        let locators: usize = cluster.columns.iter().map(|column| column.pages.len()).sum();
        if !self.clusters.is_empty() && self.locators + locators > self.locators_max {
            self.end_group(sink)?;
        }
        self.locators += locators;
        self.count += 1;
        self.clusters.push(cluster);
        Ok(())
    }

    fn end_group(&mut self, sink: &mut dyn BlobSink) -> Result<()> {
        let clusters = std::mem::take(&mut self.clusters);
        let (Some(first), Some(last)) = (clusters.first(), clusters.last()) else { return Ok(()) };
        let min_entry = first.first_entry;
        let entry_span = last.first_entry + last.entries - min_entry;
        let count = clusters.len() as u32;
        let page_list = PageList { header_checksum: self.header_checksum, clusters };
        let page_list = write_envelope(sink, &page_list.encode())?;
        self.bytes += page_list.locator.size;
        self.locators = 0;
        self.groups.push(ClusterGroup { min_entry, entry_span, clusters: count, page_list });
        Ok(())
    }

    /// Ends the current group and appends an existing one, whose entries follow.
    pub(super) fn keep(&mut self, sink: &mut dyn BlobSink, group: ClusterGroup) -> Result<()> {
        assert_eq!(group.min_entry, self.next_entry, "cluster groups follow each other");
        self.next_entry += group.entry_span;
        self.end_group(sink)?;
        self.count += u64::from(group.clusters);
        self.groups.push(group);
        Ok(())
    }

    /// Writes the last page list and the footer.
    pub(super) fn finish(
        &mut self,
        sink: &mut dyn BlobSink,
        extension: Schema,
    ) -> Result<EnvelopeLink> {
        self.end_group(sink)?;
        let cluster_groups = std::mem::take(&mut self.groups);
        let footer = Footer { header_checksum: self.header_checksum, extension, cluster_groups };
        let footer = write_envelope(sink, &footer.encode())?;
        self.bytes += footer.locator.size;
        Ok(footer)
    }
}

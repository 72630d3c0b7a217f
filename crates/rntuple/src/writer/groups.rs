//! The cluster groups of the version under construction. A changed group gets a new page list.
//!
//! Groups are merged as a binary counter carries: a new group absorbs its predecessors of the same or a
//! lower level, which is the logarithm of the size of the page list. So there are few groups, and a
//! cluster is described again only when its group doubles. A group with half of [`PAGE_LIST_SIZE_MAX`]
//! bytes is full and not merged: this bounds the page list that a commit writes or a reader of one entry
//! decodes.
//!
//! Invariants:
//! 1. Clusters follow each other without gap: those of `groups`, then `fresh`.
//! 2. A group has a link, clusters in memory, or both. It has no link if its clusters have changed.

use std::ops::Range;
use std::sync::Arc;

use crate::envelope::{EnvelopeKind, read_envelope, write_envelope};
use crate::error::{Error, Result};
use crate::footer::ClusterGroup;
use crate::page_list::{Cluster, PageList, WHOLE_SIZE_MAX};
use crate::source::{BlobSink, ByteSource};

/// Most bytes of a page list, unless a single cluster needs more: some 16,000 pages and their columns.
const PAGE_LIST_SIZE_MAX: u64 = 384 << 10;
/// Bytes of the page list of a full group, which is not merged.
const FULL_SIZE: u64 = PAGE_LIST_SIZE_MAX / 2;

/// The clusters of a version; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    header_checksum: u64,
    groups: Vec<Group>,
    /// Clusters that are in no group yet.
    fresh: Vec<Arc<Cluster>>,
}

#[derive(Clone, Debug)]
struct Group {
    first_entry: u64,
    entries: u64,
    link: Option<ClusterGroup>,
    clusters: Option<Arc<Vec<Arc<Cluster>>>>,
}

/// Position of a cluster in [`Groups`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterPosition {
    /// `None` for a cluster in no group yet.
    group: Option<usize>,
    cluster: usize,
}

/// A cluster that has some of the given entries.
pub(super) struct Touched {
    pub place: ClusterPosition,
    pub cluster: Arc<Cluster>,
    /// Positions of its entries among the given ones.
    pub positions: Range<usize>,
}

impl Groups {
    pub(super) fn new(header_checksum: u64, links: &[ClusterGroup]) -> Self {
        let mut links: Vec<ClusterGroup> = links.to_vec();
        links.retain(|link| link.entry_span > 0);
        links.sort_by_key(|link| link.min_entry);
        let groups = links.into_iter().map(|link| Group {
            first_entry: link.min_entry,
            entries: link.entry_span,
            link: Some(link),
            clusters: None,
        });
        Groups { header_checksum, groups: groups.collect(), fresh: vec![] }
    }

    /// Appends a cluster.
    pub(super) fn push(&mut self, cluster: Cluster) {
        self.fresh.push(Arc::new(cluster));
    }

    /// Takes out the clusters that are in no group yet.
    pub(super) fn take_fresh(&mut self) -> Vec<Cluster> {
        std::mem::take(&mut self.fresh).into_iter().map(Arc::unwrap_or_clone).collect()
    }

    /// The clusters that have any of `entries`, which ascend and exist.
    pub(super) fn touched(
        &mut self,
        entries: &[u64],
        source: &dyn ByteSource,
    ) -> Result<Vec<Touched>> {
        let mut touched = vec![];
        let mut next = 0;
        while let Some(&entry) = entries.get(next) {
            let (place, cluster) = self.find(entry, source)?;
            let end = cluster.first_entry + cluster.entries;
            let behind = next + entries[next..].partition_point(|&entry| entry < end);
            touched.push(Touched { place, cluster, positions: next..behind });
            next = behind;
        }
        Ok(touched)
    }

    fn find(
        &mut self,
        entry: u64,
        source: &dyn ByteSource,
    ) -> Result<(ClusterPosition, Arc<Cluster>)> {
        let group = self.groups.partition_point(|group| group.first_entry + group.entries <= entry);
        let (group, clusters) = match self.groups.get_mut(group) {
            Some(found) => (Some(group), &**found.load(self.header_checksum, source)?),
            None => (None, &self.fresh),
        };
        let position = clusters.partition_point(|of| of.first_entry + of.entries <= entry);
        let cluster = clusters.get(position).filter(|of| of.first_entry <= entry);
        let cluster = cluster.ok_or_else(|| corrupt(format!("no cluster has entry {entry}")))?;
        Ok((ClusterPosition { group, cluster: position }, cluster.clone()))
    }

    /// Replaces a cluster by another one of the same entries.
    pub(super) fn replace(&mut self, place: ClusterPosition, cluster: Cluster) {
        let clusters = match place.group {
            None => &mut self.fresh,
            Some(group) => {
                let group = &mut self.groups[group];
                group.link = None;
                Arc::make_mut(group.clusters.as_mut().expect("a cluster of the group was found"))
            }
        };
        clusters[place.cluster] = Arc::new(cluster);
    }

    /// Writes the page lists of new and changed groups; returns all groups and the bytes written.
    pub(super) fn write(
        &mut self,
        sink: &mut dyn BlobSink,
        source: &dyn ByteSource,
    ) -> Result<(Vec<ClusterGroup>, u64)> {
        let (mut groups, last) = (self.groups.clone(), self.merged(source)?);
        groups.truncate(groups.len() - last.groups);
        let mut written = vec![];
        let mut bytes = 0;
        for group in groups {
            match &group.clusters {
                Some(clusters) if group.link.is_none() => {
                    bytes += self.write_groups(clusters, PAGE_LIST_SIZE_MAX, sink, &mut written)?;
                }
                _ => written.push(group),
            }
        }
        bytes += self.write_groups(&last.clusters, PAGE_LIST_SIZE_MAX, sink, &mut written)?;
        self.groups = written;
        self.fresh.clear();
        self.assert_contiguous();
        Ok((self.groups.iter().filter_map(|group| group.link).collect(), bytes))
    }

    /// Like [`write`](Self::write), with as few groups as possible: one, unless its page list would have more than
    /// [`WHOLE_SIZE_MAX`] bytes.
    pub(super) fn write_whole(
        &mut self,
        sink: &mut dyn BlobSink,
        source: &dyn ByteSource,
    ) -> Result<(Vec<ClusterGroup>, u64)> {
        let mut clusters = vec![];
        for group in &mut self.groups {
            clusters.extend_from_slice(group.load(self.header_checksum, source)?);
        }
        clusters.append(&mut self.fresh);
        self.groups.clear();
        let mut written = vec![];
        let bytes = self.write_groups(&clusters, WHOLE_SIZE_MAX, sink, &mut written)?;
        self.groups = written;
        self.assert_contiguous();
        Ok((self.groups.iter().filter_map(|group| group.link).collect(), bytes))
    }

    /// Invariant 1 before a footer is written. The groups of an opened version were checked when they were
    /// read, so only a bug can break it.
    fn assert_contiguous(&self) {
        let mut next_entry = 0;
        for group in &self.groups {
            assert_eq!(group.first_entry, next_entry, "cluster groups follow each other");
            next_entry += group.entries;
        }
    }

    /// The new clusters with those of the preceding groups that they are merged with.
    fn merged(&mut self, source: &dyn ByteSource) -> Result<Merged> {
        let mut merged = Merged { groups: 0, clusters: self.fresh.clone() };
        if merged.clusters.is_empty() {
            return Ok(merged);
        }
        let mut size = size_of_all(&merged.clusters);
        for group in self.groups.iter_mut().rev() {
            let group_size = group.size();
            if group_size > FULL_SIZE || level(group_size) > level(size) {
                break;
            }
            let mut clusters = group.load(self.header_checksum, source)?.to_vec();
            size += size_of_all(&clusters);
            clusters.append(&mut merged.clusters);
            merged = Merged { groups: merged.groups + 1, clusters };
        }
        Ok(merged)
    }

    /// Writes clusters as one group or, if their page list would exceed `size_max`, as several.
    fn write_groups(
        &self,
        clusters: &[Arc<Cluster>],
        size_max: u64,
        sink: &mut dyn BlobSink,
        groups: &mut Vec<Group>,
    ) -> Result<u64> {
        let (mut first, mut size, mut bytes) = (0, 0, 0);
        for (position, cluster) in clusters.iter().enumerate() {
            let more = cluster.described_size();
            if size + more > size_max && position > first {
                bytes += self.write_group(&clusters[first..position], sink, groups)?;
                (first, size) = (position, 0);
            }
            size += more;
        }
        if first < clusters.len() {
            bytes += self.write_group(&clusters[first..], sink, groups)?;
        }
        Ok(bytes)
    }

    fn write_group(
        &self,
        clusters: &[Arc<Cluster>],
        sink: &mut dyn BlobSink,
        groups: &mut Vec<Group>,
    ) -> Result<u64> {
        let follow =
            |pair: &[Arc<Cluster>]| pair[0].first_entry + pair[0].entries == pair[1].first_entry;
        assert!(clusters.windows(2).all(follow), "clusters of a page list follow each other");
        let page_list = PageList::encode_clusters(self.header_checksum, clusters);
        let page_list = write_envelope(sink, &page_list)?;
        let first_entry = clusters[0].first_entry;
        let entries = clusters.iter().map(|cluster| cluster.entries).sum();
        let link = ClusterGroup {
            min_entry: first_entry,
            entry_span: entries,
            clusters: clusters.len() as u32,
            page_list,
        };
        // The clusters of a group that will be merged stay in memory.
        let is_full = size_of_all(clusters) > FULL_SIZE;
        let clusters = (!is_full).then(|| Arc::new(clusters.to_vec()));
        groups.push(Group { first_entry, entries, link: Some(link), clusters });
        Ok(page_list.locator.size)
    }
}

/// The clusters of a new group, and the number of preceding groups that it replaces.
struct Merged {
    groups: usize,
    clusters: Vec<Arc<Cluster>>,
}

impl Group {
    fn load(
        &mut self,
        header_checksum: u64,
        source: &dyn ByteSource,
    ) -> Result<&Arc<Vec<Arc<Cluster>>>> {
        if self.clusters.is_none() {
            let link = self.link.ok_or_else(|| corrupt("a group has no page list".to_owned()))?;
            self.clusters = Some(Arc::new(read_group(&link, header_checksum, source)?));
        }
        self.clusters.as_ref().ok_or_else(|| corrupt("a group has no clusters".to_owned()))
    }

    fn size(&self) -> u64 {
        match (&self.clusters, self.link) {
            (Some(clusters), _) => size_of_all(clusters),
            (None, Some(link)) => link.page_list.length.saturating_sub(PageList::FRAME_SIZE),
            (None, None) => 0,
        }
    }
}

/// Reads the page list of a group and checks that its clusters have the entries of the group.
fn read_group(
    link: &ClusterGroup,
    header_checksum: u64,
    source: &dyn ByteSource,
) -> Result<Vec<Arc<Cluster>>> {
    let bytes = read_envelope(source, &link.page_list, EnvelopeKind::PageList, u64::MAX)?;
    let page_list = PageList::decode(&bytes)?;
    if page_list.header_checksum != header_checksum {
        return Err(corrupt("it belongs to another header".to_owned()));
    }
    let mut clusters = page_list.clusters;
    clusters.sort_by_key(|cluster| cluster.first_entry);
    let mut next_entry = link.min_entry;
    for cluster in &clusters {
        if cluster.first_entry != next_entry {
            let first = cluster.first_entry;
            return Err(corrupt(format!("a cluster starts at entry {first}, not {next_entry}")));
        }
        next_entry = next_entry.saturating_add(cluster.entries);
    }
    if next_entry != link.min_entry + link.entry_span {
        return Err(corrupt("it lacks entries of its cluster group".to_owned()));
    }
    Ok(clusters.into_iter().map(Arc::new).collect())
}

fn size_of_all(clusters: &[Arc<Cluster>]) -> u64 {
    clusters.iter().map(|cluster| cluster.described_size()).sum()
}

fn level(size: u64) -> u32 {
    size.max(1).ilog2()
}

fn corrupt(reason: String) -> Error {
    Error::corrupt("page list", 0, reason)
}

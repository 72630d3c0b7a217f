//! Clusters: which pages store which elements of which column.
//!
//! Invariants:
//! 1. Clusters follow each other without gap or overlap, from entry 0 on.
//! 2. The pages of a [`PageRun`] store elements `missing .. elements`. The elements before are zeros that
//!    no page stores: the column is deferred, that is, it was added after the cluster began.

use std::ops::Range;
use std::sync::OnceLock;

use crate::envelope::{self, EnvelopeKind};
use crate::error::{Error, Result};
use crate::footer::{ClusterGroup, Footer};
use crate::page_list::{self, ColumnPages, Outline, Outlined, PageLocation};
use crate::schema::{ColumnId, Schema};
use crate::source::{ByteSource, read_verified};

/// The pages of one column in one cluster.
pub(crate) struct PageRun {
    /// Leading elements that no page stores.
    pub missing: u64,
    /// Number of elements, with the missing ones.
    pub elements: u64,
    /// Elements of the column in all earlier clusters.
    pub offset: u64,
    /// Index of the first element of each page.
    pub starts: Vec<u64>,
    /// Compression settings, for information only.
    pub compression: u32,
    pub pages: Vec<PageLocation>,
}

/// Limits of the positions and sizes of pages in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileBounds {
    /// Bytes of the file when the page list was read, which is after its pages were written.
    pub file_size: u64,
    /// Most bytes of a blob in one key; 0 means no limit.
    pub key_size_max: u64,
}

/// A range of entries with the pages of all columns; `None` stands for a suppressed column.
pub(crate) struct StoredCluster {
    pub entries: Range<u64>,
    pub bounds: FileBounds,
    pub runs: Vec<Option<PageRun>>,
}

impl StoredCluster {
    /// The representation that stores a field's elements in this cluster: one of `columns`, and its pages.
    /// `None` if the field was added to the schema after the cluster was written.
    pub(crate) fn active(&self, columns: &[ColumnId]) -> Option<(ColumnId, &PageRun)> {
        columns.iter().find_map(|&column| {
            let run = self.runs.get(column as usize)?.as_ref()?;
            Some((column, run))
        })
    }

    /// Converts a cluster of a page list; `repetitions` are those of [`deferred_repetitions`].
    pub(crate) fn of(
        cluster: page_list::Cluster,
        repetitions: &[u64],
        bounds: FileBounds,
    ) -> Result<Self> {
        let entries = cluster.first_entry..end_of(cluster.first_entry, cluster.entries)?;
        let expected =
            |id: usize| cluster.entries.checked_mul(repetitions.get(id).copied().unwrap_or(0));
        let runs = cluster.columns.into_iter().enumerate();
        let runs = runs.map(|(id, pages)| Self::run(id, pages, expected(id)));
        Ok(StoredCluster { entries, bounds, runs: runs.collect::<Result<_>>()? })
    }

    fn run(id: usize, column: ColumnPages, expected: Option<u64>) -> Result<Option<PageRun>> {
        let Some(offset) = column.element_offset else { return Ok(None) };
        let overflow = || corrupt(format!("column {id} has more than 2^64 elements"));
        let on_pages: u64 = column.pages.iter().map(|page| u64::from(page.elements)).sum();
        let missing = expected.ok_or_else(overflow)?.saturating_sub(on_pages);
        let mut starts = Vec::with_capacity(column.pages.len());
        let mut elements = missing;
        for page in &column.pages {
            starts.push(elements);
            elements = elements.checked_add(page.elements.into()).ok_or_else(overflow)?;
        }
        let ColumnPages { compression, pages, .. } = column;
        Ok(Some(PageRun { missing, elements, offset, starts, compression, pages }))
    }

    /// Elements of a column in this cluster and all earlier ones.
    pub(crate) fn elements_up_to(&self, column: ColumnId) -> u64 {
        self.active(&[column]).map_or(0, |(_, run)| run.offset.saturating_add(run.elements))
    }
}

/// All clusters of an RNTuple. Page lists are read, and clusters decoded, when they are first needed.
pub(crate) struct Clusters {
    groups: Vec<LazyGroup>,
    repetitions: Vec<u64>,
    header_checksum: u64,
    key_size_max: u64,
}

struct LazyGroup {
    link: ClusterGroup,
    loaded: OnceLock<LoadedList>,
}

/// A page list after it was read.
struct LoadedList {
    envelope: Vec<u8>,
    bounds: FileBounds,
    /// The clusters in the order of their entries.
    clusters: Vec<LazyCluster>,
}

/// A cluster of a page list, decoded when it is first needed.
struct LazyCluster {
    entries: Range<u64>,
    outlined: Outlined,
    decoded: OnceLock<StoredCluster>,
}

impl Clusters {
    pub(super) fn new(footer: &Footer, schema: &Schema, key_size_max: u64) -> Result<Self> {
        let mut groups = footer.cluster_groups.clone();
        groups.retain(|group| group.entry_span > 0);
        groups.sort_by_key(|group| group.min_entry);
        let mut next_entry = 0;
        for group in &groups {
            if group.min_entry != next_entry {
                return Err(corrupt(format!(
                    "a cluster group starts at entry {}, not {next_entry}",
                    group.min_entry
                )));
            }
            next_entry = end_of(group.min_entry, group.entry_span)?;
        }
        let groups =
            groups.into_iter().map(|link| LazyGroup { link, loaded: OnceLock::new() }).collect();
        Ok(Clusters {
            groups,
            repetitions: deferred_repetitions(schema)?,
            header_checksum: footer.header_checksum,
            key_size_max,
        })
    }

    /// Number of entries in all clusters.
    pub(super) fn entries(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.link.min_entry + group.link.entry_span)
    }

    /// Number of clusters.
    pub(super) fn count(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.link.clusters)).sum()
    }

    /// The pages of all clusters that were decoded.
    pub(super) fn loaded_pages(&self) -> impl Iterator<Item = &PageLocation> {
        let loaded = self.groups.iter().filter_map(|group| group.loaded.get());
        let clusters = loaded.flat_map(|loaded| &loaded.clusters);
        let clusters = clusters.filter_map(|cluster| cluster.decoded.get());
        clusters.flat_map(|cluster| cluster.runs.iter().flatten()).flat_map(|run| &run.pages)
    }

    /// The clusters that overlap a range of entries, in order.
    pub(super) fn overlapping<'a>(
        &'a self,
        source: &dyn ByteSource,
        range: &Range<u64>,
    ) -> Result<Vec<&'a StoredCluster>> {
        if range.is_empty() {
            return Ok(vec![]);
        }
        let first = self.groups.partition_point(|group| group.end() <= range.start);
        let mut found = vec![];
        for group in self.groups[first..].iter().take_while(|g| g.link.min_entry < range.end) {
            let loaded = self.load(group, source)?;
            let clusters = &loaded.clusters;
            let first = clusters.partition_point(|cluster| cluster.entries.end <= range.start);
            for cluster in clusters[first..].iter().take_while(|c| c.entries.start < range.end) {
                found.push(self.decode(loaded, cluster)?);
            }
        }
        Ok(found)
    }

    /// The clusters of the last group.
    pub(super) fn last_group(&self, source: &dyn ByteSource) -> Result<Vec<&StoredCluster>> {
        let last = self.groups.last().map_or(0..0, |group| group.link.min_entry..group.end());
        self.overlapping(source, &last)
    }

    fn load<'a>(&self, group: &'a LazyGroup, source: &dyn ByteSource) -> Result<&'a LoadedList> {
        if let Some(loaded) = group.loaded.get() {
            return Ok(loaded);
        }
        let (link, kind) = (&group.link.page_list, EnvelopeKind::PageList);
        let read = |source: &dyn ByteSource| {
            let envelope = envelope::read_envelope(source, link, kind, self.key_size_max)?;
            let outline = Outline::decode(&envelope)?;
            if outline.header_checksum != self.header_checksum {
                return Err(corrupt("a page list belongs to another header".to_owned()));
            }
            Ok((envelope, outline))
        };
        let (envelope, outline) = read_verified(source, Error::is_damage, read)?;
        let bounds = FileBounds { file_size: source.size()?, key_size_max: self.key_size_max };
        let clusters = arranged(outline, &group.link)?;
        Ok(group.loaded.get_or_init(|| LoadedList { envelope, bounds, clusters }))
    }

    fn decode<'a>(
        &self,
        loaded: &'a LoadedList,
        cluster: &'a LazyCluster,
    ) -> Result<&'a StoredCluster> {
        if let Some(decoded) = cluster.decoded.get() {
            return Ok(decoded);
        }
        let decoded = cluster.outlined.decode(&loaded.envelope)?;
        let decoded = StoredCluster::of(decoded, &self.repetitions, loaded.bounds)?;
        Ok(cluster.decoded.get_or_init(|| decoded))
    }
}

/// Sorts the clusters of a page list by their entries, and checks that these are the entries of the group.
fn arranged(outline: Outline, link: &ClusterGroup) -> Result<Vec<LazyCluster>> {
    let mut outlined = outline.clusters;
    outlined.sort_by_key(|cluster| cluster.entries().0);
    let mut next_entry = link.min_entry;
    let mut clusters = Vec::with_capacity(outlined.len());
    for outlined in outlined {
        let (first_entry, entries) = outlined.entries();
        if first_entry != next_entry {
            let reason = format!("a cluster starts at entry {first_entry}, not {next_entry}");
            return Err(corrupt(reason));
        }
        next_entry = end_of(first_entry, entries)?;
        let entries = first_entry..next_entry;
        clusters.push(LazyCluster { entries, outlined, decoded: OnceLock::new() });
    }
    if next_entry != end_of(link.min_entry, link.entry_span)? {
        return Err(corrupt("a page list lacks entries of its cluster group".to_owned()));
    }
    Ok(clusters)
}

impl LazyGroup {
    fn end(&self) -> u64 {
        self.link.min_entry + self.link.entry_span
    }
}

/// For each deferred column the number of elements in an entry; 0 for all other columns, whose pages store
/// every element.
pub(crate) fn deferred_repetitions(schema: &Schema) -> Result<Vec<u64>> {
    let of_column = |column: &crate::schema::Column| {
        if column.first_element.unwrap_or(0) == 0 {
            return Ok(0);
        }
        let mut repetition = 1_u64;
        let mut id = column.field;
        loop {
            let field = schema.fields.get(id as usize).ok_or_else(|| {
                corrupt(format!("a column belongs to field {id}, which does not exist"))
            })?;
            repetition = repetition
                .checked_mul(field.repetition.unwrap_or(1))
                .ok_or_else(|| corrupt("an array has more than 2^64 items".to_owned()))?;
            if field.parent >= id {
                return Ok(repetition);
            }
            id = field.parent;
        }
    };
    schema.columns.iter().map(of_column).collect()
}

fn end_of(start: u64, span: u64) -> Result<u64> {
    start
        .checked_add(span)
        .filter(|&end| end <= i64::MAX as u64)
        .ok_or_else(|| corrupt("entry numbers exceed 2^63".to_owned()))
}

fn corrupt(reason: String) -> Error {
    Error::corrupt("page list", 0, reason)
}

//! Clusters: which pages hold which elements of which column.
//!
//! Invariants:
//! 1. Clusters follow each other without gap or overlap, from entry 0 on.
//! 2. The pages of a run hold elements `missing .. elements`; elements before are zeros that no
//!    page holds (a deferred column that starts in the middle of the cluster).

use std::ops::Range;
use std::sync::OnceLock;

use crate::envelope::{self, EnvelopeKind};
use crate::error::{Error, Result};
use crate::footer::{ClusterGroup, Footer};
use crate::page_list::{self, ColumnPages, PageList, PageLocation};
use crate::schema::{ColumnId, Schema};
use crate::source::ByteSource;

/// The pages of one column in one cluster.
pub(crate) struct Run {
    /// Leading elements that no page holds.
    pub missing: u64,
    /// Elements in all, with the missing ones.
    pub elements: u64,
    /// Elements of the column in all clusters before.
    pub offset: u64,
    /// For each page the index of its first element.
    pub starts: Vec<u64>,
    /// Compression settings, for information only.
    pub compression: u32,
    pub pages: Vec<PageLocation>,
}

/// What the pages of a file are bounded by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of the file when its page list was read, so after the pages were written.
    pub file_size: u64,
    /// What is larger is spread over several keys; 0 if nothing is.
    pub key_size_max: u64,
}

/// A range of entries with the pages of all columns; `None` stands for a suppressed column.
pub(crate) struct Cluster {
    pub entries: Range<u64>,
    pub bounds: Bounds,
    pub runs: Vec<Option<Run>>,
}

impl Cluster {
    /// The representation that holds a field's data here: its position among `columns`, and its
    /// pages. `None` if the field was added to the schema after this cluster.
    pub fn active(&self, columns: &[ColumnId]) -> Option<(ColumnId, &Run)> {
        columns.iter().find_map(|&column| {
            let run = self.runs.get(column as usize)?.as_ref()?;
            Some((column, run))
        })
    }

    /// A cluster as its page list has it. `repetitions`: as [`deferred_repetitions`] tells.
    pub fn of(cluster: page_list::Cluster, repetitions: &[u64], bounds: Bounds) -> Result<Self> {
        let entries = cluster.first_entry..end_of(cluster.first_entry, cluster.entries)?;
        let expected =
            |id: usize| cluster.entries.checked_mul(repetitions.get(id).copied().unwrap_or(0));
        let runs = cluster.columns.into_iter().enumerate();
        let runs = runs.map(|(id, pages)| Self::run(id, pages, expected(id)));
        Ok(Cluster { entries, bounds, runs: runs.collect::<Result<_>>()? })
    }

    fn run(id: usize, column: ColumnPages, expected: Option<u64>) -> Result<Option<Run>> {
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
        Ok(Some(Run { missing, elements, offset, starts, compression, pages }))
    }

    /// Elements of a column in this cluster and all before.
    pub fn elements_up_to(&self, column: ColumnId) -> u64 {
        self.active(&[column]).map_or(0, |(_, run)| run.offset.saturating_add(run.elements))
    }
}

/// All clusters of an RNTuple; page lists are read when first needed.
pub(crate) struct Clusters {
    groups: Vec<Group>,
    repetitions: Vec<u64>,
    header_checksum: u64,
    key_size_max: u64,
}

struct Group {
    link: ClusterGroup,
    loaded: OnceLock<Vec<Cluster>>,
}

impl Clusters {
    pub fn new(footer: &Footer, schema: &Schema, key_size_max: u64) -> Result<Self> {
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
            groups.into_iter().map(|link| Group { link, loaded: OnceLock::new() }).collect();
        Ok(Clusters {
            groups,
            repetitions: deferred_repetitions(schema)?,
            header_checksum: footer.header_checksum,
            key_size_max,
        })
    }

    /// Number of entries in all clusters.
    pub fn entries(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.link.min_entry + group.link.entry_span)
    }

    /// Number of clusters.
    pub fn count(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.link.clusters)).sum()
    }

    /// The pages of all clusters whose page lists have been read.
    pub fn loaded_pages(&self) -> impl Iterator<Item = &PageLocation> {
        let clusters = self.groups.iter().filter_map(|group| group.loaded.get()).flatten();
        clusters.flat_map(|cluster| cluster.runs.iter().flatten()).flat_map(|run| &run.pages)
    }

    /// The clusters that overlap a range of entries, in order.
    pub fn overlapping<'a>(
        &'a self,
        source: &dyn ByteSource,
        range: &Range<u64>,
    ) -> Result<Vec<&'a Cluster>> {
        if range.is_empty() {
            return Ok(vec![]);
        }
        let first = self.groups.partition_point(|group| group.end() <= range.start);
        let mut found = vec![];
        for group in self.groups[first..].iter().take_while(|g| g.link.min_entry < range.end) {
            let clusters = self.load(group, source)?;
            let first = clusters.partition_point(|cluster| cluster.entries.end <= range.start);
            found.extend(clusters[first..].iter().take_while(|c| c.entries.start < range.end));
        }
        Ok(found)
    }

    /// The clusters of the last group.
    pub fn last_group(&self, source: &dyn ByteSource) -> Result<&[Cluster]> {
        self.groups.last().map_or(Ok(&[]), |group| self.load(group, source))
    }

    fn load<'a>(&self, group: &'a Group, source: &dyn ByteSource) -> Result<&'a [Cluster]> {
        if let Some(clusters) = group.loaded.get() {
            return Ok(clusters);
        }
        let (link, kind) = (&group.link.page_list, EnvelopeKind::PageList);
        let bytes = envelope::read_envelope(source, link, kind, self.key_size_max)?;
        let page_list = PageList::decode(&bytes)?;
        if page_list.header_checksum != self.header_checksum {
            return Err(corrupt("a page list belongs to another header".to_owned()));
        }
        let bounds = Bounds { file_size: source.size()?, key_size_max: self.key_size_max };
        let clusters = self.arrange(page_list, &group.link, bounds)?;
        Ok(group.loaded.get_or_init(|| clusters))
    }

    fn arrange(
        &self,
        page_list: PageList,
        link: &ClusterGroup,
        bounds: Bounds,
    ) -> Result<Vec<Cluster>> {
        let mut clusters = page_list.clusters;
        clusters.sort_by_key(|cluster| cluster.first_entry);
        let mut next_entry = link.min_entry;
        let mut arranged = Vec::with_capacity(clusters.len());
        for cluster in clusters {
            if cluster.first_entry != next_entry {
                return Err(corrupt(format!(
                    "a cluster starts at entry {}, not {next_entry}",
                    cluster.first_entry
                )));
            }
            let cluster = Cluster::of(cluster, &self.repetitions, bounds)?;
            next_entry = cluster.entries.end;
            arranged.push(cluster);
        }
        if next_entry != end_of(link.min_entry, link.entry_span)? {
            return Err(corrupt("a page list has not the entries of its cluster group".to_owned()));
        }
        Ok(arranged)
    }
}

impl Group {
    fn end(&self) -> u64 {
        self.link.min_entry + self.link.entry_span
    }
}

/// For each deferred column the elements that an entry has; 0 for all other columns, whose pages
/// hold every element.
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

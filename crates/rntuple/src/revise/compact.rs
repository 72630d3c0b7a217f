//! Compaction: a version with fewer and larger clusters of the same entries.
//!
//! Full clusters keep their pages. Runs of small clusters, clusters with dead entries, or all clusters are
//! read and rewritten. Memory is needed for a part of a cluster, and for the page lists that the reader
//! holds.

use std::ops::Range;

use super::Revised;
use super::cluster::{ElementCounter, unchanged};
use super::complete::check_ranges;
use super::fill::single;
use super::groups::GroupWriter;
use crate::array::Array;
use crate::error::Result;
use crate::footer::ClusterGroup;
use crate::locator::EnvelopeLink;
use crate::reader::{Projection, Reader, StoredCluster};
use crate::source::BlobSink;
use crate::summary::ClusterSummary;
use crate::types::Type;
use crate::value::Value;
use crate::writer::{ClusterWriter, RATIO_MAX, WriteOptions};

/// The clusters to compact, and the layout of the new ones.
#[derive(Clone, Debug, Default)]
pub struct Compaction<'a> {
    /// Sizes of clusters and pages, and compression. The encoding is that of the existing schema; it was
    /// decided by [`WriteOptions::encoding`] when the RNTuple was created.
    pub options: WriteOptions,
    /// Dead entries, whose values become zero, empty or absent to free their bytes: ranges that ascend and
    /// do not touch. Clusters with dead entries are rewritten, so pass only those that died since the last
    /// compaction.
    pub dead: &'a [Range<u64>],
    /// Whether full clusters without dead entries are rewritten too.
    pub all: bool,
}

/// Writes a version with fewer clusters. If there is nothing to compact, it returns the old version, whose
/// footer is `current`. `progress` is called with the number of entries that are done.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) if dead entries do not exist or do not ascend,
/// [`Error::Unsupported`](crate::Error::Unsupported) for fields that cannot be written,
/// [`Error::Corrupt`](crate::Error::Corrupt) if the old version is damaged,
/// [`Error::Io`](crate::Error::Io) from the sink or the source.
pub fn compact(
    reader: &Reader,
    sink: &mut dyn BlobSink,
    current: EnvelopeLink,
    compaction: &Compaction<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Revised> {
    check_ranges(compaction.dead, reader.entries())?;
    let clusters = reader.clusters_of(&(0..reader.entries()))?;
    let rewritten = compaction.chosen(reader, &clusters)?;
    let clusters_before = reader.clusters();
    if !rewritten.contains(&true) {
        progress(reader.entries());
        return Ok(Revised::unchanged(current, clusters_before));
    }
    let mut work = Compactor::new(reader, sink, compaction, progress)?;
    let groups = full_groups(reader);
    let mut next = 0;
    while let Some(cluster) = clusters.get(next) {
        let is_chosen = rewritten[next];
        let run_length =
            || rewritten[next..].iter().take_while(|&&chosen| chosen == is_chosen).count();
        let start = cluster.entries.start;
        let (count, link) = match groups.binary_search_by_key(&start, |group| group.min_entry) {
            _ if is_chosen => (run_length(), None),
            Ok(found) => {
                let end = start + groups[found].entry_span;
                let in_group = clusters[next..].iter().take_while(|of| of.entries.end <= end);
                match in_group.count() {
                    in_group if (1..=run_length()).contains(&in_group) => {
                        (in_group, Some(groups[found]))
                    }
                    _ => (1, None),
                }
            }
            Err(_) => (1, None),
        };
        let part = &clusters[next..next + count];
        if is_chosen {
            work.rewrite(part)?
        } else {
            work.keep(part, link)?
        }
        next += count;
    }
    let footer = work.groups.finish(work.sink, reader.footer().extension.clone())?;
    let bytes = work.bytes + work.groups.bytes;
    let (clusters, summaries) = (work.groups.count, work.summaries);
    Ok(Revised { footer, bytes, clusters_before, clusters, summaries })
}

/// Groups whose page lists are long enough to be kept, if all their clusters are.
fn full_groups(reader: &Reader) -> Vec<ClusterGroup> {
    const FULL_SIZE: u64 = 128 << 10;
    let mut groups = reader.footer().cluster_groups.clone();
    groups.retain(|group| group.entry_span > 0 && group.page_list.length >= FULL_SIZE);
    groups.sort_by_key(|group| group.min_entry);
    groups
}

impl Compaction<'_> {
    /// For each cluster whether it is rewritten.
    fn chosen(&self, reader: &Reader, clusters: &[&StoredCluster]) -> Result<Vec<bool>> {
        let must_rewrite = |of: &StoredCluster| self.all || !self.dead_in(&of.entries).is_empty();
        let small = self.options.cluster_size / 2;
        let mut chosen = Vec::with_capacity(clusters.len());
        for cluster in clusters {
            chosen.push(must_rewrite(cluster) || size_of(reader, cluster)? < small);
        }
        for (at, cluster) in clusters.iter().enumerate() {
            let before = at.checked_sub(1).is_some_and(|before| chosen[before]);
            let is_alone = !before && !chosen.get(at + 1).is_some_and(|&behind| behind);
            if is_alone && !must_rewrite(cluster) {
                chosen[at] = false;
            }
        }
        Ok(chosen)
    }

    /// The ranges of dead entries that overlap a range.
    fn dead_in(&self, entries: &Range<u64>) -> &[Range<u64>] {
        let first = self.dead.partition_point(|range| range.end <= entries.start);
        let end = self.dead.partition_point(|range| range.start < entries.end);
        &self.dead[first..end.max(first)]
    }
}

/// Bytes of a cluster, as [`ClusterWriter::size`] counts them.
fn size_of(reader: &Reader, cluster: &StoredCluster) -> Result<u64> {
    let pages = cluster.runs.iter().flatten().flat_map(|run| &run.pages);
    let stored: u64 = pages.map(|page| page.locator.size).sum();
    Ok(stored.max(memory_of(reader, cluster)? / RATIO_MAX))
}

/// Most bytes in memory of the entries that are read at once.
const BATCH_BYTES: u64 = 8 << 20;

struct Compactor<'a, 'w> {
    reader: &'a Reader,
    sink: &'w mut dyn BlobSink,
    compaction: &'a Compaction<'a>,
    progress: &'w mut dyn FnMut(u64),
    all: Projection,
    /// One entry of default values, for dead entries.
    blank: Array,
    writer: ClusterWriter,
    /// First entry of the cluster under construction.
    first_entry: u64,
    counter: ElementCounter,
    groups: GroupWriter,
    summaries: Vec<ClusterSummary>,
    bytes: u64,
}

impl<'a, 'w> Compactor<'a, 'w> {
    fn new(
        reader: &'a Reader,
        sink: &'w mut dyn BlobSink,
        compaction: &'a Compaction<'a>,
        progress: &'w mut dyn FnMut(u64),
    ) -> Result<Self> {
        let of = Type::Record { class: String::new(), members: reader.members() };
        let blank = match compaction.dead {
            [] => Array::Record { length: 0, members: vec![] },
            _ => single(&of, &Value::zero(&of)?)?,
        };
        Ok(Compactor {
            reader,
            sink,
            compaction,
            progress,
            all: reader.select_all(),
            blank,
            writer: ClusterWriter::new(reader.schema(), &[], compaction.options.page_options())?,
            first_entry: 0,
            counter: ElementCounter::new(reader.schema()),
            groups: GroupWriter::new(reader.footer().header_checksum),
            summaries: vec![],
            bytes: 0,
        })
    }

    /// Keeps clusters with their pages, and the page list of `group` if they are all its clusters and their
    /// element offsets are right.
    fn keep(&mut self, clusters: &[&StoredCluster], group: Option<ClusterGroup>) -> Result<()> {
        let mut was_wrong = false;
        let mut counted = Vec::with_capacity(clusters.len());
        for stored in clusters {
            let mut cluster = unchanged(stored);
            was_wrong |= self.counter.count(&mut cluster)?;
            counted.push(cluster);
        }
        match group {
            Some(group) if !was_wrong => self.groups.keep(self.sink, group)?,
            _ => counted.into_iter().try_for_each(|of| self.groups.push(self.sink, of))?,
        }
        clusters.last().iter().for_each(|last| (self.progress)(last.entries.end));
        Ok(())
    }

    /// Rewrites consecutive clusters into as few as possible.
    fn rewrite(&mut self, clusters: &[&StoredCluster]) -> Result<()> {
        self.first_entry = clusters.first().map_or(0, |cluster| cluster.entries.start);
        for cluster in clusters {
            let Range { start, end } = cluster.entries;
            let (entries, size) = ((end - start).max(1), size_of(self.reader, cluster)?);
            let whole = memory_of(self.reader, cluster)?.max(1);
            let bytes = BATCH_BYTES.min(self.compaction.options.cluster_size / 8).max(1);
            let batch = (u128::from(entries) * u128::from(bytes) / u128::from(whole)) as u64;
            let batch = batch.clamp(1, entries);
            for first in (start..end).step_by(batch as usize) {
                let part = first..end.min(first + batch);
                let share = size / entries * (part.end - first);
                let room = self.compaction.options.cluster_size.saturating_sub(self.writer.size());
                if share > room {
                    self.end_cluster()?;
                }
                let array = self.batch(part.clone())?;
                self.writer.append(self.sink, &array, 0, array.len())?;
                (self.progress)(part.end);
            }
        }
        self.end_cluster()
    }

    fn end_cluster(&mut self) -> Result<()> {
        if self.writer.entries == 0 {
            return Ok(());
        }
        let (mut cluster, columns) = self.writer.finish(self.sink, self.first_entry)?;
        let (first_entry, entries) = (self.first_entry, cluster.entries);
        self.summaries.push(ClusterSummary { first_entry, entries, is_widening: false, columns });
        self.first_entry += entries;
        self.bytes += cluster.stored_size();
        self.counter.count(&mut cluster)?;
        self.groups.push(self.sink, cluster)
    }

    /// Reads entries, with default values for the dead ones.
    fn batch(&self, entries: Range<u64>) -> Result<Array> {
        let dead = self.compaction.dead_in(&entries);
        let count = (entries.end - entries.start) as usize;
        if let [range] = dead
            && range.start <= entries.start
            && entries.end <= range.end
        {
            return self.blank.take(&vec![0; count]);
        }
        let array = self.reader.read(&self.all, entries.clone())?;
        if dead.is_empty() {
            return Ok(array);
        }
        let mut positions: Vec<usize> = (0..count).collect();
        for range in dead {
            let start = range.start.max(entries.start) - entries.start;
            let end = range.end.min(entries.end) - entries.start;
            positions[start as usize..end as usize].fill(count);
        }
        Array::concatenate(&[array, self.blank.clone()])?.take(&positions)
    }
}

/// Bytes of a cluster's elements in memory.
fn memory_of(reader: &Reader, cluster: &StoredCluster) -> Result<u64> {
    let columns = reader.schema().columns.iter().zip(&cluster.runs);
    columns
        .map(|(column, run)| {
            let elements = run.as_ref().map_or(0, |run| run.elements);
            Ok(elements.saturating_mul(column.element()?.size() as u64))
        })
        .try_fold(0_u64, |sum, bytes| Ok(sum.saturating_add(bytes?)))
}

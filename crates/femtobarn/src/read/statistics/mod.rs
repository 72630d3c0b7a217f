//! Statistics: bounds of the values in clusters, by which readers skip clusters without matching values.
//!
//! There are bounds, by cluster, for every number outside collections, and for the sizes of collections and
//! texts outside other collections. Each commit adds a blob with the bounds of its clusters; blobs are merged
//! as binary counters carry. `run` is the format of a blob, `verify` checks bounds against values. Specified in
//! docs/format.md.
//!
//! 1. Bounds hold for every object that is not deleted. They may be wider than the values: replaced values only
//!    widen them.
//! 2. A cluster whose bounds for a field are unknown has no bounds, and replaced values add none.

mod run;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::HashMap;
use std::sync::Arc;

use femtobarn_catalog::BlobRange;
use parking_lot::Mutex;
use rntuple::{BlobSink, Bounds, ByteSource, ClusterSummary, ColumnPath};

use crate::annex::{Annex, Blob, StatisticsRun};
use crate::error::{Error, Result};
use crate::read::index::RunSink;
use crate::read::view::View;
use run::{ClusterStatistics, Directory, SummarisedCluster};
pub(crate) use verify::Verification;

/// A larger blob is not merged any more, since merging takes memory.
const MERGED_BYTES_MAX: u64 = 64 << 20;
/// The largest blob that a writer remembers.
const REMEMBERED_BYTES_MAX: u64 = 16 << 10;
/// More blobs than can have been written without a merge.
const REMEMBERED_MAX: usize = 32;

/// The bounds of a field's values in some entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterBounds {
    /// The first of the entries.
    pub first_entry: u64,
    /// The number of entries.
    pub entries: u64,
    /// The bounds; `None` if they are not known.
    pub bounds: Option<Bounds>,
}

/// The blobs that a writer wrote last, kept in memory so that merging need not read them.
#[derive(Default)]
pub(crate) struct RecentRuns(Vec<(Blob, ClusterStatistics)>);

impl RecentRuns {
    /// Removes a blob and those after it.
    fn take(&mut self, blob: &Blob) -> Option<ClusterStatistics> {
        let at = self.0.iter().position(|(known, _)| known == blob)?;
        self.0.drain(at..).next().map(|(_, run)| run)
    }

    fn remember(&mut self, blob: Blob, run: ClusterStatistics) {
        // The blobs of failed commits are never taken out again, hence the limits.
        if blob.size <= REMEMBERED_BYTES_MAX && self.0.len() < REMEMBERED_MAX {
            self.0.push((blob, run));
        } else {
            self.0.clear();
        }
    }
}

/// Adds the bounds of a version's new clusters. Blobs that are not in `recent` are read.
///
/// # Errors
/// [`Error::Io`] or [`Error::Storage`] if the blob cannot be written; [`Error::Corrupt`] if a blob that is
/// merged is damaged.
pub(crate) fn append(
    runs: &mut Vec<StatisticsRun>,
    summaries: &[ClusterSummary],
    paths: &[ColumnPath],
    recent: &mut RecentRuns,
    source: &dyn ByteSource,
    sink: &mut dyn RunSink,
) -> Result<()> {
    if summaries.is_empty() {
        return Ok(());
    }
    let new = ClusterStatistics::of(summaries, paths);
    let mut count = new.clusters.len() as u64;
    let mut kept = runs.len();
    while let Some(run) = runs[..kept].last() {
        if run.clusters > count || run.blob.size > MERGED_BYTES_MAX {
            break;
        }
        count += run.clusters;
        kept -= 1;
    }
    let mut parts = vec![];
    for taken in runs[kept..].iter().rev() {
        parts.push(match recent.take(&taken.blob) {
            Some(known) => known,
            None => {
                sink.settle()?;
                ClusterStatistics::read(source, &taken.blob)?
            }
        });
    }
    parts.reverse();
    parts.push(new);
    let joined = ClusterStatistics::join(&parts);
    let run = write(&joined, sink)?;
    recent.remember(run.blob, joined);
    runs.truncate(kept);
    runs.push(run);
    Ok(())
}

fn write(run: &ClusterStatistics, sink: &mut dyn RunSink) -> Result<StatisticsRun> {
    let first_entry = run.clusters.iter().map(|it| it.first_entry).min().unwrap_or(0);
    let end = run.clusters.iter().map(|it| it.first_entry + it.entries).max().unwrap_or(0);
    let blob = Blob::write(sink, &run.encode()).map_err(Error::storage("statistics"))?;
    let clusters = run.clusters.len() as u64;
    Ok(StatisticsRun { first_entry, entries: end - first_entry, clusters, blob })
}

/// Writes the bounds of a part's clusters, for [`read_part`].
///
/// # Errors
/// [`Error::Io`] or [`Error::Storage`] if the blob cannot be written.
pub(crate) fn write_part(
    summaries: &[ClusterSummary],
    paths: &[ColumnPath],
    sink: &mut dyn BlobSink,
) -> Result<Blob> {
    let bytes = ClusterStatistics::of(summaries, paths).encode();
    Blob::write(sink, &bytes).map_err(Error::storage("statistics"))
}

/// Reads the bounds of a part's clusters.
///
/// # Errors
/// [`Error::Corrupt`] if the blob is damaged; [`Error::Storage`] if it cannot be read.
pub(crate) fn read_part(
    blob: &Blob,
    paths: &[ColumnPath],
    source: &dyn ByteSource,
) -> Result<Vec<ClusterSummary>> {
    Ok(ClusterStatistics::read(source, blob)?.summaries(paths))
}

/// Rewrites the statistics for a new version of the class. `new_path` returns the new path of a column, or none
/// if its values change; then its bounds are dropped.
///
/// # Errors
/// The errors of [`append`].
pub(crate) fn evolve(
    runs: &mut [StatisticsRun],
    new_path: &dyn Fn(&str) -> Option<String>,
    source: &dyn ByteSource,
    sink: &mut dyn RunSink,
) -> Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    sink.settle()?;
    for run in runs {
        let mut known = ClusterStatistics::read(source, &run.blob)?;
        let renamed = |(name, bounds): (String, _)| {
            let (path, is_size) = match name.strip_suffix(".#") {
                Some(path) => (path, ".#"),
                None => (&name[..], ""),
            };
            Some((format!("{}{is_size}", new_path(path)?), bounds))
        };
        let columns = std::mem::take(&mut known.columns).into_iter();
        known.columns = columns.filter_map(renamed).collect();
        *run = write(&known, sink)?;
    }
    Ok(())
}

/// Bytes of all blobs.
pub(crate) fn size(runs: &[StatisticsRun]) -> u64 {
    runs.iter().map(|run| run.blob.size).sum()
}

/// The statistics of a version, each column read at its first use.
pub(crate) struct VersionStatistics {
    source: Arc<dyn ByteSource>,
    annex: BlobRange,
    loaded: Mutex<LoadedColumns>,
}

#[derive(Default)]
struct LoadedColumns {
    directories: Option<Arc<Vec<Directory>>>,
    columns: HashMap<String, Arc<[ClusterBounds]>>,
}

impl VersionStatistics {
    pub(crate) fn new(source: Arc<dyn ByteSource>, annex: BlobRange) -> Self {
        VersionStatistics { source, annex, loaded: Mutex::default() }
    }

    fn column(&self, name: &str) -> Result<Arc<[ClusterBounds]>> {
        let mut loaded = self.loaded.lock();
        if let Some(bounds) = loaded.columns.get(name) {
            return Ok(bounds.clone());
        }
        let directories = match &loaded.directories {
            Some(directories) => directories.clone(),
            None => {
                let annex = Annex::read(&*self.source, self.annex)?;
                let runs = annex.statistics.iter();
                let directories = runs.map(|run| Directory::read(&*self.source, &run.blob));
                let directories = Arc::new(directories.collect::<Result<Vec<_>>>()?);
                loaded.directories = Some(directories.clone());
                directories
            }
        };
        let mut pieces = vec![];
        for directory in &*directories {
            let bounds = directory.column(&*self.source, name)?;
            let of = |at: usize| bounds.as_ref().and_then(|bounds| bounds[at]);
            pieces.extend(directory.clusters.iter().enumerate().map(|(at, it)| (*it, of(at))));
        }
        let bounds: Arc<[ClusterBounds]> = apply_widenings(pieces).into();
        loaded.columns.insert(name.to_owned(), bounds.clone());
        Ok(bounds)
    }
}

/// The bounds of clusters, widened by the bounds of values that were replaced in them.
fn apply_widenings(mut pieces: Vec<(SummarisedCluster, Option<Bounds>)>) -> Vec<ClusterBounds> {
    pieces.retain(|(piece, _)| piece.entries > 0);
    pieces.sort_by_key(|(piece, _)| *piece);
    let mut clusters: Vec<ClusterBounds> = vec![];
    for (piece, bounds) in pieces.iter().filter(|(piece, _)| !piece.is_widening) {
        let SummarisedCluster { first_entry, entries, .. } = *piece;
        match clusters.last_mut() {
            // Of clusters that overlap, no bounds are certain.
            Some(last) if last.first_entry + last.entries > first_entry => {
                let end = (last.first_entry + last.entries).max(first_entry + entries);
                (last.entries, last.bounds) = (end - last.first_entry, None);
            }
            _ => clusters.push(ClusterBounds { first_entry, entries, bounds: *bounds }),
        }
    }
    for (piece, bounds) in pieces.iter().filter(|(piece, _)| piece.is_widening) {
        let end = piece.first_entry + piece.entries;
        let first = clusters.partition_point(|it| it.first_entry + it.entries <= piece.first_entry);
        let touched = clusters[first..].iter_mut().take_while(|it| it.first_entry < end);
        if let Some(bounds) = bounds {
            touched.for_each(|it| it.bounds = it.bounds.map(|it| it.union(*bounds)));
        }
    }
    clusters
}

impl View {
    /// The bounds of a field's values, cluster by cluster, in order. The field is a number outside collections,
    /// such as `run`, or the size of a collection or text outside collections, such as `tracks.#`. Bounds may
    /// be wider than the values. Entries that no returned cluster has can have any value. All fields of a
    /// container have the same clusters.
    ///
    /// Empty if the field does not exist, or has no statistics.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the statistics are damaged.
    pub fn statistics(&self, path: &str) -> Result<Arc<[ClusterBounds]>> {
        let version = self.opened_version();
        let is_summarised = |it: &ColumnPath| it.is_summarised && run::name(it) == path;
        if version.reader.column_paths().iter().any(is_summarised) {
            self.snapshot().kept(version.statistics.column(path))
        } else {
            Ok(Arc::new([]))
        }
    }
}

/// Decodes the statistics of clusters, which have to be decoded to the same once more when they are encoded.
#[cfg(fuzzing)]
pub(crate) fn fuzz_statistics(bytes: &Vec<u8>, blob: &Blob) {
    if let Ok(directory) = Directory::read(bytes, blob) {
        std::hint::black_box(directory.column(bytes, "x").ok());
    }
    if let Ok(statistics) = ClusterStatistics::read(bytes, blob) {
        let again = statistics.encode();
        let checksum = twox_hash::XxHash3_64::oneshot(&again);
        let blob = Blob { offset: 0, size: again.len() as u64, checksum };
        let read = ClusterStatistics::read(&again, &blob).expect("our own statistics are sound");
        // Compared as bytes, since a bound of NaN is not equal to itself.
        assert_eq!(read.encode(), again);
        std::hint::black_box(ClusterStatistics::join(&[statistics, read]));
    }
}

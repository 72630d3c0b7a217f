//! What the values of clusters lie between, so that readers can pass over those that have nothing for
//! them.
//!
//! Known are the least and greatest of every number outside collections, and of the sizes of collections
//! and texts outside others, by cluster. Each commit adds a blob with what it knows of its clusters;
//! blobs are merged as binary counters carry.
//!
//! Invariants:
//! 1. Bounds hold for every object that is not deleted; they may be wider than needed. Replaced values
//!    only widen them.
//! 2. What is not sure is not known. A cluster of which a field is not known has no bounds for it,
//!    whatever was replaced in it.

mod run;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use femtobarn_catalog::BlobRange;
use rntuple::{Bounds, ByteSource, ClusterSummary, ColumnPath};

use crate::annex::{Annex, Blob, StatisticsRun};
use crate::error::{Error, Result};
use crate::read::index::RunSink;
use crate::read::view::View;
use run::{Directory, Run, Summarised};
pub(crate) use verify::Verification;

/// Bytes of a blob that is not merged with others any more, since merging takes memory.
const MERGED_BYTES_MAX: u64 = 64 << 20;

/// What the values of a field lie between in some entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterBounds {
    /// The first of the entries.
    pub first_entry: u64,
    /// How many they are.
    pub entries: u64,
    /// Their bounds; `None` if they are not known.
    pub bounds: Option<Bounds>,
}

/// Adds what a version knows of its clusters.
///
/// # Errors
/// As the disk; `Corrupt` if what is merged is damaged.
pub(crate) fn append(
    runs: &mut Vec<StatisticsRun>,
    summaries: &[ClusterSummary],
    paths: &[ColumnPath],
    source: &dyn ByteSource,
    sink: &mut dyn RunSink,
) -> Result<()> {
    if summaries.is_empty() {
        return Ok(());
    }
    let new = Run::of(summaries, paths);
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
    if kept < runs.len() {
        sink.settle()?;
        for taken in &runs[kept..] {
            parts.push(Run::read(source, &taken.blob)?);
        }
    }
    parts.push(new);
    let joined = Run::joined(&parts);
    let run = write(&joined, sink)?;
    runs.truncate(kept);
    runs.push(run);
    Ok(())
}

fn write(run: &Run, sink: &mut dyn RunSink) -> Result<StatisticsRun> {
    let first_entry = run.clusters.iter().map(|it| it.first_entry).min().unwrap_or(0);
    let end = run.clusters.iter().map(|it| it.first_entry + it.entries).max().unwrap_or(0);
    let blob = Blob::write(sink, &run.encode()).map_err(Error::storage("statistics"))?;
    let clusters = run.clusters.len() as u64;
    Ok(StatisticsRun { first_entry, entries: end - first_entry, clusters, blob })
}

/// Keeps what is known when a class becomes another: `new_path` says what the path of a column is then,
/// or that its values are not what they were.
///
/// # Errors
/// As [`append`].
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
        let mut known = Run::read(source, &run.blob)?;
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

/// The statistics of a version, each column read when first asked for.
pub(crate) struct Statistics {
    source: Arc<dyn ByteSource>,
    annex: BlobRange,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    directories: Option<Arc<Vec<Directory>>>,
    columns: HashMap<String, Arc<[ClusterBounds]>>,
}

impl Statistics {
    pub fn new(source: Arc<dyn ByteSource>, annex: BlobRange) -> Self {
        Statistics { source, annex, known: Mutex::default() }
    }

    fn column(&self, name: &str) -> Result<Arc<[ClusterBounds]>> {
        // What is in there is whole whatever happened to a thread that held it.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bounds) = known.columns.get(name) {
            return Ok(bounds.clone());
        }
        let directories = match &known.directories {
            Some(directories) => directories.clone(),
            None => {
                let annex = Annex::read(&*self.source, self.annex)?;
                let runs = annex.statistics.iter();
                let directories = runs.map(|run| Directory::read(&*self.source, &run.blob));
                let directories = Arc::new(directories.collect::<Result<Vec<_>>>()?);
                known.directories = Some(directories.clone());
                directories
            }
        };
        let mut pieces = vec![];
        for directory in &*directories {
            let bounds = directory.column(&*self.source, name)?;
            let of = |at: usize| bounds.as_ref().and_then(|bounds| bounds[at]);
            pieces.extend(directory.clusters.iter().enumerate().map(|(at, it)| (*it, of(at))));
        }
        let bounds: Arc<[ClusterBounds]> = united(pieces).into();
        known.columns.insert(name.to_owned(), bounds.clone());
        Ok(bounds)
    }
}

/// The bounds of clusters, widened by what was replaced in them.
fn united(mut pieces: Vec<(Summarised, Option<Bounds>)>) -> Vec<ClusterBounds> {
    pieces.retain(|(piece, _)| piece.entries > 0);
    pieces.sort_by_key(|(piece, _)| *piece);
    let mut clusters: Vec<ClusterBounds> = vec![];
    for (piece, bounds) in pieces.iter().filter(|(piece, _)| !piece.is_widening) {
        let Summarised { first_entry, entries, .. } = *piece;
        match clusters.last_mut() {
            // Nothing is sure of what is told twice.
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
    /// What the values of a field lie between, cluster by cluster, in order: of a number outside
    /// collections, such as `run`, or with `.#` behind its path of the size of a collection or text
    /// outside others, such as `tracks.#`. Entries that no cluster of the answer covers can have any
    /// value. Bounds may be wider than the values are. All fields of a container have the same clusters.
    ///
    /// The answer is empty if there is no such field, or nothing is known of it.
    ///
    /// # Errors
    /// `Corrupt` if what is stored is damaged.
    pub fn statistics(&self, path: &str) -> Result<Arc<[ClusterBounds]>> {
        let version = self.opened_version();
        let is_summarised = |it: &ColumnPath| it.is_summarised && run::name(it) == path;
        match version.reader.column_paths().iter().any(is_summarised) {
            true => version.statistics.column(path),
            false => Ok(Arc::new([])),
        }
    }
}

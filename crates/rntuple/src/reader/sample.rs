//! The sizes of columns in memory and on disk, and samples of their elements, by which choices of encodings and
//! compressions are measured.

use bytes::Bytes;

use super::cluster::PageRun;
use super::elements::{ClusterSegment, Elements};
use super::{Reader, StoredCluster};
use crate::error::{Error, Result};
use crate::schema::ColumnId;

/// Clusters that a sample of a column is taken from, at most.
const SAMPLED_CLUSTERS: usize = 8;

/// The bytes of a column in all clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnSize {
    /// Bytes of the elements on pages, in memory.
    pub memory: u64,
    /// Bytes of the pages, with their checksums.
    pub stored: u64,
}

impl Reader {
    /// The sizes of all columns. Reads every page list.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a page list is damaged; [`Error::Io`] if the source cannot be read.
    pub fn column_sizes(&self) -> Result<Vec<ColumnSize>> {
        let mut sizes = vec![ColumnSize::default(); self.schema().columns.len()];
        for cluster in self.clusters_of(&(0..self.entries()))? {
            for ((run, column), size) in
                cluster.runs.iter().zip(&self.schema().columns).zip(&mut sizes)
            {
                let element = column.column_type.element().map_or(0, |element| element.size());
                for page in run.iter().flat_map(|run| &run.pages) {
                    size.memory += u64::from(page.elements) * element as u64;
                    size.stored = size.stored.saturating_add(page.stored_size());
                }
            }
        }
        Ok(sizes)
    }

    /// Elements of a column as in memory, about `bytes` of them: consecutive ones from each of some clusters, spread
    /// evenly over all clusters that store the column.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a page or a page list is damaged, [`Error::Unsupported`] if elements of the column cannot be
    /// read; [`Error::Io`] if the source cannot be read.
    pub fn sample(&self, column: ColumnId, bytes: usize) -> Result<Vec<Bytes>> {
        let element = match self.schema().columns.get(column as usize) {
            Some(column) => column.element()?,
            None => return Err(Error::invalid(format!("there is no column {column}"))),
        };
        let clusters = self.clusters_of(&(0..self.entries()))?;
        let stored: Vec<(&StoredCluster, &PageRun)> = clusters
            .into_iter()
            .filter_map(|cluster| Some((cluster, cluster.active(&[column])?.1)))
            .filter(|(_, run)| !run.pages.is_empty())
            .collect();
        let count = stored.len().min(SAMPLED_CLUSTERS);
        let elements = Elements { cache: None, ..self.elements() };
        let taken = (0..count).map(|number| {
            let (cluster, run) = stored[number * stored.len() / count];
            let first = run.starts[number * run.starts.len() / count];
            let end = run.elements.min(first + (bytes / count / element.size()).max(1) as u64);
            let segment = ClusterSegment { cluster, range: first..end, is_referenced: true };
            elements.read(&[column], &[segment], element)
        });
        taken.collect()
    }
}

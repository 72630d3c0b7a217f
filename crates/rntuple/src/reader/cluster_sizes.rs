//! The sizes of an RNTuple's clusters in the file, for dividing it among several readers.

use std::ops::Range;

use super::{Projection, Reader};
use crate::error::Result;
use crate::page_list::PageLocation;
use crate::schema::ColumnId;
use crate::tree::FieldNode;

impl Reader {
    /// The entries of each cluster, in order, and the stored bytes of the fields of a projection in it.
    ///
    /// Reads all page lists, but no pages.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) if a page list is damaged, [`Io`](crate::ErrorKind::Io) if the source
    /// cannot be read.
    pub fn cluster_sizes(&self, projection: &Projection) -> Result<Vec<(Range<u64>, u64)>> {
        let mut columns = vec![];
        projection.nodes().iter().for_each(|node| collect_columns(node, &mut columns));
        let clusters = self.clusters_of(&(0..self.entries()))?;
        let sized = clusters.into_iter().map(|cluster| {
            let runs = columns.iter().filter_map(|id| cluster.runs.get(*id as usize)?.as_ref());
            let bytes = runs.flat_map(|run| &run.pages).map(PageLocation::stored_size);
            (cluster.entries.clone(), bytes.fold(0, u64::saturating_add))
        });
        Ok(sized.collect())
    }
}

fn collect_columns(node: &FieldNode, columns: &mut Vec<ColumnId>) {
    node.own_columns().into_iter().for_each(|own| columns.extend_from_slice(own));
    node.children().iter().for_each(|child| collect_columns(child, columns));
}

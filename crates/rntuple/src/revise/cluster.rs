//! Clusters that are carried over from one version to the next.

use crate::error::{Error, Result};
use crate::page_list::{Cluster, ColumnPages};
use crate::reader::{PageRun, StoredCluster};
use crate::schema::{ColumnId, Schema};

/// The cluster as in its page list.
pub(super) fn unchanged(stored: &StoredCluster) -> Cluster {
    let pages = |run: &Option<PageRun>| match run {
        None => ColumnPages::default(),
        Some(run) => ColumnPages {
            element_offset: Some(run.offset),
            compression: run.compression,
            pages: run.pages.clone(),
        },
    };
    Cluster {
        first_entry: stored.entries.start,
        entries: stored.entries.end - stored.entries.start,
        columns: stored.runs.iter().map(pages).collect(),
    }
}

/// Counts the elements of columns from cluster to cluster.
pub(super) struct ElementCounter {
    /// For each column the number of its group of alternatives; `None` for deferred columns.
    groups: Vec<Option<usize>>,
    /// Elements of each group so far.
    totals: Vec<u64>,
}

impl ElementCounter {
    pub(super) fn new(schema: &Schema) -> Self {
        let mut groups = vec![None; schema.columns.len()];
        let all = schema.alternative_columns();
        for (number, group) in all.iter().enumerate() {
            let is_deferred =
                |&id: &ColumnId| schema.columns[id as usize].first_element.unwrap_or(0) != 0;
            if !group.iter().any(is_deferred) {
                group.iter().for_each(|&id| groups[id as usize] = Some(number));
            }
        }
        ElementCounter { groups, totals: vec![0; all.len()] }
    }

    /// Sets the element offsets of the next cluster; returns whether any was wrong.
    pub(super) fn count(&mut self, cluster: &mut Cluster) -> Result<bool> {
        let mut was_wrong = false;
        for (id, column) in cluster.columns.iter_mut().enumerate() {
            let (Some(Some(group)), Some(offset)) =
                (self.groups.get(id), &mut column.element_offset)
            else {
                continue;
            };
            let elements: u64 = column.pages.iter().map(|page| u64::from(page.elements)).sum();
            let total = &mut self.totals[*group];
            was_wrong |= *offset != *total;
            *offset = *total;
            *total = total.checked_add(elements).filter(|&end| end <= i64::MAX as u64).ok_or_else(
                || Error::corrupt("page list", 0, "a column ends beyond element 2^63"),
            )?;
        }
        Ok(was_wrong)
    }
}

//! Parts: clusters that several writers write at once, and one of them appends.
//!
//! A writer of a part has the schema of the RNTuple and counts entries and elements from 0. The appender of the
//! RNTuple moves these numbers behind its own; the pages stay where they are.
//!
//! **Invariant:** a part is appended as a whole, after a check that its clusters follow each other, or not at all.

use std::sync::Arc;

use super::{Appender, WriteOptions};
use crate::error::{Error, Result};
use crate::page_list::{Cluster, ELEMENTS_MAX, PageList, PageLocation, TOO_MANY_ELEMENTS};
use crate::reader::Reader;
use crate::schema::ColumnId;
use crate::source::BlobSink;
use crate::summary::ClusterSummary;

/// Clusters that were written apart from their RNTuple. Entries and elements are counted from 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrittenPart {
    /// The clusters.
    pub page_list: PageList,
    /// Their summaries.
    pub summaries: Vec<ClusterSummary>,
}

impl WrittenPart {
    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.page_list.clusters.iter().fold(0, |sum, cluster| sum.saturating_add(cluster.entries))
    }
}

impl Appender {
    /// An appender for parts of the RNTuple that a reader has open.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for fields that cannot be written.
    pub fn of_parts(reader: &Reader, options: WriteOptions) -> Result<Self> {
        Self::new(reader.schema(), &[], options, reader.footer().header_checksum)
    }

    /// Ends the cluster, and returns what was appended since the last part. The next part begins with entry 0.
    ///
    /// # Errors
    /// [`Error::Io`] from the sink.
    pub fn finish_part(&mut self, sink: &mut dyn BlobSink) -> Result<WrittenPart> {
        self.end_cluster(sink)?;
        let clusters = self.state.groups.take_fresh();
        let summaries = std::mem::take(&mut self.state.summaries);
        (self.state.first_entry, self.state.bytes) = (0, 0);
        self.writer.reset(&[]);
        Ok(WrittenPart {
            page_list: PageList { header_checksum: self.header_checksum, clusters },
            summaries: summaries.into_iter().map(Arc::unwrap_or_clone).collect(),
        })
    }

    /// Checks that a part can be appended: that it is of this RNTuple, its clusters follow each other, and its pages lie
    /// in a file of `file_size` bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is of another RNTuple; [`Error::Corrupt`] if it is damaged.
    pub fn check_part(&self, part: &WrittenPart, file_size: u64) -> Result<()> {
        if part.page_list.header_checksum != self.header_checksum {
            return Err(Error::invalid("a part of another RNTuple"));
        }
        let mut entries = 0;
        let mut totals = vec![0; self.schema.columns.len()];
        for cluster in &part.page_list.clusters {
            if cluster.first_entry != entries {
                return Err(corrupt(format!(
                    "a cluster starts at entry {}, not {entries}",
                    cluster.first_entry
                )));
            }
            // The decoder has checked that the sum fits.
            entries = cluster.first_entry.saturating_add(cluster.entries);
            add_elements(cluster, &mut totals)?;
            check_pages(cluster, file_size)?;
        }
        let offsets = self.writer.element_offsets();
        let ends = offsets.iter().zip(&totals).map(|(before, more)| before.checked_add(*more));
        if ends.into_iter().any(|end| end.is_none_or(|end| end > ELEMENTS_MAX))
            || self.entries().checked_add(entries).is_none()
        {
            return Err(corrupt(TOO_MANY_ELEMENTS.to_owned()));
        }
        Ok(())
    }

    /// Ends the cluster under construction, and appends the clusters of a part, which was checked.
    ///
    /// # Errors
    /// [`Error::Io`] from the sink; [`Error::Corrupt`] if it was checked before other parts were appended, with which
    /// its numbers are too large.
    pub fn append_part(&mut self, sink: &mut dyn BlobSink, part: WrittenPart) -> Result<()> {
        self.end_cluster(sink)?;
        self.check_part(&part, u64::MAX)?;
        let offsets = self.writer.element_offsets();
        let first_entry = self.state.first_entry;
        let mut totals = vec![0; offsets.len()];
        for mut cluster in part.page_list.clusters {
            add_elements(&cluster, &mut totals)?;
            cluster.first_entry += first_entry;
            for (column, before) in cluster.columns.iter_mut().zip(&offsets) {
                column.element_offset = column.element_offset.map(|offset| before + offset);
            }
            self.state.first_entry += cluster.entries;
            self.state.bytes += cluster.stored_size();
            self.state.groups.push(cluster);
        }
        let growth = totals.iter().enumerate().map(|(id, more)| (id as ColumnId, *more as i64));
        self.writer.shift_offsets(&growth.collect::<Vec<_>>());
        for mut summary in part.summaries {
            summary.first_entry += first_entry;
            self.state.summaries.push(Arc::new(summary));
        }
        Ok(())
    }
}

/// Adds the elements of each column of a cluster to those of the clusters before it.
fn add_elements(cluster: &Cluster, totals: &mut [u64]) -> Result<()> {
    if cluster.columns.len() > totals.len() {
        return Err(corrupt(format!("a cluster has {} columns", cluster.columns.len())));
    }
    for (id, (column, total)) in cluster.columns.iter().zip(totals).enumerate() {
        match column.element_offset {
            Some(offset) if offset == *total => {
                let elements: u64 = column.pages.iter().map(|page| u64::from(page.elements)).sum();
                *total = total
                    .checked_add(elements)
                    .ok_or_else(|| corrupt(TOO_MANY_ELEMENTS.to_owned()))?;
            }
            None if column.pages.is_empty() => {}
            _ => return Err(corrupt(format!("column {id} does not continue the cluster before"))),
        }
    }
    Ok(())
}

fn check_pages(cluster: &Cluster, file_size: u64) -> Result<()> {
    let pages = cluster.columns.iter().flat_map(|column| &column.pages);
    let is_inside = |page: &PageLocation| {
        let end = page.locator.offset.checked_add(page.stored_size());
        end.is_some_and(|end| end <= file_size)
    };
    match pages.into_iter().find(|page| !is_inside(page)) {
        None => Ok(()),
        Some(page) => {
            let offset = page.locator.offset;
            Err(corrupt(format!("a page at byte {offset} ends behind byte {file_size}")))
        }
    }
}

fn corrupt(reason: String) -> Error {
    Error::corrupt("part", 0, reason)
}

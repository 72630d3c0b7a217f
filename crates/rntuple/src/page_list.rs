//! The page list envelope: the clusters of a cluster group and the locations of their pages.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Page List Envelope".

use std::borrow::Borrow;
use std::ops::Range;

use crate::envelope::{CHECKSUM_SIZE, EnvelopeKind, PREAMBLE_SIZE, open_envelope, seal_envelope};
use crate::error::{Error, Result};
use crate::locator::{LOCATOR_SIZE_MIN, Locator};
use crate::page::CHECKSUM_SIZE as PAGE_CHECKSUM_SIZE;
use crate::wire::{LIST_FRAME_OVERHEAD, RECORD_FRAME_OVERHEAD, Reader, Writer};

const SUMMARY_SIZE_MIN: usize = RECORD_FRAME_OVERHEAD + 16;
const PAGE_SIZE_MIN: usize = 4 + LOCATOR_SIZE_MIN;
/// An empty list of pages and the element offset.
const COLUMN_PAGES_SIZE_MIN: usize = LIST_FRAME_OVERHEAD + 8;

/// Bits of a cluster's number of entries, in a word whose upper 8 bits are flags.
const ENTRIES_BITS: u32 = 56;
const CLUSTER_SHARDED: u64 = 0x01;

/// Most elements of a column: the file stores their indexes as signed integers.
pub(crate) const ELEMENTS_MAX: u64 = i64::MAX as u64;
/// Most bytes of the single page list of a finished file: up to four million pages. JSROOT 7.11 reads
/// only the first list of a file; on the other hand a reader of one entry reads the whole list.
pub(crate) const WHOLE_SIZE_MAX: u64 = 64 << 20;
pub(crate) const TOO_MANY_ELEMENTS: &str = "a column ends beyond element 2^63";

/// The clusters of one cluster group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageList {
    /// Checksum of the header of the same RNTuple.
    pub header_checksum: u64,
    /// The clusters, in the order of their entries.
    pub clusters: Vec<Cluster>,
}

/// A range of entries and the pages of all columns with their elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// First entry.
    pub first_entry: u64,
    /// Number of entries.
    pub entries: u64,
    /// The pages by [`ColumnId`](crate::ColumnId). Shorter than the schema's list of columns if columns
    /// were added after the cluster was written.
    pub columns: Vec<ColumnPages>,
}

/// The pages of one column in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnPages {
    /// Index of the cluster's first element in the whole column; `None` if the column is suppressed:
    /// another representation of the field holds the data of this cluster.
    pub element_offset: Option<u64>,
    /// ROOT's compression settings, algorithm * 100 + level, for information only.
    pub compression: u32,
    /// The pages, in the order of their elements.
    pub pages: Vec<PageLocation>,
}

/// Location and number of elements of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageLocation {
    /// Number of elements, less than 2^31.
    pub elements: u32,
    /// Whether 8 bytes of checksum follow the page.
    pub checksum: bool,
    /// The stored bytes, without the checksum.
    pub locator: Locator,
}

impl PageList {
    /// Bytes of the envelope of an empty list.
    pub(crate) const FRAME_SIZE: u64 =
        (PREAMBLE_SIZE + 8 + 2 * LIST_FRAME_OVERHEAD + CHECKSUM_SIZE) as u64;

    /// Encodes the uncompressed envelope.
    pub fn encode(&self) -> Vec<u8> {
        Self::encode_clusters(self.header_checksum, &self.clusters)
    }

    /// Encodes the uncompressed envelope of borrowed or shared clusters.
    pub(crate) fn encode_clusters<C: Borrow<Cluster>>(
        header_checksum: u64,
        clusters: &[C],
    ) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u64(header_checksum);
        writer.list_frame(clusters.len(), |writer| {
            for cluster in clusters.iter().map(Borrow::borrow) {
                writer.record_frame(|writer| {
                    writer.u64(cluster.first_entry).u64(cluster.entries);
                });
            }
        });
        writer.list_frame(clusters.len(), |writer| {
            for cluster in clusters.iter().map(Borrow::borrow) {
                writer.list_frame(cluster.columns.len(), |writer| {
                    cluster.columns.iter().for_each(|column| column.encode(writer));
                });
            }
        });
        seal_envelope(EnvelopeKind::PageList, &writer.bytes)
    }

    /// Decodes an uncompressed envelope.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) if the bytes are damaged,
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if they use features of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        open_envelope(EnvelopeKind::PageList, bytes)?;
        let Outline { header_checksum, clusters } = Outline::decode(bytes)?;
        let clusters = clusters.iter().map(|outlined| outlined.decode(bytes));
        Ok(PageList { header_checksum, clusters: clusters.collect::<Result<_>>()? })
    }
}

/// A page list with its clusters' entries decoded, but not their pages: a full list describes thousands
/// of pages, of which a reader of one entry needs few.
pub(crate) struct Outline {
    pub header_checksum: u64,
    /// The clusters in the order of the list.
    pub clusters: Vec<Outlined>,
}

/// A cluster with its pages not yet decoded.
pub(crate) struct Outlined {
    /// The cluster without its columns.
    summary: Cluster,
    /// Bytes of the envelope that describe its pages.
    columns: Range<usize>,
}

impl Outline {
    /// Decodes an uncompressed envelope that [`open_envelope`] has checked.
    pub(crate) fn decode(envelope: &[u8]) -> Result<Self> {
        let payload_end = envelope.len().saturating_sub(CHECKSUM_SIZE);
        let payload = envelope.get(PREAMBLE_SIZE..payload_end).unwrap_or_default();
        let mut reader = described(payload, PREAMBLE_SIZE);
        let header_checksum = reader.u64()?;
        let summaries = decode_summaries(&mut reader)?;
        let (count, mut lists) = reader.list_frame(LIST_FRAME_OVERHEAD)?;
        if count != summaries.len() {
            let summaries = summaries.len();
            return Err(reader.corrupt(format!("{summaries} clusters, but pages of {count}")));
        }
        let mut clusters = Vec::with_capacity(count);
        for summary in summaries {
            let start = lists.offset() as usize;
            lists.list_frame(COLUMN_PAGES_SIZE_MIN)?;
            clusters.push(Outlined { summary, columns: start..lists.offset() as usize });
        }
        Ok(Outline { header_checksum, clusters })
    }
}

impl Outlined {
    /// First entry and number of entries.
    pub(crate) fn entries(&self) -> (u64, u64) {
        (self.summary.first_entry, self.summary.entries)
    }

    /// Decodes the cluster with its pages; `envelope` is the one that the outline was decoded from.
    pub(crate) fn decode(&self, envelope: &[u8]) -> Result<Cluster> {
        let frame = envelope.get(self.columns.clone()).unwrap_or_default();
        let columns = decode_columns(&mut described(frame, self.columns.start))?;
        Ok(Cluster { columns, ..self.summary.clone() })
    }
}

fn described(bytes: &[u8], base: usize) -> Reader<'_> {
    Reader::new(EnvelopeKind::PageList.name(), bytes, base as u64)
}

impl Cluster {
    /// Bytes of all pages with their checksums.
    pub(crate) fn stored_size(&self) -> u64 {
        let pages = self.columns.iter().flat_map(|column| &column.pages);
        pages.map(PageLocation::stored_size).sum()
    }

    /// Bytes that describe the cluster in a page list, if none of its pages has 2^31 bytes or more.
    pub(crate) fn described_size(&self) -> u64 {
        let pages = |column: &ColumnPages| {
            COLUMN_PAGES_SIZE_MIN
                + column.pages.len() * PAGE_SIZE_MIN
                + if column.element_offset.is_some() { size_of::<u32>() } else { 0 }
        };
        let columns: usize = self.columns.iter().map(pages).sum();
        (SUMMARY_SIZE_MIN + LIST_FRAME_OVERHEAD + columns) as u64
    }
}

fn decode_summaries(reader: &mut Reader<'_>) -> Result<Vec<Cluster>> {
    let (count, mut summaries) = reader.list_frame(SUMMARY_SIZE_MIN)?;
    (0..count).map(|_| decode_summary(&mut summaries.record_frame()?)).collect()
}

fn decode_summary(reader: &mut Reader<'_>) -> Result<Cluster> {
    let first_entry = reader.u64()?;
    let word = reader.u64()?;
    let (entries, flags) = (word & ((1 << ENTRIES_BITS) - 1), word >> ENTRIES_BITS);
    if flags & CLUSTER_SHARDED != 0 {
        return Err(Error::unsupported("a sharded cluster"));
    }
    match first_entry.checked_add(entries) {
        Some(_) => Ok(Cluster { first_entry, entries, columns: Vec::new() }),
        None => Err(reader.corrupt("a cluster ends beyond entry 2^64")),
    }
}

fn decode_columns(lists: &mut Reader<'_>) -> Result<Vec<ColumnPages>> {
    let (count, mut columns) = lists.list_frame(COLUMN_PAGES_SIZE_MIN)?;
    (0..count).map(|_| ColumnPages::decode(&mut columns)).collect()
}

impl ColumnPages {
    /// Decodes the list frame of a column: its pages, then the element offset and compression settings.
    fn decode(columns: &mut Reader<'_>) -> Result<Self> {
        let (count, mut reader) = columns.list_frame(PAGE_SIZE_MIN)?;
        let pages =
            (0..count).map(|_| PageLocation::decode(&mut reader)).collect::<Result<Vec<_>>>()?;
        let Ok(element_offset) = u64::try_from(reader.i64()?) else {
            return Ok(ColumnPages { element_offset: None, compression: 0, pages });
        };
        let elements: u64 = pages.iter().map(|page| u64::from(page.elements)).sum();
        if element_offset.checked_add(elements).is_none_or(|end| end > ELEMENTS_MAX) {
            return Err(reader.corrupt(TOO_MANY_ELEMENTS));
        }
        Ok(ColumnPages { element_offset: Some(element_offset), compression: reader.u32()?, pages })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.list_frame(self.pages.len(), |writer| {
            self.pages.iter().for_each(|page| page.encode(writer));
            match self.element_offset {
                Some(offset) => writer.u64(offset).u32(self.compression),
                None => writer.i64(i64::MIN),
            };
        });
    }
}

impl PageLocation {
    /// Bytes of the page with its checksum.
    pub(crate) fn stored_size(&self) -> u64 {
        let checksum = if self.checksum { PAGE_CHECKSUM_SIZE as u64 } else { 0 };
        self.locator.size.saturating_add(checksum)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let word = reader.i32()?;
        if word == i32::MIN {
            return Err(reader.corrupt("a page cannot have 2^31 elements"));
        }
        Ok(PageLocation {
            elements: word.unsigned_abs(),
            checksum: word < 0,
            locator: Locator::decode(reader)?,
        })
    }

    fn encode(&self, writer: &mut Writer) {
        assert!(self.elements <= i32::MAX as u32, "a page has less than 2^31 elements");
        let elements = self.elements as i32;
        writer.i32(if self.checksum { -elements } else { elements });
        self.locator.encode(writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_computed_size_of_an_envelope_is_right() {
        let page = PageLocation { elements: 3, checksum: true, ..Default::default() };
        let full = ColumnPages { element_offset: Some(7), compression: 5, pages: vec![page; 3] };
        let columns = vec![full, ColumnPages::default()];
        let cluster = Cluster { first_entry: 0, entries: 3, columns };
        for count in 0..3 {
            let page_list = PageList { header_checksum: 1, clusters: vec![cluster.clone(); count] };
            let predicted = PageList::FRAME_SIZE + count as u64 * cluster.described_size();
            assert_eq!(page_list.encode().len() as u64, predicted);
        }
    }
}

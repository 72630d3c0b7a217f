//! Appending entries to an RNTuple: clusters as they fill, and a new footer in the end.
//!
//! Nothing that an earlier footer refers to is ever written again, so the earlier footer goes on
//! being the earlier version. Cluster groups are merged as binary counters carry: a new group takes
//! in the groups before it that have no more clusters than itself. There are then only about log2 of
//! the number of commits groups, and each page list entry is rewritten at most that often.

use super::cluster::ClusterWriter;
use super::column::PageOptions;
use super::row::{Cell, RowWriter};
use crate::array::Array;
use crate::compression::Compression;
use crate::envelope::{EnvelopeKind, read_envelope};
use crate::error::{Error, Result};
use crate::footer::{ClusterGroup, Footer};
use crate::header::Header;
use crate::locator::{EnvelopeLink, Locator};
use crate::page::CHECKSUM_SIZE;
use crate::page_list::{Cluster, PageList};
use crate::reader::Reader;
use crate::schema::Schema;
use crate::source::{BlobSink, ByteSource};
use crate::type_map::{Encoding, check_name};
use crate::types::Type;
use crate::value::Value;

/// How data are laid out on disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteOptions {
    /// Bytes of a full page's elements in memory; 64 KiB by default.
    pub page_size: usize,
    /// Bytes of pages after which a cluster ends, or a tenth of the bytes in memory; 64 MiB by
    /// default.
    pub cluster_size: u64,
    /// Compression of pages; none by default.
    pub compression: Compression,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions { page_size: 64 << 10, cluster_size: 64 << 20, compression: Compression::None }
    }
}

impl WriteOptions {
    /// Split encodings make pages compress better and cost time, so they go with compression.
    pub fn encoding(&self) -> Encoding {
        match self.compression {
            Compression::None => Encoding::Plain,
            _ => Encoding::Split,
        }
    }
}

/// Appends entries to a new RNTuple or to one version of an existing one.
pub struct Appender {
    writer: ClusterWriter,
    types: Type,
    options: WriteOptions,
    header_checksum: u64,
    extension: Schema,
    /// Cluster groups of the version that this one continues.
    groups: Vec<ClusterGroup>,
    /// Finished clusters that are in no group yet.
    clusters: Vec<Cluster>,
    /// Number of the first entry of the cluster under construction.
    first_entry: u64,
    /// Bytes of one entry, measured on what came so far; tells how many entries fit a cluster.
    entry_size: u64,
    /// Bytes of pages and envelopes written since the last version.
    bytes: u64,
}

/// Where a new version of an RNTuple is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The footer envelope.
    pub footer: EnvelopeLink,
    /// Entries of the version.
    pub entries: u64,
    /// Bytes of pages and envelopes that were written for it.
    pub bytes: u64,
}

impl Appender {
    /// Starts an RNTuple: writes its header and returns where it is.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name or a schema that cannot be stored; [`Error::Io`] from the sink.
    pub fn create(
        sink: &mut dyn BlobSink,
        name: &str,
        members: &[(String, Type)],
        options: WriteOptions,
    ) -> Result<(Self, EnvelopeLink)> {
        check_name("RNTuple", name)?;
        let header = Header {
            name: name.to_owned(),
            description: String::new(),
            writer: concat!("rntuple ", env!("CARGO_PKG_VERSION")).to_owned(),
            schema: Schema::new(members, options.encoding())?,
        };
        let bytes = header.encode();
        let (_, header_checksum) = Header::decode(&bytes)?;
        let link = write_envelope(sink, &bytes)?;
        let appender = Self::new(&header.schema, &[], options, header_checksum)?;
        Ok((appender, link))
    }

    /// Continues the version that a reader has open.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for fields that cannot be written; as for reading otherwise.
    pub fn resume(reader: &Reader, options: WriteOptions) -> Result<Self> {
        let offsets = reader.element_totals()?;
        let footer = reader.footer();
        let mut appender = Self::new(reader.schema(), &offsets, options, footer.header_checksum)?;
        appender.extension = footer.extension.clone();
        appender.groups = footer.cluster_groups.clone();
        appender.first_entry = reader.entries();
        Ok(appender)
    }

    fn new(
        schema: &Schema,
        element_offsets: &[u64],
        options: WriteOptions,
        header_checksum: u64,
    ) -> Result<Self> {
        let page = PageOptions { size: options.page_size, compression: options.compression };
        let writer = ClusterWriter::new(schema, element_offsets, page)?;
        let members = writer.tree.nodes.iter();
        let members = members.map(|node| (node.name.clone(), node.logical_type())).collect();
        Ok(Appender {
            writer,
            types: Type::Record { class: String::new(), members },
            options,
            header_checksum,
            extension: Schema::default(),
            groups: vec![],
            clusters: vec![],
            first_entry: 0,
            entry_size: 0,
            bytes: 0,
        })
    }

    /// Number of entries, with those of this appender.
    pub fn entries(&self) -> u64 {
        self.first_entry + self.writer.entries
    }

    /// Bytes appended to the cluster under construction.
    pub fn cluster_size(&self) -> u64 {
        self.writer.size()
    }

    /// Appends an array of records; all of it or, if it does not fit the schema, nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the array is not of the RNTuple's types; [`Error::Io`] from the sink.
    pub fn append(&mut self, sink: &mut dyn BlobSink, entries: &Array) -> Result<()> {
        entries.validate(&self.types)?;
        let mut first = 0;
        while first < entries.len() {
            let end = entries.len().min(first + self.entries_that_fit());
            self.writer.append(sink, entries, first, end)?;
            first = end;
            self.end_full_cluster(sink)?;
        }
        Ok(())
    }

    /// Appends one entry from Rust.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the row has not the RNTuple's columns; [`Error::Io`] from the sink.
    #[inline]
    pub fn append_row<R: Cell>(&mut self, sink: &mut dyn BlobSink, row: &R) -> Result<()> {
        self.writer.append_row(sink, |columns: &mut RowWriter<'_>| row.put(columns))?;
        self.end_full_cluster_of_rows(sink)
    }

    /// Whether rows of type `R` are what the RNTuple holds: same members, same types.
    pub fn holds<R: Cell>(&self) -> bool {
        R::cell_type() == self.types
    }

    /// Appends one entry from a dynamic value.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the value is not of the RNTuple's types; [`Error::Io`] from the sink.
    pub fn append_value(&mut self, sink: &mut dyn BlobSink, value: &Value) -> Result<()> {
        value.check(&self.types)?;
        let types = &self.types;
        self.writer.append_row(sink, |columns| columns.put_value(types, value))?;
        self.end_full_cluster_of_rows(sink)
    }

    /// Entries that fit the cluster under construction, as far as those before tell; not many more
    /// than those, since what follows may be larger.
    fn entries_that_fit(&self) -> usize {
        const FIRST_ENTRIES: u64 = 64;
        let many = self.writer.entries.max(FIRST_ENTRIES);
        let room = self.options.cluster_size.saturating_sub(self.writer.size());
        match self.entry_size {
            0 => many as usize,
            size => (room / size).clamp(1, many) as usize,
        }
    }

    fn end_full_cluster(&mut self, sink: &mut dyn BlobSink) -> Result<()> {
        let size = self.writer.size();
        self.entry_size = (size / self.writer.entries.max(1)).max(1);
        if size + self.entry_size <= self.options.cluster_size {
            return Ok(());
        }
        self.end_cluster(sink)
    }

    /// As [`end_full_cluster`](Self::end_full_cluster), but looks only once in many rows.
    #[inline]
    fn end_full_cluster_of_rows(&mut self, sink: &mut dyn BlobSink) -> Result<()> {
        const ROWS_BETWEEN: u64 = 64;
        let size = self.entry_size;
        let few_left = size == 0 || size * ROWS_BETWEEN * 2 >= self.options.cluster_size;
        if few_left || self.writer.entries.is_multiple_of(ROWS_BETWEEN) {
            self.end_full_cluster(sink)?;
        }
        Ok(())
    }

    fn end_cluster(&mut self, sink: &mut dyn BlobSink) -> Result<()> {
        if self.writer.entries > 0 {
            let cluster = self.writer.finish(sink, self.first_entry)?;
            self.first_entry += cluster.entries;
            self.bytes += stored_size(&cluster);
            self.clusters.push(cluster);
        }
        Ok(())
    }

    /// Ends the cluster, writes the page list and the footer of a new version, and goes on from it.
    ///
    /// `source` is where the sink's bytes, of this and of earlier versions, can be read.
    ///
    /// # Errors
    /// [`Error::Io`] from the sink; as for reading if an earlier page list cannot be merged.
    pub fn finish_version(
        &mut self,
        sink: &mut dyn BlobSink,
        source: &dyn ByteSource,
    ) -> Result<Version> {
        self.end_cluster(sink)?;
        if !self.clusters.is_empty() {
            self.merge_groups(source)?;
            let group = self.write_group(sink)?;
            self.bytes += group.page_list.locator.size;
            self.groups.push(group);
            self.clusters.clear();
        }
        let footer = Footer {
            header_checksum: self.header_checksum,
            extension: self.extension.clone(),
            cluster_groups: self.groups.clone(),
        };
        let footer = write_envelope(sink, &footer.encode())?;
        let bytes = std::mem::take(&mut self.bytes) + footer.locator.size;
        Ok(Version { footer, entries: self.first_entry, bytes })
    }

    /// Takes back the last groups that have no more clusters than the new one.
    fn merge_groups(&mut self, source: &dyn ByteSource) -> Result<()> {
        while let Some(group) = self.groups.last()
            && group.clusters as usize <= self.clusters.len()
        {
            let bytes = read_envelope(source, &group.page_list, EnvelopeKind::PageList, u64::MAX)?;
            let mut clusters = PageList::decode(&bytes)?.clusters;
            clusters.append(&mut self.clusters);
            self.clusters = clusters;
            self.groups.pop();
        }
        Ok(())
    }

    fn write_group(&self, sink: &mut dyn BlobSink) -> Result<ClusterGroup> {
        let clusters = self.clusters.clone();
        let min_entry = clusters[0].first_entry;
        let page_list = PageList { header_checksum: self.header_checksum, clusters };
        Ok(ClusterGroup {
            min_entry,
            entry_span: self.first_entry - min_entry,
            clusters: self.clusters.len() as u32,
            page_list: write_envelope(sink, &page_list.encode())?,
        })
    }

    /// The types of the entries: a record.
    pub fn types(&self) -> &Type {
        &self.types
    }
}

fn stored_size(cluster: &Cluster) -> u64 {
    let pages = cluster.columns.iter().flat_map(|column| &column.pages);
    pages.map(|page| page.locator.size + CHECKSUM_SIZE as u64).sum()
}

fn write_envelope(sink: &mut dyn BlobSink, bytes: &[u8]) -> Result<EnvelopeLink> {
    let offset = sink.write_blob(&[bytes])?;
    let size = bytes.len() as u64;
    if size > u64::from(u32::MAX) {
        return Err(Error::invalid("the description of the clusters exceeds 4 GiB"));
    }
    Ok(EnvelopeLink { length: size, locator: Locator { offset, size } })
}

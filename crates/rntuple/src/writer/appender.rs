//! [`Appender`]: appends entries to an RNTuple, replaces values of its entries, and writes footers, each
//! of which describes a version.
//!
//! Clusters are written as they fill. A version consists of the clusters in [`Groups`] alone, so a
//! savepoint is a copy of [`Groups`], and an appender can make any number of versions.

use std::sync::Arc;

use super::WRITER;
use super::cluster::ClusterWriter;
use super::column::PageOptions;
use super::groups::Groups;
use super::renumbering::Renumbering;
use super::row::{Cell, RowWriter};
use crate::array::Array;
use crate::compression::Compression;
use crate::envelope::write_envelope;
use crate::error::Result;
use crate::footer::{ClusterGroup, Footer};
use crate::header::Header;
use crate::locator::EnvelopeLink;
use crate::reader::{ColumnPath, Reader, column_paths};
use crate::schema::Schema;
use crate::source::{BlobSink, ByteSource};
use crate::summary::ClusterSummary;
use crate::type_map::{Encoding, check_name};
use crate::types::Type;
use crate::value::Value;

/// The layout of data on disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteOptions {
    /// Bytes of the elements of a full page in memory; 64 KiB by default.
    pub page_size: usize,
    /// Stored bytes of a full cluster; 64 MiB by default. A cluster is also full when its elements take
    /// ten times as many bytes in memory.
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
    /// The encoding of new RNTuples: split if pages are compressed, since byte planes compress better but
    /// cost time.
    pub fn encoding(&self) -> Encoding {
        match self.compression {
            Compression::None => Encoding::Plain,
            _ => Encoding::Split,
        }
    }

    pub(crate) fn page_options(&self) -> PageOptions {
        PageOptions { size: self.page_size, compression: self.compression }
    }
}

/// Writes versions of an RNTuple: appends entries to a new or an existing one, and replaces values.
pub struct Appender {
    pub(super) writer: ClusterWriter,
    types: Type,
    pub(super) schema: Schema,
    pub(super) options: WriteOptions,
    pub(super) header_checksum: u64,
    extension: Schema,
    pub(super) state: State,
}

/// The state of an appender, without its cluster under construction.
#[derive(Clone)]
pub(super) struct State {
    pub groups: Groups,
    /// Number of the first entry of the cluster under construction.
    pub first_entry: u64,
    /// Bytes of one entry, averaged over the cluster under construction; 0 if unknown.
    entry_size: u64,
    /// Bytes of pages and envelopes written since the last version.
    pub bytes: u64,
    /// Summaries of clusters since the last version.
    pub summaries: Vec<Arc<ClusterSummary>>,
}

/// A state of an [`Appender`] to roll back to.
pub struct AppenderSavepoint {
    state: State,
    element_offsets: Vec<u64>,
}

/// A version of an RNTuple that an [`Appender`] wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendedVersion {
    /// Location of the footer envelope.
    pub footer: EnvelopeLink,
    /// Number of entries.
    pub entries: u64,
    /// Bytes of pages and envelopes that were written for it.
    pub bytes: u64,
    /// Summaries of the clusters that were written or changed since the last version of this appender, in
    /// the order of the changes.
    pub summaries: Vec<ClusterSummary>,
}

impl Appender {
    /// Creates an RNTuple: writes its header and returns the location of the header.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for an invalid name or types that cannot be stored,
    /// [`Error::Io`](crate::Error::Io) from the sink.
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
            writer: WRITER.to_owned(),
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
    /// [`Error::Unsupported`](crate::Error::Unsupported) for fields that cannot be written,
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the last page list is damaged,
    /// [`Error::Io`](crate::Error::Io) if it cannot be read.
    pub fn resume(reader: &Reader, options: WriteOptions) -> Result<Self> {
        let offsets = reader.element_totals()?;
        let footer = reader.footer();
        let mut appender = Self::new(reader.schema(), &offsets, options, footer.header_checksum)?;
        appender.extension = footer.extension.clone();
        appender.state.groups = Groups::new(footer.header_checksum, &footer.cluster_groups);
        appender.state.first_entry = reader.entries();
        Ok(appender)
    }

    pub(super) fn new(
        schema: &Schema,
        element_offsets: &[u64],
        options: WriteOptions,
        header_checksum: u64,
    ) -> Result<Self> {
        let writer = ClusterWriter::new(schema, element_offsets, options.page_options())?;
        let members = writer.tree.nodes.iter();
        let members = members.map(|node| (node.name.clone(), node.logical_type())).collect();
        Ok(Appender {
            writer,
            types: Type::Record { class: String::new(), members },
            schema: schema.clone(),
            options,
            header_checksum,
            extension: Schema::default(),
            state: State {
                groups: Groups::new(header_checksum, &[]),
                first_entry: 0,
                entry_size: 0,
                bytes: 0,
                summaries: vec![],
            },
        })
    }

    /// Number of entries, with those of the cluster under construction.
    pub fn entries(&self) -> u64 {
        self.state.first_entry + self.writer.entries
    }

    /// Number of entries in finished clusters.
    pub fn finished_entries(&self) -> u64 {
        self.state.first_entry
    }

    /// Bytes of the cluster under construction, as compared with [`WriteOptions::cluster_size`].
    pub fn cluster_size(&self) -> u64 {
        self.writer.size()
    }

    /// Appends an array of records: all of it or, if it does not fit the schema, nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the array does not have the types of the RNTuple,
    /// [`Error::Io`](crate::Error::Io) from the sink.
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

    /// Appends a Rust structure as an entry.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the structure does not have the columns of the RNTuple,
    /// [`Error::Io`](crate::Error::Io) from the sink.
    #[inline]
    pub fn append_row<R: Cell>(&mut self, sink: &mut dyn BlobSink, row: &R) -> Result<()> {
        self.writer.append_row(sink, |columns: &mut RowWriter<'_>| row.put(columns))?;
        self.end_full_cluster_of_rows(sink)
    }

    /// The numbers that are stored instead of numbers with a meaning outside the file; see
    /// [`Cell::visit_renumbered`].
    pub fn renumbering(&mut self) -> &mut Renumbering {
        &mut self.writer.renumbering
    }

    /// Whether rows of type `R` have the members and types of the RNTuple.
    pub fn holds<R: Cell>(&self) -> bool {
        R::cell_type() == self.types
    }

    /// Appends a record as an entry.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the value does not have the types of the RNTuple,
    /// [`Error::Io`](crate::Error::Io) from the sink.
    pub fn append_value(&mut self, sink: &mut dyn BlobSink, value: &Value) -> Result<()> {
        value.check(&self.types)?;
        let types = &self.types;
        self.writer.append_row(sink, |columns| columns.put_value(types, value))?;
        self.end_full_cluster_of_rows(sink)
    }

    /// Estimates how many entries still fit in the cluster under construction, from the size of those in
    /// it. At most as many as these (or 64), since further entries may be larger.
    fn entries_that_fit(&self) -> usize {
        const FIRST_ENTRIES: u64 = 64;
        let many = self.writer.entries.max(FIRST_ENTRIES);
        let room = self.options.cluster_size.saturating_sub(self.writer.size());
        match self.state.entry_size {
            0 => many as usize,
            size => (room / size).clamp(1, many) as usize,
        }
    }

    fn end_full_cluster(&mut self, sink: &mut dyn BlobSink) -> Result<()> {
        let size = self.writer.size();
        self.state.entry_size = (size / self.writer.entries.max(1)).max(1);
        if size + self.state.entry_size <= self.options.cluster_size {
            return Ok(());
        }
        self.end_cluster(sink)
    }

    /// Like [`end_full_cluster`](Self::end_full_cluster), but checks only every 64 rows unless the cluster is nearly
    /// full.
    #[inline]
    fn end_full_cluster_of_rows(&mut self, sink: &mut dyn BlobSink) -> Result<()> {
        const ROWS_BETWEEN: u64 = 64;
        let size = self.state.entry_size;
        let few_left = size == 0 || size * ROWS_BETWEEN * 2 >= self.options.cluster_size;
        if few_left || self.writer.entries.is_multiple_of(ROWS_BETWEEN) {
            self.end_full_cluster(sink)?;
        }
        Ok(())
    }

    /// Ends the cluster under construction, if it has entries.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) from the sink.
    pub fn end_cluster(&mut self, sink: &mut dyn BlobSink) -> Result<()> {
        if self.writer.entries == 0 {
            return Ok(());
        }
        let first_entry = self.state.first_entry;
        let (cluster, columns) = self.writer.finish(sink, first_entry)?;
        let entries = cluster.entries;
        let summary = ClusterSummary { first_entry, entries, is_widening: false, columns };
        self.state.summaries.push(Arc::new(summary));
        self.state.first_entry += entries;
        self.state.bytes += cluster.stored_size();
        self.state.groups.push(cluster);
        Ok(())
    }

    /// Ends the cluster and returns a savepoint for [`rollback_to`](Self::rollback_to).
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) from the sink.
    pub fn savepoint(&mut self, sink: &mut dyn BlobSink) -> Result<AppenderSavepoint> {
        self.end_cluster(sink)?;
        let element_offsets = self.writer.element_offsets();
        Ok(AppenderSavepoint { state: self.state.clone(), element_offsets })
    }

    /// Discards entries, changes and a failed write after a savepoint of this appender. It may be rolled
    /// back to any number of times, also past later versions, which stay readable.
    pub fn rollback_to(&mut self, savepoint: &AppenderSavepoint) {
        self.state = savepoint.state.clone();
        self.writer.reset(&savepoint.element_offsets);
    }

    /// Ends the cluster, and writes new and changed page lists and the footer of a new version, which the
    /// appender continues.
    ///
    /// `source` reads the bytes of the sink, of this and of earlier versions.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) from the sink or the source; [`Error::Corrupt`](crate::Error::Corrupt)
    /// if an earlier page list is damaged.
    pub fn finish_version(
        &mut self,
        sink: &mut dyn BlobSink,
        source: &dyn ByteSource,
    ) -> Result<AppendedVersion> {
        self.end_cluster(sink)?;
        let groups = self.state.groups.write(sink, source)?;
        self.write_footer(sink, groups)
    }

    /// Like [`finish_version`](Self::finish_version), with one page list for all clusters: for files that are not
    /// continued, since JSROOT 7.11 reads only the first page list. The time depends on the number of all pages, not
    /// only of new ones.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) from the sink or the source; [`Error::Corrupt`](crate::Error::Corrupt)
    /// if an earlier page list is damaged.
    pub fn finish_whole(
        &mut self,
        sink: &mut dyn BlobSink,
        source: &dyn ByteSource,
    ) -> Result<AppendedVersion> {
        self.end_cluster(sink)?;
        let groups = self.state.groups.write_whole(sink, source)?;
        self.write_footer(sink, groups)
    }

    fn write_footer(
        &mut self,
        sink: &mut dyn BlobSink,
        (cluster_groups, bytes): (Vec<ClusterGroup>, u64),
    ) -> Result<AppendedVersion> {
        self.state.bytes += bytes;
        let footer = Footer {
            header_checksum: self.header_checksum,
            extension: self.extension.clone(),
            cluster_groups,
        };
        let footer = write_envelope(sink, &footer.encode())?;
        let bytes = std::mem::take(&mut self.state.bytes) + footer.locator.size;
        let summaries = std::mem::take(&mut self.state.summaries);
        let summaries = summaries.into_iter().map(Arc::unwrap_or_clone).collect();
        Ok(AppendedVersion { footer, entries: self.state.first_entry, bytes, summaries })
    }

    /// Frees unused memory, which between versions is nearly all; appending allocates it again.
    pub fn release_memory(&mut self) {
        self.writer.release_memory();
    }

    /// The paths of all columns; see [`Reader::column_paths`].
    pub fn column_paths(&self) -> Vec<ColumnPath> {
        column_paths(&self.writer.tree, self.schema.columns.len())
    }

    /// The types of the entries: a record.
    pub fn types(&self) -> &Type {
        &self.types
    }
}

//! Evolution: a new header with new types over the pages of an old version.
//!
//! Every cluster of the old version gets a counterpart with the same entries. Unchanged columns share
//! their pages; only pages of added and converted columns are written. Element offsets are recomputed, so
//! they are right even if those of the old version were not.

use std::ops::Range;

use bytes::Bytes;

use super::compile::{ColumnMapping, ColumnStep, Compiled, CountCheck, compile};
use super::fill::{Fill, PageMaker};
use super::groups::GroupWriter;
use super::numbers::converted;
use super::plan::{NewMember, plan};
use crate::array::values_of;
use crate::column::{Element, switch_pairs};
use crate::envelope::write_envelope;
use crate::error::{Error, Result};
use crate::header::Header;
use crate::locator::EnvelopeLink;
use crate::page_list::{Cluster, ColumnPages};
use crate::reader::{ClusterSegment, Reader, StoredCluster};
use crate::schema::{Column, ColumnId, Schema};
use crate::source::BlobSink;
use crate::types::{Primitive, Type};
use crate::writer::WriteOptions;

/// A version of an RNTuple with new types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evolved {
    /// Location of the new header envelope.
    pub header: EnvelopeLink,
    /// Location of the new footer envelope.
    pub footer: EnvelopeLink,
    /// Bytes of pages and envelopes that were written.
    pub bytes: u64,
}

/// Writes a version with other types and the same entries. It shares pages with the old version, which
/// stays readable.
///
/// `options` apply to the pages that are written, and determine the encodings of new columns.
///
/// # Errors
/// [`Error::Invalid`] as for [`plan`]; [`Error::Unsupported`] if the old version has fields that this
/// crate cannot read, [`Error::Corrupt`] if it is damaged, [`Error::Io`] from the sink or the source.
pub fn evolve(
    reader: &Reader,
    sink: &mut dyn BlobSink,
    members: &[NewMember],
    options: WriteOptions,
) -> Result<Evolved> {
    if let Some((name, reason)) = reader.ignored().first() {
        return Err(Error::unsupported(format!("changing the class of field {name:?}: {reason}")));
    }
    let old = Type::Record { class: String::new(), members: reader.members() };
    let plan = plan(&old, members)?;
    let is_empty = reader.entries() == 0;
    let Compiled { schema, steps, fills } =
        compile(&plan, reader.schema(), reader.tree(), options, is_empty)?;
    let header = Header {
        name: reader.name().to_owned(),
        description: reader.description().to_owned(),
        writer: crate::writer::WRITER.to_owned(),
        schema,
    };
    let bytes = header.encode();
    let (Header { schema, .. }, checksum) = Header::decode(&bytes)?;
    let link = write_envelope(sink, &bytes)?;
    let mut groups = GroupWriter::new(checksum);
    let totals = vec![0; schema.columns.len()];
    let pages = PageMaker::new(options);
    let is_deferred = reader.schema().columns.iter().any(|c| c.first_element.unwrap_or(0) != 0);
    let mut evolution =
        Evolver { reader, schema, steps, fills, totals, is_deferred, pages, columns: vec![] };
    for cluster in reader.clusters_of(&(0..reader.entries()))? {
        let cluster = evolution.cluster(sink, cluster)?;
        groups.push(sink, cluster)?;
    }
    let footer = groups.finish(sink, Schema::default())?;
    let bytes = link.locator.size + evolution.pages.bytes + groups.bytes;
    Ok(Evolved { header: link, footer, bytes })
}

/// The evolution of one cluster after the other.
struct Evolver<'a> {
    reader: &'a Reader,
    schema: Schema,
    steps: Vec<ColumnStep>,
    fills: Vec<Fill>,
    /// For the first representation of each column the elements in all earlier clusters.
    totals: Vec<u64>,
    /// Whether any column is deferred, so that the elements of all columns have to be counted.
    is_deferred: bool,
    pages: PageMaker,
    /// The columns of the current cluster.
    columns: Vec<ColumnPages>,
}

impl Evolver<'_> {
    fn cluster(&mut self, sink: &mut dyn BlobSink, old: &StoredCluster) -> Result<Cluster> {
        self.columns = vec![ColumnPages::default(); self.schema.columns.len()];
        let entries = old.entries.end - old.entries.start;
        for node in &self.reader.tree().nodes {
            self.check_count(old, &CountCheck::of(node), entries)?;
        }
        let steps = std::mem::take(&mut self.steps);
        let done = steps.iter().try_for_each(|step| self.step(sink, old, step, entries));
        self.steps = steps;
        done?;
        let columns = std::mem::take(&mut self.columns);
        Ok(Cluster { first_entry: old.entries.start, entries, columns })
    }

    /// Makes the pages of one field; `count` is the number of its values, or 0 if the step does not need it.
    fn step(
        &mut self,
        sink: &mut dyn BlobSink,
        old: &StoredCluster,
        step: &ColumnStep,
        count: u64,
    ) -> Result<()> {
        match step {
            ColumnStep::Keep(mapping) => self.keep(sink, old, mapping, count),
            ColumnStep::Bits { size, bits } => self.keep(sink, old, bits, times(count, *size)?),
            ColumnStep::Text { offsets, bytes } => {
                self.keep(sink, old, offsets, count)?;
                self.keep(sink, old, bytes, 0)
            }
            ColumnStep::List { offsets, count_check, item } => {
                self.keep(sink, old, offsets, count)?;
                let counts = item.counts() || self.is_deferred;
                let items = if counts { self.items(old, offsets, count)? } else { 0 };
                self.check_count(old, count_check, items)?;
                self.step(sink, old, item, items)
            }
            ColumnStep::Fixed { size, item } => self.step(sink, old, item, times(count, *size)?),
            ColumnStep::Record(items) => {
                items.iter().try_for_each(|item| self.step(sink, old, item, count))
            }
            ColumnStep::Variant { switch, items } => {
                self.keep(sink, old, switch, count)?;
                let counts = self.is_deferred || items.iter().any(ColumnStep::counts);
                let chosen = if counts { self.chosen(old, switch, count)? } else { vec![] };
                items.iter().enumerate().try_for_each(|(at, item)| {
                    self.step(sink, old, item, chosen.get(at).copied().unwrap_or(0))
                })
            }
            ColumnStep::Wrap { column, fill, size, item } => {
                self.fill(sink, *column, *fill, count)?;
                self.step(sink, old, item, times(count, *size)?)
            }
            ColumnStep::Copy { column, old: columns, from } => {
                let from_element = from.element();
                let values = self.elements(old, columns, 0..count, from_element)?;
                let to = primitive_of(self.column(*column).element()?)?;
                let values = converted(*from, &values, to, false)?.map_err(|position| {
                    let reason = format!("element {position} does not fit its type");
                    Error::corrupt("column", 0, reason)
                })?;
                let pages =
                    self.pages.pages(sink, &self.schema.columns[*column as usize], &values)?;
                self.place(*column, *column, self.pages.column(pages));
                Ok(())
            }
            ColumnStep::Default(fills) => {
                fills.iter().try_for_each(|&(column, fill)| self.fill(sink, column, fill, count))
            }
        }
    }

    /// Shares the old pages, in the representation of this cluster.
    fn keep(
        &mut self,
        sink: &mut dyn BlobSink,
        old: &StoredCluster,
        mapping: &ColumnMapping,
        count: u64,
    ) -> Result<()> {
        let Some((id, run)) = old.active(&mapping.old) else {
            return self.fill(sink, mapping.first, mapping.zero, count);
        };
        let position = mapping.old.iter().position(|&old| old == id).unwrap_or_default();
        let mut pages = run.pages.clone();
        let mut compression = run.compression;
        if run.missing > 0 {
            // The zeros need the encoding of the other pages.
            let zero = Fill::of_zero(self.column(mapping.new[position]))?;
            self.fills.push(zero);
            let number = self.fills.len() - 1;
            let mut all = self.pages.fill(sink, number, &self.fills[number], run.missing)?;
            all.append(&mut pages);
            let made = self.pages.column(all);
            compression = compression.max(made.compression);
            pages = made.pages;
        }
        let column = ColumnPages { element_offset: Some(0), compression, pages };
        self.place(mapping.first, mapping.new[position], column);
        Ok(())
    }

    fn fill(
        &mut self,
        sink: &mut dyn BlobSink,
        column: ColumnId,
        fill: usize,
        values: u64,
    ) -> Result<()> {
        let pages = self.pages.fill(sink, fill, &self.fills[fill], values)?;
        self.place(column, column, self.pages.column(pages));
        Ok(())
    }

    /// Sets the pages of `column`; its elements count towards `first`, the first representation.
    fn place(&mut self, first: ColumnId, column: ColumnId, pages: ColumnPages) {
        let elements: u64 = pages.pages.iter().map(|page| u64::from(page.elements)).sum();
        let total = &mut self.totals[first as usize];
        self.columns[column as usize] = ColumnPages { element_offset: Some(*total), ..pages };
        *total = total.saturating_add(elements);
    }

    fn column(&self, id: ColumnId) -> &Column {
        &self.schema.columns[id as usize]
    }

    /// Reads a range of elements of an old column.
    fn elements(
        &self,
        cluster: &StoredCluster,
        columns: &[ColumnId],
        range: Range<u64>,
        element: Element,
    ) -> Result<Bytes> {
        self.reader.elements().read(
            columns,
            &[ClusterSegment { cluster, range, is_referenced: false }],
            element,
        )
    }

    /// The number of items of `count` collections, that is, the end offset of the last.
    fn items(&self, old: &StoredCluster, offsets: &ColumnMapping, count: u64) -> Result<u64> {
        if count == 0 {
            return Ok(0);
        }
        let last = self.elements(old, &offsets.old, count - 1..count, Element::U64)?;
        Ok(values_of::<u64>(&last)?.last().copied().unwrap_or(0))
    }

    /// The number of values of each alternative of `count` variants.
    fn chosen(&self, old: &StoredCluster, switch: &ColumnMapping, count: u64) -> Result<Vec<u64>> {
        let pairs = self.elements(old, &switch.old, 0..count, Element::Switch)?;
        let mut chosen = vec![];
        for (position, tag) in switch_pairs(&pairs) {
            let Some(alternative) = (tag as usize).checked_sub(1) else { continue };
            if alternative >= ALTERNATIVES_MAX {
                return Err(Error::corrupt("variant", 0, format!("it is of type {tag}")));
            }
            chosen.resize(chosen.len().max(alternative + 1), 0);
            chosen[alternative] = u64::max(chosen[alternative], position.saturating_add(1));
        }
        Ok(chosen)
    }

    /// Refuses a number of values that the old columns do not store, before memory or pages depend on it.
    fn check_count(
        &self,
        cluster: &StoredCluster,
        count_check: &CountCheck,
        count: u64,
    ) -> Result<()> {
        if count_check.columns.is_empty()
            || self.is_deferred && cluster.active(&count_check.columns).is_none()
        {
            return Ok(());
        }
        let range = 0..times(count, count_check.size)?;
        let whole = ClusterSegment { cluster, range, is_referenced: true };
        self.reader.elements().check_segments(&count_check.columns, &[whole], Element::U8)
    }
}

/// The type of numbers with this element.
fn primitive_of(element: Element) -> Result<Primitive> {
    Ok(match element {
        Element::U8 => Primitive::UInt8,
        Element::I8 => Primitive::Int8,
        Element::U16 => Primitive::UInt16,
        Element::I16 => Primitive::Int16,
        Element::U32 => Primitive::UInt32,
        Element::I32 => Primitive::Int32,
        Element::U64 => Primitive::UInt64,
        Element::I64 => Primitive::Int64,
        Element::F32 => Primitive::Float32,
        Element::F64 => Primitive::Float64,
        Element::Switch => return Err(Error::invalid("a switch column has no numbers")),
    })
}

/// Bound on the tags of a damaged variant; the format allows fewer alternatives.
const ALTERNATIVES_MAX: usize = 256;

fn times(count: u64, size: u64) -> Result<u64> {
    count.checked_mul(size).ok_or_else(|| Error::corrupt("page list", 0, "too many elements"))
}

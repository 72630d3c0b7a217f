//! Completion: a version for other readers, with one header, one representation of each field, 64-bit
//! offsets, right element offsets, one cluster group, and a field that marks deleted entries.
//!
//! The reader of this crate needs none of these: it counts elements within clusters, and supports
//! representations, extensions and (with its caller) deletions. ROOT seeks by element offsets; uproot
//! reads wrong numbers from a field whose representation changes; coffea reads wrong lists from 32-bit
//! offsets; JSROOT 7.11 reads only the first cluster group and misreads columns of an extension.

use std::ops::Range;

use super::cluster::ElementCounter;
use super::fill::{Fill, PageMaker};
use super::groups::GroupWriter;
use crate::anchor::Anchor;
use crate::column::ColumnType;
use crate::encoding::encoded_size;
use crate::envelope::write_envelope;
use crate::error::{Error, Result};
use crate::header::Header;
use crate::locator::EnvelopeLink;
use crate::page_list::{Cluster, ColumnPages, PageLocation, WHOLE_SIZE_MAX};
use crate::reader::{ClusterSegment, Reader, StoredCluster, deferred_repetitions};
use crate::schema::{AliasColumn, Column, ColumnId, Field, FieldId, Schema, Structure};
use crate::source::BlobSink;
use crate::writer::WriteOptions;

/// The field that marks deleted entries.
pub const DELETED_FIELD: &str = "_deleted";

/// Most entries of a cluster with some entries deleted: each takes one byte of memory.
const ENTRIES_MAX: u64 = 1 << 30;

/// A version that other readers can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Locations of its header and footer.
    pub anchor: Anchor,
    /// Bytes of pages and envelopes that were written.
    pub bytes: u64,
}

/// Writes a complete version. `deleted` are ranges of entries that ascend and do not touch; if there are
/// any, it adds the top-level field [`DELETED_FIELD`], a truth value for each entry. It writes pages only
/// for columns that change their representation, and a header only if the schema changes. If the version
/// is complete, it returns `current`, its anchor.
///
/// If the page lists have more than 64 MiB, several cluster groups remain.
///
/// # Errors
/// [`Error::Invalid`] if deleted entries do not exist, or a field has that name already;
/// [`Error::Corrupt`] if the version is damaged; [`Error::Io`] from the sink or the source.
pub fn complete(
    reader: &Reader,
    sink: &mut dyn BlobSink,
    current: &Anchor,
    deleted: &[Range<u64>],
    options: WriteOptions,
) -> Result<Completed> {
    check_ranges(deleted, reader.entries())?;
    let (mut schema, old_columns) = folded(reader.schema());
    let marks = match deleted {
        [] => None,
        _ => Some(Marks::new(&mut schema)?),
    };
    let has_new_header =
        schema != *reader.schema() || reader.footer().extension != Schema::default();
    let (header, checksum, header_size) = if has_new_header {
        write_header(reader, sink, &schema)?
    } else {
        (current.header, reader.footer().header_checksum, 0)
    };
    let mut completion = Completion {
        reader,
        repetitions: deferred_repetitions(reader.schema())?,
        counter: ElementCounter::new(&schema),
        schema,
        old_columns,
        deleted,
        marks,
        pages: PageMaker::new(options),
    };
    match completion.groups(sink, checksum, has_new_header)? {
        None => Ok(Completed { anchor: *current, bytes: 0 }),
        Some(mut groups) => {
            let footer = groups.finish(sink, Schema::default())?;
            let bytes = header_size + completion.pages.bytes + groups.bytes;
            Ok(Completed { anchor: Anchor::new(header, footer), bytes })
        }
    }
}

/// The schema with only the first representation of each field, and for each of its columns the old columns
/// that store its elements.
fn folded(old: &Schema) -> (Schema, Vec<Vec<ColumnId>>) {
    let groups = old.alternative_columns();
    let column = |group: &Vec<ColumnId>| {
        let first = &old.columns[group[0] as usize];
        let first_element = None;
        match first.column_type {
            ColumnType::Index32 | ColumnType::SplitIndex32 => Column {
                column_type: ColumnType::SplitIndex64,
                bits: 64,
                first_element,
                ..first.clone()
            },
            _ => Column { first_element, ..first.clone() },
        }
    };
    let new_id = |old: ColumnId| groups.iter().position(|of| of.contains(&old)).unwrap_or(0);
    let alias = |alias: &AliasColumn| AliasColumn {
        physical: new_id(alias.physical) as ColumnId,
        ..*alias
    };
    let schema = Schema {
        fields: old.fields.clone(),
        columns: groups.iter().map(column).collect(),
        aliases: old.aliases.iter().map(alias).collect(),
        extra: old.extra.clone(),
    };
    (schema, groups)
}

/// Writes a header of the same RNTuple with another schema; returns its location, checksum and size.
fn write_header(
    reader: &Reader,
    sink: &mut dyn BlobSink,
    schema: &Schema,
) -> Result<(EnvelopeLink, u64, u64)> {
    let header = Header {
        name: reader.name().to_owned(),
        description: reader.description().to_owned(),
        writer: crate::writer::WRITER.to_owned(),
        schema: schema.clone(),
    };
    let bytes = header.encode();
    let (_, checksum) = Header::decode(&bytes)?;
    Ok((write_envelope(sink, &bytes)?, checksum, bytes.len() as u64))
}

/// Refuses ranges of entries that do not ascend or exceed the number of entries.
pub(super) fn check_ranges(ranges: &[Range<u64>], entries: u64) -> Result<()> {
    let mut end = 0;
    for range in ranges {
        if range.start < end || range.end < range.start || range.end > entries {
            return Err(Error::invalid(format!(
                "invalid range of entries {range:?}: must be within {end}..{entries}"
            )));
        }
        end = range.end;
    }
    Ok(())
}

/// The column of deletion marks.
struct Marks {
    column: Column,
    none: Fill,
    all: Fill,
}

impl Marks {
    /// Appends the field to the schema.
    fn new(schema: &mut Schema) -> Result<Self> {
        let top = schema.fields.iter().enumerate().filter(|(id, of)| of.parent as usize == *id);
        if top.into_iter().any(|(_, field)| field.name == DELETED_FIELD) {
            return Err(Error::invalid(format!(
                "field {DELETED_FIELD:?} exists already, so deleted entries cannot be marked"
            )));
        }
        let id = schema.fields.len() as FieldId;
        schema.fields.push(Field {
            version: 0,
            type_version: 0,
            parent: id,
            structure: Structure::Leaf,
            name: DELETED_FIELD.to_owned(),
            type_name: "bool".to_owned(),
            type_alias: String::new(),
            description: "whether the object was deleted".to_owned(),
            repetition: None,
            source: None,
            type_checksum: None,
        });
        let column = Column {
            column_type: ColumnType::Bit,
            bits: 1,
            field: id,
            representation: 0,
            first_element: None,
            range: None,
        };
        schema.columns.push(column.clone());
        let (none, all) = (Fill::of_byte(&column, 0), Fill::of_byte(&column, 1));
        Ok(Marks { none: none?, all: all?, column })
    }
}

struct Completion<'a> {
    reader: &'a Reader,
    /// The [`deferred_repetitions`] of the old columns.
    repetitions: Vec<u64>,
    counter: ElementCounter,
    /// The new schema.
    schema: Schema,
    /// The old columns that store the elements of each new column but that of the marks.
    old_columns: Vec<Vec<ColumnId>>,
    deleted: &'a [Range<u64>],
    marks: Option<Marks>,
    pages: PageMaker,
}

impl Completion<'_> {
    /// Writes the page lists that change; `None` if none does.
    fn groups(
        &mut self,
        sink: &mut dyn BlobSink,
        header_checksum: u64,
        has_new_header: bool,
    ) -> Result<Option<GroupWriter>> {
        let mut links = self.reader.footer().cluster_groups.clone();
        links.retain(|link| link.entry_span > 0);
        links.sort_by_key(|link| link.min_entry);
        let sizes = links.iter().map(|link| link.page_list.length);
        let size = sizes.fold(0, u64::saturating_add);
        let mut groups = if size <= WHOLE_SIZE_MAX {
            GroupWriter::of_one_group(header_checksum)
        } else {
            GroupWriter::new(header_checksum)
        };
        let all_change = has_new_header || (links.len() > 1 && size <= WHOLE_SIZE_MAX);
        let mut is_changed = all_change;
        for link in links {
            let entries = link.min_entry..link.min_entry + link.entry_span;
            let mut clusters = vec![];
            let mut is_stale = all_change;
            for stored in self.reader.clusters_of(&entries)? {
                let (cluster, was_wrong) = self.cluster(sink, stored)?;
                is_stale |= was_wrong;
                clusters.push(cluster);
            }
            is_changed |= is_stale;
            if is_stale {
                clusters.into_iter().try_for_each(|cluster| groups.push(sink, cluster))?
            } else {
                groups.keep(sink, link)?
            }
        }
        Ok(is_changed.then_some(groups))
    }

    /// The complete cluster, and whether its page list had a wrong element offset or compression.
    fn cluster(
        &mut self,
        sink: &mut dyn BlobSink,
        stored: &StoredCluster,
    ) -> Result<(Cluster, bool)> {
        let Range { start, end } = stored.entries;
        let mut columns = Vec::with_capacity(self.schema.columns.len());
        let mut was_wrong = false;
        for id in 0..self.old_columns.len() {
            let column = self.column(sink, stored, id)?;
            let stated = stored.active(&self.old_columns[id]).map(|(_, run)| run.compression);
            was_wrong |= stated.is_some_and(|stated| stated != column.compression);
            columns.push(column);
        }
        if self.marks.is_some() {
            columns.push(self.marks(sink, stored)?);
        }
        let mut cluster = Cluster { first_entry: start, entries: end - start, columns };
        was_wrong |= self.counter.count(&mut cluster)?;
        Ok((cluster, was_wrong))
    }

    /// The pages of a new column: the old ones if they have its type, else rewritten ones.
    fn column(
        &mut self,
        sink: &mut dyn BlobSink,
        stored: &StoredCluster,
        id: usize,
    ) -> Result<ColumnPages> {
        let (column, old_columns) = (&self.schema.columns[id], &self.old_columns[id]);
        let Some((active, run)) = stored.active(old_columns) else {
            // The field was added after the cluster was written.
            let entries = stored.entries.end - stored.entries.start;
            let zeros = entries.saturating_mul(self.repetitions[old_columns[0] as usize]);
            let pages = match zeros {
                0 => vec![],
                _ => self.pages.fill(sink, 2 + id, &Fill::of_zero(column)?, zeros)?,
            };
            return Ok(self.pages.column(pages));
        };
        let old = &self.reader.schema().columns[active as usize];
        let same = (old.column_type, old.bits, old.range)
            == (column.column_type, column.bits, column.range);
        if same && run.missing == 0 {
            let pages = run.pages.clone();
            // Pages of defaults are compressed even if the others are not. Early versions of this crate
            // recorded no compression for them.
            let full = |page: &PageLocation| {
                encoded_size(old.column_type, old.bits, page.elements as usize)
            };
            let is_packed =
                |page: &PageLocation| full(page).is_ok_and(|size| page.locator.size < size as u64);
            let compression = match run.compression {
                0 if pages.iter().any(is_packed) => self.pages.column(vec![]).compression,
                stated => stated,
            };
            return Ok(ColumnPages { element_offset: Some(run.offset), compression, pages });
        }
        let whole = ClusterSegment { cluster: stored, range: 0..run.elements, is_referenced: true };
        let values = self.reader.elements().read(&[active], &[whole], column.element()?)?;
        let pages = if column.column_type.is_index() {
            self.pages.small_pages(sink, column, &values)?
        } else {
            self.pages.pages(sink, column, &values)?
        };
        Ok(self.pages.column(pages))
    }

    fn marks(&mut self, sink: &mut dyn BlobSink, stored: &StoredCluster) -> Result<ColumnPages> {
        let Some(marks) = &self.marks else { return Ok(ColumnPages::default()) };
        let Range { start, end } = stored.entries;
        let first = self.deleted.partition_point(|range| range.end <= start);
        let touching = self.deleted[first..].iter().take_while(|range| range.start < end);
        let touching: Vec<_> = touching.collect();
        let pages = match touching[..] {
            [] => self.pages.fill(sink, 0, &marks.none, end - start)?,
            [range] if range.start <= start && end <= range.end => {
                self.pages.fill(sink, 1, &marks.all, end - start)?
            }
            _ => {
                if end - start > ENTRIES_MAX {
                    return Err(Error::unsupported(
                        "a cluster of more than 2^30 entries, some deleted",
                    ));
                }
                let mut bits = vec![0; (end - start) as usize];
                for range in touching {
                    let within = range.start.max(start) - start..range.end.min(end) - start;
                    bits[within.start as usize..within.end as usize].fill(1);
                }
                self.pages.pages(sink, &marks.column, &bits)?
            }
        };
        Ok(self.pages.column(pages))
    }
}

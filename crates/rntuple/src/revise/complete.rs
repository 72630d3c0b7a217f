//! What an RNTuple needs before others read it: element offsets that are right, one representation
//! of each field, and a field that tells which entries are deleted.
//!
//! While a database is open its own reader needs neither: it counts within clusters and knows
//! representations and deletions. ROOT seeks by element offsets, and uproot reads wrong numbers from
//! fields whose representation changes.

use std::ops::Range;

use super::Revised;
use super::cluster::{ElementCounter, unchanged};
use super::fill::{Fill, PageMaker};
use super::groups::GroupWriter;
use crate::column::ColumnType;
use crate::error::{Error, Result};
use crate::page_list::{Cluster, ColumnPages};
use crate::reader::{Reader, Segment, StoredCluster, element_of};
use crate::schema::{Column, ColumnId, Field, FieldId, Schema, Structure};
use crate::source::BlobSink;
use crate::writer::WriteOptions;

/// The field that tells which entries are deleted.
pub const DELETED_FIELD: &str = "_deleted";

/// Entries of a cluster with deletions: one byte of memory each.
const ENTRIES_MAX: u64 = 1 << 30;

/// Makes a version complete. `deleted` are ranges of entries that rise and do not touch; if there
/// are any, the top-level field [`DELETED_FIELD`] is added, a truth value for each entry. Only page
/// lists that have to change are written, and only pages of columns that change their
/// representation. If there is nothing to do, the footer stays what it is; `current` is where.
///
/// # Errors
/// [`Error::Invalid`] if there are no such entries, or a field has that name already; as for reading
/// otherwise, and [`Error::Io`] from the sink.
pub fn complete(
    reader: &Reader,
    sink: &mut dyn BlobSink,
    current: crate::locator::EnvelopeLink,
    deleted: &[Range<u64>],
    options: WriteOptions,
) -> Result<Revised> {
    check_ranges(deleted, reader.entries())?;
    let mut extension = reader.footer().extension.clone();
    let marks = match deleted {
        [] => None,
        _ => Some(Marks::new(reader.schema(), &mut extension)?),
    };
    let mut completion = Completion {
        reader,
        teams: reader.schema().teams(),
        deleted,
        marks,
        pages: PageMaker::new(options),
        counter: ElementCounter::new(reader.schema()),
    };
    let mut groups = GroupWriter::new(reader.footer().header_checksum);
    let mut is_changed = completion.marks.is_some();
    let mut links = reader.footer().cluster_groups.clone();
    links.retain(|link| link.entry_span > 0);
    links.sort_by_key(|link| link.min_entry);
    for link in links {
        let entries = link.min_entry..link.min_entry + link.entry_span;
        let mut clusters = vec![];
        let mut is_stale = completion.marks.is_some();
        for stored in reader.clusters_of(&entries)? {
            let (cluster, was_wrong) = completion.cluster(sink, stored)?;
            is_stale |= was_wrong;
            clusters.push(cluster);
        }
        is_changed |= is_stale;
        match is_stale {
            true => clusters.into_iter().try_for_each(|cluster| groups.push(sink, cluster))?,
            false => groups.keep(sink, link)?,
        }
    }
    if !is_changed {
        return Ok(Revised::nothing(current, reader.clusters()));
    }
    let footer = groups.finish(sink, extension)?;
    let bytes = groups.bytes + completion.pages.bytes;
    let (clusters_before, clusters) = (reader.clusters(), groups.count);
    Ok(Revised { footer, bytes, clusters_before, clusters, summaries: vec![] })
}

/// Refuses ranges that do not rise or go beyond the end.
pub(super) fn check_ranges(ranges: &[Range<u64>], entries: u64) -> Result<()> {
    let mut end = 0;
    for range in ranges {
        if range.start < end || range.end < range.start || range.end > entries {
            return Err(Error::invalid(format!(
                "entries {range:?} do not follow entry {end} among {entries} entries"
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
    /// Adds the field behind all others.
    fn new(schema: &Schema, extension: &mut Schema) -> Result<Self> {
        let top = schema.fields.iter().enumerate().filter(|(id, of)| of.parent as usize == *id);
        if top.into_iter().any(|(_, field)| field.name == DELETED_FIELD) {
            return Err(Error::invalid(format!(
                "there is a field {DELETED_FIELD:?} already, so deletions cannot be marked"
            )));
        }
        let id = schema.fields.len() as FieldId;
        extension.fields.push(Field {
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
        extension.columns.push(column.clone());
        let (none, all) = (Fill::of_byte(&column, 0), Fill::of_byte(&column, 1));
        Ok(Marks { none: none?, all: all?, column })
    }
}

struct Completion<'a> {
    reader: &'a Reader,
    teams: Vec<Vec<ColumnId>>,
    deleted: &'a [Range<u64>],
    marks: Option<Marks>,
    pages: PageMaker,
    counter: ElementCounter,
}

impl Completion<'_> {
    /// The complete cluster, and whether anything in it had to change.
    fn cluster(
        &mut self,
        sink: &mut dyn BlobSink,
        stored: &StoredCluster,
    ) -> Result<(Cluster, bool)> {
        let mut cluster = unchanged(stored);
        let mut is_changed = false;
        for team in &self.teams {
            let [first, others @ ..] = &team[..] else { continue };
            let Some((active, run)) = stored.active(others) else { continue };
            if stored.active(&[*first]).is_some() {
                continue;
            }
            let column = &self.reader.schema().columns[*first as usize];
            let whole = Segment { cluster: stored, range: 0..run.elements, is_told: true };
            let values = self.reader.elements().read(&[active], &[whole], element_of(column)?)?;
            let pages = self.pages.pages(sink, column, &values)?;
            cluster.columns[*first as usize] = self.pages.column(pages);
            cluster.columns[active as usize] = ColumnPages::default();
            is_changed = true;
        }
        is_changed |= self.counter.count(&mut cluster)?;
        if self.marks.is_some() {
            let marks = self.marks(sink, stored)?;
            if cluster.columns.len() != self.reader.schema().columns.len() {
                return Err(Error::unsupported("marking deletions where fields were added later"));
            }
            cluster
                .columns
                .push(ColumnPages { element_offset: Some(cluster.first_entry), ..marks });
        }
        Ok((cluster, is_changed))
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
                    return Err(Error::unsupported("deletions in a cluster of so many entries"));
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

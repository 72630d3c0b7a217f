//! Rewriting some pages of one column of a cluster.
//!
//! Where the number of elements does not change, page boundaries stay. Where it changes, the rewritten
//! elements are divided evenly into pages, after neighbouring pages that fit are merged with them. So many
//! small changes leave neither tiny nor huge pages.

use std::ops::Range;

use bytes::Bytes;

use super::column::{PAGES_MAX, PageOptions, write_page};
use super::splice::Splice;
use crate::array::values_of;
use crate::column::Element;
use crate::error::{Error, Result};
use crate::page::PageBuffers;
use crate::page_list::PageLocation;
use crate::reader::{ClusterSegment, Elements, PageRun, StoredCluster};
use crate::schema::{ColumnId, Schema};
use crate::source::BlobSink;

/// A column before the change.
pub(super) struct OldColumn<'a> {
    /// The representation that is written.
    pub id: ColumnId,
    pub element: Element,
    /// Elements in the cluster.
    pub elements: u64,
    /// Elements in all earlier clusters.
    pub offset: u64,
    /// Its pages; `None` if all of them have to be rewritten.
    run: Option<&'a PageRun>,
}

impl<'a> OldColumn<'a> {
    /// The representation that stores a field's data, which must have `elements` elements or more.
    pub(super) fn of(
        schema: &Schema,
        cluster: &'a StoredCluster,
        columns: &[ColumnId],
        elements: u64,
    ) -> Result<Self> {
        let element = |id: ColumnId| schema.columns[id as usize].element();
        let Some((id, run)) = cluster.active(columns) else {
            // The field was added after the cluster was written.
            let id = columns[0];
            return Ok(OldColumn { id, element: element(id)?, elements, offset: 0, run: None });
        };
        if run.elements < elements {
            let reason = format!("column {id} has {} elements, not {elements}", run.elements);
            return Err(Error::corrupt("page list", 0, reason));
        }
        let (elements, offset) = (run.elements, run.offset);
        // If no page stores the leading elements, all pages are rewritten, since no page can precede them.
        let run = (run.missing == 0).then_some(run);
        Ok(OldColumn { id, element: element(id)?, elements, offset, run })
    }

    /// The same elements, to be rewritten in another representation.
    pub(super) fn as_first_representation(
        &self,
        id: ColumnId,
        element: Element,
    ) -> OldColumn<'static> {
        OldColumn { id, element, elements: self.elements, offset: self.offset, run: None }
    }

    fn pages(&self) -> &'a [PageLocation] {
        self.run.map_or(&[], |run| &run.pages)
    }

    /// Index of the first element of a page, or the number of elements for the end.
    fn start_of(&self, page: usize) -> u64 {
        let start = self.run.and_then(|run| run.starts.get(page).copied());
        start.unwrap_or(if page == 0 { 0 } else { self.elements })
    }

    /// The pages that a splice touches: those of its elements, or the one where it inserts elements.
    fn pages_of(&self, splice: &Splice) -> Range<usize> {
        let Some(run) = self.run.filter(|run| !run.pages.is_empty()) else { return 0..0 };
        if splice.old.is_empty() {
            let page = run.starts.partition_point(|&start| start <= splice.old.start);
            page.saturating_sub(1)..page.max(1)
        } else {
            run.pages_with(&splice.old)
        }
    }
}

/// Adjacent pages that are rewritten together.
struct Stretch {
    pages: Range<usize>,
    /// Positions of the splices in them.
    splices: Range<usize>,
}

/// End offsets of consecutive collections.
pub(super) struct Ends {
    first: u64,
    ends: Bytes,
}

impl Ends {
    /// End offset of the collection before `collection`.
    pub(super) fn before(&self, collection: u64) -> u64 {
        let Some(index) = collection.checked_sub(1 + self.first) else { return 0 };
        let ends: &[[u8; 8]] = self.ends.as_chunks().0;
        ends.get(index as usize).map_or(0, |end| u64::from_le_bytes(*end))
    }

    /// Whether the old collections of a splice have the same sizes as the new ones.
    pub(super) fn have_sizes(&self, splice: &Splice, new: &[i64]) -> bool {
        let base = self.before(splice.old.start);
        splice.keeps_length()
            && splice.old.clone().zip(new.windows(2)).all(|(at, _)| {
                let new_end = new[(at + 1 - splice.old.start) as usize] - new[0];
                self.before(at + 1).wrapping_sub(base) == new_end as u64
            })
    }
}

/// Reads the pages of one cluster as it was, and writes pages with new elements.
pub(super) struct PageEditor<'a> {
    pub schema: &'a Schema,
    pub reader: Elements<'a>,
    pub stored: &'a StoredCluster,
    pub options: PageOptions,
    pub sink: &'a mut dyn BlobSink,
    pub buffers: PageBuffers,
    /// Bytes of the pages that were written.
    pub bytes: u64,
}

impl PageEditor<'_> {
    /// The pages of a column after splices of its elements.
    pub(super) fn spliced_pages(
        &mut self,
        old: &OldColumn<'_>,
        columns: &[ColumnId],
        splices: &[Splice],
        fresh: &[u8],
    ) -> Result<Vec<PageLocation>> {
        let keeps_borders = old.run.is_some() && splices.iter().all(Splice::keeps_length);
        let full = self.options.elements(old.element) as u64;
        let stretches = stretches(old, splices, if keeps_borders { 0 } else { full });
        let mut pages = Vec::with_capacity(old.pages().len());
        let mut next = 0;
        for Stretch { pages: touched, splices: inside } in stretches {
            pages.extend_from_slice(&old.pages()[next..touched.start]);
            let range = old.start_of(touched.start)..old.start_of(touched.end.max(1));
            let was = self.read(old.element, columns, range.clone())?;
            let now = spliced(&was, range.start, old.element, &splices[inside], fresh);
            let counts = if keeps_borders {
                counts_of(&old.pages()[touched.clone()])
            } else {
                even(now.len() as u64 / old.element.size() as u64, full)
            };
            self.write_pages(old.id, &now, &counts, &mut pages)?;
            next = touched.end;
        }
        pages.extend_from_slice(&old.pages()[next..]);
        Ok(pages)
    }

    /// The pages of an offset column after changes of sizes; all from the first changed collection on are
    /// rewritten. Returns also the number of items before.
    pub(super) fn resized_pages(
        &mut self,
        old: &OldColumn<'_>,
        splices: &[Splice],
        new_offsets: &[i64],
    ) -> Result<(Vec<PageLocation>, u64)> {
        let first_page = old.pages_of(&splices[0]).start;
        let start = old.start_of(first_page);
        let ends = self.ends_of(old, start, old.elements)?;
        let mut now: Vec<u64> = Vec::with_capacity((old.elements - start) as usize);
        let (mut at, mut shift) = (start, 0_u64);
        for splice in splices {
            now.extend((at..splice.old.start).map(|at| ends.before(at + 1).wrapping_add(shift)));
            let new = &new_offsets[splice.new.start..=splice.new.end];
            let (was, base) = (ends.before(splice.old.end), ends.before(splice.old.start));
            let base = base.wrapping_add(shift);
            now.extend(new[1..].iter().map(|end| base.wrapping_add((end - new[0]) as u64)));
            let end = base.wrapping_add((new[new.len() - 1] - new[0]) as u64);
            (at, shift) = (splice.old.end, end.wrapping_sub(was));
        }
        now.extend((at..old.elements).map(|at| ends.before(at + 1).wrapping_add(shift)));
        let kept = &old.pages()[first_page..];
        let counts = if old.run.is_some() && now.len() as u64 == old.elements - start {
            counts_of(kept)
        } else {
            even(now.len() as u64, self.options.elements(old.element) as u64)
        };
        let mut pages = old.pages()[..first_page].to_vec();
        self.write_pages(old.id, bytemuck::cast_slice(&now), &counts, &mut pages)?;
        Ok((pages, ends.before(old.elements)))
    }

    /// End offsets of collections `first..last` and of the collection before.
    pub(super) fn ends_of(&self, old: &OldColumn<'_>, first: u64, last: u64) -> Result<Ends> {
        let first = first.saturating_sub(1);
        let ends = self.read(Element::U64, &[old.id], first..last)?;
        values_of::<u64>(&ends)?;
        Ok(Ends { first, ends })
    }

    fn read(&self, element: Element, columns: &[ColumnId], range: Range<u64>) -> Result<Bytes> {
        let segment = ClusterSegment { cluster: self.stored, range, is_referenced: false };
        self.reader.read(columns, &[segment], element)
    }

    fn write_pages(
        &mut self,
        id: ColumnId,
        mut values: &[u8],
        counts: &[u64],
        pages: &mut Vec<PageLocation>,
    ) -> Result<()> {
        let column = &self.schema.columns[id as usize];
        let size = column.element()?.size();
        for &count in counts {
            let (page, rest) = values.split_at(count as usize * size);
            values = rest;
            let compression = self.options.compression;
            let page = write_page(column, page, compression, &mut self.buffers, self.sink)?;
            self.bytes += page.stored_size();
            pages.push(page);
        }
        Ok(())
    }
}

/// The disjoint stretches of pages that splices touch. A stretch is extended by neighbouring pages as long
/// as all its elements fit in one page of `full` elements.
fn stretches(old: &OldColumn<'_>, splices: &[Splice], full: u64) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = vec![];
    for (position, splice) in splices.iter().enumerate() {
        let pages = old.pages_of(splice);
        match found.last_mut() {
            Some(last) if pages.start <= last.pages.end => {
                last.pages.end = last.pages.end.max(pages.end);
                last.splices.end = position + 1;
            }
            _ => found.push(Stretch { pages, splices: position..position + 1 }),
        }
    }
    let mut free = 0;
    for at in 0..found.len() {
        let behind = found.get(at + 1).map_or(old.pages().len(), |next| next.pages.start);
        let Stretch { pages, splices: inside } = &mut found[at];
        let mut elements = old.start_of(pages.end.max(1)) - old.start_of(pages.start);
        for splice in &splices[inside.clone()] {
            elements = elements - (splice.old.end - splice.old.start) + splice.new.len() as u64;
        }
        let fits =
            |page: usize, elements: u64| elements + u64::from(old.pages()[page].elements) <= full;
        while pages.end < behind && fits(pages.end, elements) {
            elements += u64::from(old.pages()[pages.end].elements);
            pages.end += 1;
        }
        while pages.start > free && fits(pages.start - 1, elements) {
            pages.start -= 1;
            elements += u64::from(old.pages()[pages.start].elements);
        }
        free = pages.end;
    }
    found
}

/// The elements from `start` on after splices.
fn spliced(was: &[u8], start: u64, of: Element, splices: &[Splice], fresh: &[u8]) -> Vec<u8> {
    let size = of.size();
    let mut now = Vec::with_capacity(was.len());
    let mut at = 0;
    for Splice { old, new } in splices {
        let (from, to) = ((old.start - start) as usize * size, (old.end - start) as usize * size);
        now.extend_from_slice(&was[at..from]);
        now.extend_from_slice(&fresh[new.start * size..new.end * size]);
        at = to;
    }
    now.extend_from_slice(&was[at..]);
    now
}

fn counts_of(pages: &[PageLocation]) -> Vec<u64> {
    pages.iter().map(|page| page.elements.into()).collect()
}

/// Divides elements evenly into pages of at most `full` elements, or of more if these were too many pages.
fn even(elements: u64, full: u64) -> Vec<u64> {
    let pages = elements.div_ceil(full).min(PAGES_MAX);
    let up_to = |page: u64| (u128::from(elements) * u128::from(page) / u128::from(pages)) as u64;
    (0..pages).map(|page| up_to(page + 1) - up_to(page)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_divided_evenly() {
        assert!(even(0, 8).is_empty());
        assert_eq!(even(8, 8), [8]);
        assert_eq!(even(10, 4), [3, 3, 4]);
    }

    #[test]
    fn false_numbers_of_elements_make_few_pages() {
        let counts = even(1 << 27, 1);
        assert_eq!(counts.len() as u64, PAGES_MAX);
        assert_eq!(counts.iter().sum::<u64>(), 1 << 27);
    }
}

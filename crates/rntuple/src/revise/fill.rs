//! Fills: pages of columns that repeat one value, such as defaults of new fields or offsets of lists of
//! constant size.
//!
//! A page of a constant does not depend on its position, so it is written once, and all clusters refer to
//! it. A page of offsets depends on its position in the cluster.

use std::collections::HashMap;
use std::sync::Arc;

use crate::array::{Array, values_of};
use crate::column::{Element, switch_element, switch_pairs};
use crate::compression::Compression;
use crate::error::{Error, Result};
use crate::locator::Locator;
use crate::page::{PageBuffers, seal_page};
use crate::page_list::{ColumnPages, PageLocation};
use crate::reader::{ClusterSegment, Reader};
use crate::schema::Column;
use crate::source::BlobSink;
use crate::types::Type;
use crate::value::Value;
use crate::writer::{Appender, WriteOptions};

/// Most pages of a fill in one cluster; it bounds the work that a damaged number of entries causes.
const PAGES_MAX: u64 = 1 << 20;

/// The elements of a column for one value, and the difference from value to value.
#[derive(Clone, Debug)]
pub(super) struct Fill {
    column: Column,
    element: Element,
    /// Elements of the first value in memory.
    pattern: Vec<u8>,
    step: FillStep,
}

/// The difference of the elements of each value from those of the value before.
#[derive(Clone, Debug, PartialEq)]
enum FillStep {
    Nothing,
    /// Offsets grow by the items of one value.
    Offsets(u64),
    /// Positions grow by the elements of one value, for each alternative of a variant.
    Switch(Vec<u64>),
}

impl Fill {
    /// The fills of a default value, for each column of a field of type `of`, depth first.
    pub(super) fn of_value(of: &Type, value: &Value, options: WriteOptions) -> Result<Vec<Fill>> {
        let reader = with_one(of, value, options)?;
        let clusters = reader.clusters_of(&(0..1))?;
        let [cluster] = clusters[..] else { return Err(Error::invalid("a default is too large")) };
        let columns = reader.schema().columns.iter().enumerate();
        columns
            .map(|(id, column)| {
                let id = [id as u32];
                let elements = cluster.active(&id).map_or(0, |(_, run)| run.elements);
                let element = column.element()?;
                let whole = ClusterSegment { cluster, range: 0..elements, is_referenced: true };
                let pattern = reader.elements().read(&id, &[whole], element)?.to_vec();
                let step = FillStep::of(column, &pattern)?;
                Ok(Fill { column: column.clone(), element, pattern, step })
            })
            .collect()
    }

    /// The offsets of collections of `size` items.
    pub(super) fn of_size(column: &Column, size: u64) -> Result<Self> {
        let pattern = size.to_le_bytes().to_vec();
        let (column, element) = (column.clone(), column.element()?);
        Ok(Fill { column, element, pattern, step: FillStep::Offsets(size) })
    }

    /// Elements that are zero.
    pub(super) fn of_zero(column: &Column) -> Result<Self> {
        let element = column.element()?;
        let pattern = vec![0; element.size()];
        Ok(Fill { column: column.clone(), element, pattern, step: FillStep::Nothing })
    }

    /// Elements that are all the same byte.
    pub(super) fn of_byte(column: &Column, byte: u8) -> Result<Self> {
        Ok(Fill { pattern: vec![byte], ..Self::of_zero(column)? })
    }

    /// Number of elements of one value.
    fn count(&self) -> u64 {
        (self.pattern.len() / self.element.size()) as u64
    }

    /// The elements `start..end` of the repeated values.
    fn elements(&self, start: u64, end: u64) -> Vec<u8> {
        let (size, count) = (self.element.size(), self.count());
        let mut elements = Vec::with_capacity((end - start) as usize * size);
        for at in start..end {
            let (value, within) = (at / count, (at % count) as usize);
            let base = &self.pattern[within * size..(within + 1) * size];
            match &self.step {
                FillStep::Nothing => elements.extend_from_slice(base),
                FillStep::Offsets(items) => {
                    let first = u64::from_le_bytes(base.try_into().expect("offsets have 8 bytes"));
                    elements.extend((first + value * items).to_le_bytes());
                }
                FillStep::Switch(items) => {
                    for (position, tag) in switch_pairs(base) {
                        let step = (tag as usize).checked_sub(1).map_or(0, |chosen| items[chosen]);
                        elements.extend(switch_element(position + value * step, tag));
                    }
                }
            }
        }
        elements
    }
}

impl FillStep {
    fn of(column: &Column, pattern: &[u8]) -> Result<Self> {
        if column.column_type.is_index() {
            return Ok(FillStep::Offsets(values_of::<u64>(pattern)?.last().copied().unwrap_or(0)))
                .map(|step| if step == FillStep::Offsets(0) { FillStep::Nothing } else { step });
        }
        if column.element()? != Element::Switch {
            return Ok(FillStep::Nothing);
        }
        let mut items = vec![];
        for (position, tag) in switch_pairs(pattern) {
            let Some(chosen) = (tag as usize).checked_sub(1) else { continue };
            items.resize(items.len().max(chosen + 1), 0);
            items[chosen] = u64::max(items[chosen], position + 1);
        }
        Ok(if items.is_empty() { FillStep::Nothing } else { FillStep::Switch(items) })
    }
}

/// An array of one value.
pub(super) fn single(of: &Type, value: &Value) -> Result<Array> {
    let reader = with_one(of, value, WriteOptions::default())?;
    let array = reader.read(&reader.select_all(), 0..1)?;
    array.member(VALUE).cloned().ok_or_else(|| Error::invalid("a value was not kept"))
}

const VALUE: &str = "value";

/// An RNTuple of one value in memory.
fn with_one(of: &Type, value: &Value, options: WriteOptions) -> Result<Reader> {
    let mut memory = Vec::new();
    let members = [(VALUE.to_owned(), of.clone())];
    let (mut appender, header) = Appender::create(&mut memory, VALUE, &members, options)?;
    let record = Value::Record(vec![(VALUE.to_owned(), value.clone())]);
    appender.append_value(&mut memory, &record)?;
    let version = appender.finish_version(&mut memory, &Vec::new())?;
    Reader::from_links(Arc::new(memory), &header, &version.footer)
}

/// Writes pages, and equal pages of fills only once.
pub(super) struct PageMaker {
    options: WriteOptions,
    buffers: PageBuffers,
    /// The pages of fills, by fill, first element and number of elements.
    written: HashMap<(usize, u64, u32), PageLocation>,
    /// Bytes written so far.
    pub bytes: u64,
}

impl PageMaker {
    pub(super) fn new(options: WriteOptions) -> Self {
        let (buffers, written) = (PageBuffers::default(), HashMap::new());
        PageMaker { options, buffers, written, bytes: 0 }
    }

    /// The pages of `values` values of a fill; `number` identifies the fill.
    pub(super) fn fill(
        &mut self,
        sink: &mut dyn BlobSink,
        number: usize,
        fill: &Fill,
        values: u64,
    ) -> Result<Vec<PageLocation>> {
        let count = fill.count();
        let too_many = || Error::invalid(format!("{values} values are too many for one cluster"));
        let elements = count.checked_mul(values).ok_or_else(too_many)?;
        if elements == 0 {
            return Ok(vec![]);
        }
        let fitting = (self.options.page_size / fill.element.size()).max(1) as u64;
        let on_page = if count <= fitting { fitting - fitting % count } else { fitting };
        if elements.div_ceil(on_page) > PAGES_MAX {
            return Err(too_many());
        }
        let starts = (0..elements).step_by(on_page as usize);
        starts
            .map(|start| {
                let end = elements.min(start + on_page);
                let place = if fill.step == FillStep::Nothing { start % count } else { start };
                let key = (number, place, (end - start) as u32);
                if let Some(page) = self.written.get(&key) {
                    return Ok(*page);
                }
                let values = fill.elements(start, end);
                let page = self.page(sink, &fill.column, &values, self.some_compression())?;
                self.written.insert(key, page);
                Ok(page)
            })
            .collect()
    }

    /// The pages of elements in memory.
    pub(super) fn pages(
        &mut self,
        sink: &mut dyn BlobSink,
        column: &Column,
        values: &[u8],
    ) -> Result<Vec<PageLocation>> {
        self.compressed_pages(sink, column, values, self.options.compression)
    }

    /// Like [`pages`](Self::pages), but always compressed.
    pub(super) fn small_pages(
        &mut self,
        sink: &mut dyn BlobSink,
        column: &Column,
        values: &[u8],
    ) -> Result<Vec<PageLocation>> {
        self.compressed_pages(sink, column, values, self.some_compression())
    }

    fn compressed_pages(
        &mut self,
        sink: &mut dyn BlobSink,
        column: &Column,
        values: &[u8],
        compression: Compression,
    ) -> Result<Vec<PageLocation>> {
        let size = column.element()?.size();
        let on_page = (self.options.page_size / size).max(1) * size;
        values.chunks(on_page).map(|values| self.page(sink, column, values, compression)).collect()
    }

    fn page(
        &mut self,
        sink: &mut dyn BlobSink,
        column: &Column,
        values: &[u8],
        compression: Compression,
    ) -> Result<PageLocation> {
        let elements = (values.len() / column.element()?.size()) as u32;
        let page = seal_page(column, values, compression, &mut self.buffers)?;
        let offset = sink.write_blob(&[page.payload, &page.checksum])?;
        let size = page.payload.len() as u64;
        self.bytes += size + page.checksum.len() as u64;
        Ok(PageLocation { elements, checksum: true, locator: Locator { offset, size } })
    }

    /// The compression of pages that compress well: those of fills and of offsets.
    fn some_compression(&self) -> Compression {
        match self.options.compression {
            Compression::None => Compression::Zstd { level: 1 },
            chosen => chosen,
        }
    }

    /// A column of a cluster with these pages; the caller sets the element offset. The settings are never
    /// those of no compression: readers recognise an uncompressed page by its size, but JSROOT 7.11
    /// relies on settings of no compression.
    pub(super) fn column(&self, pages: Vec<PageLocation>) -> ColumnPages {
        let compression = self.some_compression().settings();
        ColumnPages { element_offset: Some(0), compression, pages }
    }
}

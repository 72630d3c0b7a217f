//! Measures the size of a container's fields, and the time to read them, with each compression that a new container can
//! have.
//!
//! 1. Nothing is estimated: a sample of the elements of each column is packed with each compression, and unpacked
//!    again, in memory.
//! 2. Nothing is changed.

use std::time::Duration;

use femtobarn_catalog::clock;
use rntuple::{
    Column, ColumnType, Encoding, PageBuffers, Reader, WriteOptions, open_page, seal_page,
};

use crate::error::{Error, Result};
use crate::read::view::View;
use crate::{ContainerOptions, Profile};

/// A column is unpacked repeatedly for at least this time; the fastest run counts.
const UNPACKING_TIME_MIN: Duration = Duration::from_millis(2);

/// The compressions that a new container can have, in the order of [`PackedField::sizes`].
const PROFILES: [Profile; 3] = [Profile::Plain, Profile::Fast, Profile::Archive];

/// The size of a field with one compression.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PackedSize {
    /// Bytes on disk.
    pub stored: f64,
    /// Seconds of one core to unpack all its elements.
    pub seconds: f64,
}

/// The measurements of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedField {
    /// Its path, such as `tracks.pt`.
    pub path: String,
    /// Bytes of its elements in memory, with the offsets of lists.
    pub memory: u64,
    /// Bytes on disk, as the field is stored now.
    pub stored: u64,
    /// The size in a new container: uncompressed, with LZ4 and with Zstandard.
    pub sizes: [PackedSize; 3],
}

impl View {
    /// Measures the fields of the stored objects, by a sample of `sample` bytes in memory of each column.
    ///
    /// # Errors
    /// `Corrupt` if the bytes of the sample are damaged; `Io` if they cannot be read.
    pub fn packed_fields(&self, sample: usize) -> Result<Vec<PackedField>> {
        let layout = ContainerOptions::from_json(&self.container().options)?;
        let measured = fields_of(self.reader(), layout, sample);
        measured.map_err(Error::storage(self.path()))
    }
}

fn fields_of(
    reader: &Reader,
    layout: ContainerOptions,
    sample: usize,
) -> rntuple::Result<Vec<PackedField>> {
    let sizes = reader.column_sizes()?;
    let mut fields: Vec<PackedField> = vec![];
    for of in reader.column_paths() {
        let size = sizes[of.column as usize];
        let column = &reader.schema().columns[of.column as usize];
        let values = reader.sample(of.column, sample)?.concat();
        if values.is_empty() {
            continue;
        }
        let share = size.memory as f64 / values.len() as f64;
        let field = match fields.iter_mut().find(|field| field.path == of.path) {
            Some(field) => field,
            None => {
                let (path, sizes) = (of.path, Default::default());
                fields.push(PackedField { path, memory: 0, stored: 0, sizes });
                fields.last_mut().expect("it was added")
            }
        };
        field.memory += size.memory;
        field.stored += size.stored;
        for (compression, size) in PROFILES.into_iter().zip(&mut field.sizes) {
            let options = ContainerOptions { compression, ..layout }.write_options();
            let packed = measure(&new_column(column, options.encoding()), &values, options)?;
            size.stored += packed.stored * share;
            size.seconds += packed.seconds * share;
        }
    }
    Ok(fields)
}

/// The column that a new container has for the elements of a column.
fn new_column(of: &Column, encoding: Encoding) -> Column {
    let (whole, bits) = match of.column_type.whole() {
        ColumnType::Index32 => (ColumnType::Index64, 64),
        whole => (whole, of.bits),
    };
    let column_type = match encoding {
        // Numbers of half precision are not split.
        Encoding::Split if whole != ColumnType::Real16 => whole.split(),
        _ => whole,
    };
    Column { column_type, bits, ..of.clone() }
}

/// Packs values, and unpacks them until the time is measured.
fn measure(column: &Column, values: &[u8], options: WriteOptions) -> rntuple::Result<PackedSize> {
    let element = column.column_type.element().map_or(1, |element| element.size());
    let page_bytes = (options.page_size / element).max(1) * element;
    let mut buffers = PageBuffers::default();
    let mut pages = vec![];
    for page in values.chunks(page_bytes) {
        let mut stored = vec![];
        seal_page(column, page, options.compression, &mut buffers)?.append_to(&mut stored);
        pages.push((page.len(), stored));
    }
    let mut out = vec![0; page_bytes];
    let (begin, mut fastest) = (clock::now(), Duration::MAX);
    while begin.elapsed() < UNPACKING_TIME_MIN || fastest == Duration::MAX {
        let start = clock::now();
        for (length, stored) in &pages {
            let out = &mut out[..*length];
            open_page(column, length / element, true, 0, stored, &mut buffers, out)?;
        }
        fastest = fastest.min(start.elapsed());
    }
    let stored = pages.iter().map(|(_, stored)| stored.len()).sum::<usize>();
    Ok(PackedSize { stored: stored as f64, seconds: fastest.as_secs_f64() })
}

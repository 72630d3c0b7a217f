//! [`FromCell`]: Rust values from the elements of columns, the inverse of `writer::row`.

use std::ops::Range;

use bytes::Bytes;

use super::row_reader::RowReader;
use crate::cell_type::CellType;
use crate::error::{Error, Result};
use crate::value::text_of;

/// A Rust type that can be read from the field of its [`CellType`].
///
/// Implemented for numbers, truth values, strings, shared bytes, `Vec`, `Option`, arrays and, by
/// [`row!`](crate::row), structures of these.
pub trait FromCell: CellType + Sized {
    /// Reads value `index` of the cluster from the next columns.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if pages are damaged, [`Error::Io`] if the source cannot be read.
    fn get(row: &mut RowReader<'_>, index: u64) -> Result<Self>;

    /// Reads a range of values.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if pages are damaged, [`Error::Io`] if the source cannot be read.
    fn get_many(row: &mut RowReader<'_>, range: Range<u64>) -> Result<Vec<Self>> {
        let first = row.column();
        let mut values = vec![];
        for index in range {
            row.go_to(first);
            values.push(Self::get(row, index)?);
        }
        row.go_to(first + Self::COLUMNS);
        Ok(values)
    }

    /// Reads `SIZE` values from value `start` on.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if pages are damaged, [`Error::Io`] if the source cannot be read.
    fn get_array<const SIZE: usize>(row: &mut RowReader<'_>, start: u64) -> Result<[Self; SIZE]> {
        let values = Self::get_many(row, start..start.saturating_add(SIZE as u64))?;
        values.try_into().map_err(|_| Error::corrupt("array", 0, "it has too many items"))
    }
}

macro_rules! primitives_from_cells {
    ($($rust:ty),*) => {$(
        impl FromCell for $rust {
            #[inline]
            fn get(row: &mut RowReader<'_>, index: u64) -> Result<Self> {
                row.number(index)
            }

            fn get_many(row: &mut RowReader<'_>, range: Range<u64>) -> Result<Vec<Self>> {
                row.numbers(range)
            }

            #[inline]
            fn get_array<const SIZE: usize>(
                row: &mut RowReader<'_>,
                start: u64,
            ) -> Result<[Self; SIZE]> {
                let mut values = [<$rust>::default(); SIZE];
                row.fill(start, size_of::<$rust>(), bytemuck::cast_slice_mut(&mut values))?;
                Ok(values)
            }
        }
    )*};
}

primitives_from_cells!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);

impl FromCell for bool {
    #[inline]
    fn get(row: &mut RowReader<'_>, index: u64) -> Result<Self> {
        Ok(row.number::<u8>(index)? != 0)
    }
}

/// The bytes are shared with their page if it has all of them, else copied.
impl FromCell for Bytes {
    fn get(row: &mut RowReader<'_>, index: u64) -> Result<Self> {
        let items = row.items(index)?;
        row.bytes(items)
    }
}

/// Bytes that are not UTF-8 become replacement characters, as in [`Value`](crate::Value).
impl FromCell for String {
    fn get(row: &mut RowReader<'_>, index: u64) -> Result<Self> {
        Bytes::get(row, index).map(|text| text_of(&text))
    }
}

impl<T: FromCell> FromCell for Vec<T> {
    fn get(row: &mut RowReader<'_>, index: u64) -> Result<Self> {
        let items = row.items(index)?;
        T::get_many(row, items)
    }
}

impl<T: FromCell> FromCell for Option<T> {
    fn get(row: &mut RowReader<'_>, index: u64) -> Result<Self> {
        let items = row.items(index)?;
        match items.end - items.start {
            0 => {
                row.skip(T::COLUMNS);
                Ok(None)
            }
            1 => Ok(Some(T::get(row, items.start)?)),
            _ => Err(Error::corrupt("collection", 0, "an optional value has several items")),
        }
    }
}

impl<T: FromCell, const SIZE: usize> FromCell for [T; SIZE] {
    #[inline]
    fn get(row: &mut RowReader<'_>, index: u64) -> Result<Self> {
        T::get_array(row, index.saturating_mul(SIZE as u64))
    }
}

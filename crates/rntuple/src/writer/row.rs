//! [`Cell`] and [`RowWriter`]: entries written one at a time, from Rust values or from [`Value`]s.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::column::ColumnBuffer;
use super::renumbering::Renumbering;
use crate::cell_type::CellType;
use crate::column::{Element, switch_element};
use crate::error::{Error, Result};
use crate::page::PageBuffers;
use crate::source::BlobSink;
use crate::types::{Primitive, Type};
use crate::value::Value;

/// Writes the columns of one entry, from first to last.
pub struct RowWriter<'a> {
    pub(super) columns: &'a mut [ColumnBuffer],
    pub(super) buffers: &'a mut PageBuffers,
    pub(super) alternatives: &'a mut BTreeMap<usize, Vec<u64>>,
    pub(super) renumbering: &'a Renumbering,
    pub(super) sink: &'a mut dyn BlobSink,
    pub(super) cursor: usize,
}

/// A Rust type that can be written to the field of its [`CellType`].
///
/// Implemented for numbers, truth values, strings, shared bytes, `Vec`, `Option`, arrays and, by
/// [`row!`](crate::row), structures of these.
pub trait Cell: CellType {
    /// Whether its values may have numbers that are renumbered, that is, stored as other numbers.
    const IS_RENUMBERED: bool = false;

    /// Writes the columns of one value.
    ///
    /// # Errors
    /// [`Error::Io`] if a full page cannot be written.
    fn put(&self, row: &mut RowWriter<'_>) -> Result<()>;

    /// Calls `visit` with each number that will be renumbered, so that the caller can assign the stored
    /// numbers before anything is written.
    #[inline]
    fn visit_renumbered(&self, _visit: &mut impl FnMut(u32)) {}

    /// Writes the columns of many values.
    ///
    /// # Errors
    /// [`Error::Io`] if a full page cannot be written.
    fn put_all(values: &[Self], row: &mut RowWriter<'_>) -> Result<()>
    where
        Self: Sized,
    {
        let first = row.cursor;
        for value in values {
            row.cursor = first;
            value.put(row)?;
        }
        row.cursor = first + Self::COLUMNS;
        Ok(())
    }
}

impl<'a> RowWriter<'a> {
    /// The stored number of each renumbered number.
    #[inline]
    pub fn renumbering(&self) -> &'a Renumbering {
        self.renumbering
    }

    /// Writes elements to the next column, whose elements must have their type.
    ///
    /// # Errors
    /// [`Error::Io`] if a full page cannot be written.
    #[inline]
    pub fn put_each<T: bytemuck::Pod>(&mut self, values: impl Iterator<Item = T>) -> Result<()> {
        let column = &mut self.columns[self.cursor];
        self.cursor += 1;
        for value in values {
            column.push(value, self.buffers, self.sink)?;
        }
        Ok(())
    }
}

impl RowWriter<'_> {
    /// Writes one element to the next column.
    #[inline]
    fn put<T: bytemuck::Pod>(&mut self, value: T) -> Result<()> {
        let column = &mut self.columns[self.cursor];
        self.cursor += 1;
        column.push(value, self.buffers, self.sink)
    }

    /// Writes many elements to the next column.
    #[inline]
    fn put_all(&mut self, values: &[u8]) -> Result<()> {
        let column = &mut self.columns[self.cursor];
        self.cursor += 1;
        column.keep_together(values.len(), self.buffers, self.sink)?;
        column.extend(values, self.buffers, self.sink)
    }

    /// Writes many elements to the next column, which may share them instead of copying.
    fn put_shared(&mut self, values: &Bytes) -> Result<()> {
        let column = &mut self.columns[self.cursor];
        self.cursor += 1;
        column.keep_together(values.len(), self.buffers, self.sink)?;
        column.extend_shared(values, self.buffers, self.sink)
    }

    /// Writes the size of a collection to the next column.
    #[inline]
    fn put_size(&mut self, size: usize) -> Result<()> {
        let column = &mut self.columns[self.cursor];
        self.cursor += 1;
        column.push_size(size as u64, self.buffers, self.sink)
    }

    #[inline]
    pub(super) fn check_complete(&self) -> Result<()> {
        if self.cursor == self.columns.len() {
            return Ok(());
        }
        let (filled, columns) = (self.cursor, self.columns.len());
        Err(Error::invalid(format!("the row has {filled} columns, the schema {columns}")))
    }

    /// Writes a value of this type, as checked by [`Value::check`].
    pub(crate) fn put_value(&mut self, of: &Type, value: &Value) -> Result<()> {
        match (of, value) {
            (Type::Primitive(primitive), _) => self.put_number(*primitive, value),
            (Type::Reduced(primitive, _), _) => {
                self.put_reduced(primitive.rounded(value.as_float().unwrap_or_default()))
            }
            (Type::String, Value::String(text)) => {
                self.put_size(text.len())?;
                self.put_all(text.as_bytes())
            }
            (Type::List(_), Value::Bytes(bytes)) => {
                self.put_size(bytes.len())?;
                self.put_all(bytes)
            }
            (Type::List(item), Value::List(items)) => {
                self.put_size(items.len())?;
                self.put_values(item, items)
            }
            (Type::Optional(item), Value::Null) => {
                self.put_size(0)?;
                self.put_values(item, &[])
            }
            (Type::Optional(item), some) => {
                self.put_size(1)?;
                self.put_values(item, std::slice::from_ref(some))
            }
            (Type::Array { item, .. }, Value::Bytes(bytes)) if item.columns() == 1 => {
                self.put_all(bytes)
            }
            (Type::Array { item, .. }, Value::List(items)) => self.put_values(item, items),
            (Type::Bitset { .. }, Value::List(bits)) => {
                self.put_values(&Type::Primitive(Primitive::Bool), bits)
            }
            (Type::Record { members, .. }, Value::Record(values)) => {
                members.iter().zip(values).try_for_each(|((_, of), (_, v))| self.put_value(of, v))
            }
            (Type::Variant(alternatives), _) => self.put_variant(alternatives, value),
            _ => Err(Error::invalid("a value is not of its field's type")),
        }
    }

    fn put_values(&mut self, of: &Type, values: &[Value]) -> Result<()> {
        let first = self.cursor;
        for value in values {
            self.cursor = first;
            self.put_value(of, value)?;
        }
        self.cursor = first + of.columns();
        Ok(())
    }

    fn put_variant(&mut self, alternatives: &[Type], value: &Value) -> Result<()> {
        let switch = self.cursor;
        let counts = self.alternatives.entry(switch).or_insert_with(|| vec![0; alternatives.len()]);
        let (chosen, value) = match value {
            Value::Variant(chosen, value) => (Some(*chosen), &**value),
            _ => (None, value),
        };
        let pair = match chosen {
            Some(chosen) => switch_element(counts[chosen], chosen as u32 + 1),
            None => switch_element(0, 0),
        };
        if let Some(chosen) = chosen {
            counts[chosen] += 1;
        }
        self.put_all(&pair)?;
        for (position, alternative) in alternatives.iter().enumerate() {
            let values = if chosen == Some(position) { std::slice::from_ref(value) } else { &[] };
            self.put_values(alternative, values)?;
        }
        Ok(())
    }

    fn put_reduced(&mut self, value: f64) -> Result<()> {
        match self.columns[self.cursor].element {
            Element::F64 => self.put(value),
            _ => self.put(value as f32),
        }
    }

    fn put_number(&mut self, primitive: Primitive, value: &Value) -> Result<()> {
        let integer = value.as_integer().unwrap_or_default();
        match primitive {
            Primitive::Bool | Primitive::Byte | Primitive::Char | Primitive::UInt8 => {
                self.put(integer as u8)
            }
            Primitive::Int8 => self.put(integer as i8),
            Primitive::Int16 => self.put(integer as i16),
            Primitive::UInt16 => self.put(integer as u16),
            Primitive::Int32 => self.put(integer as i32),
            Primitive::UInt32 => self.put(integer as u32),
            Primitive::Int64 => self.put(integer as i64),
            Primitive::UInt64 => self.put(integer as u64),
            Primitive::Float32 => self.put(value.as_float().unwrap_or_default() as f32),
            Primitive::Float64 => self.put(value.as_float().unwrap_or_default()),
        }
    }
}

macro_rules! primitive_cells {
    ($($rust:ty),*) => {$(
        impl Cell for $rust {
            #[inline]
            fn put(&self, row: &mut RowWriter<'_>) -> Result<()> {
                row.put(*self)
            }

            #[inline]
            fn put_all(values: &[Self], row: &mut RowWriter<'_>) -> Result<()> {
                row.put_all(bytemuck::cast_slice(values))
            }
        }
    )*};
}

primitive_cells!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);

impl Cell for bool {
    #[inline]
    fn put(&self, row: &mut RowWriter<'_>) -> Result<()> {
        row.put(u8::from(*self))
    }
}

/// A list of `UInt8`. Large ones are shared, not copied, and held until their page is written, at the
/// latest when the version is finished.
impl Cell for Bytes {
    fn put(&self, row: &mut RowWriter<'_>) -> Result<()> {
        row.put_size(self.len())?;
        row.put_shared(self)
    }
}

impl Cell for String {
    fn put(&self, row: &mut RowWriter<'_>) -> Result<()> {
        row.put_size(self.len())?;
        row.put_all(self.as_bytes())
    }
}

impl<T: Cell> Cell for Vec<T> {
    const IS_RENUMBERED: bool = T::IS_RENUMBERED;

    #[inline]
    fn visit_renumbered(&self, visit: &mut impl FnMut(u32)) {
        visit_all(self, visit);
    }

    fn put(&self, row: &mut RowWriter<'_>) -> Result<()> {
        row.put_size(self.len())?;
        T::put_all(self, row)
    }
}

impl<T: Cell> Cell for Option<T> {
    const IS_RENUMBERED: bool = T::IS_RENUMBERED;

    #[inline]
    fn visit_renumbered(&self, visit: &mut impl FnMut(u32)) {
        visit_all(self.as_slice(), visit);
    }

    fn put(&self, row: &mut RowWriter<'_>) -> Result<()> {
        row.put_size(usize::from(self.is_some()))?;
        T::put_all(self.as_slice(), row)
    }
}

impl<T: Cell, const SIZE: usize> Cell for [T; SIZE] {
    const IS_RENUMBERED: bool = T::IS_RENUMBERED;

    #[inline]
    fn visit_renumbered(&self, visit: &mut impl FnMut(u32)) {
        visit_all(self, visit);
    }

    #[inline]
    fn put(&self, row: &mut RowWriter<'_>) -> Result<()> {
        T::put_all(self, row)
    }
}

#[inline]
fn visit_all<T: Cell>(values: &[T], visit: &mut impl FnMut(u32)) {
    if T::IS_RENUMBERED {
        values.iter().for_each(|value| value.visit_renumbered(visit));
    }
}

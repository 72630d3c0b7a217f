//! [`FieldCursor`]: one field of single entries, for callers without a Rust structure.
//!
//! **Invariant:** the first column of the plan has the numbers or offsets, the second the items.

use std::ops::Deref;

use bytes::Bytes;

use super::Reader;
use super::held_pages::{HeldColumn, HeldPages, PlannedColumn};
use super::row_reader::RowReader;
use crate::column::Element;
use crate::error::{Error, Result};
use crate::schema::ColumnId;
use crate::tree::{FieldKind, FieldNode};
use crate::types::Primitive;

/// Reads one field of entries, one at a time; `D` dereferences to the reader.
///
/// It holds the pages that it reads from, as a [`Cursor`](super::Cursor) does.
pub struct FieldCursor<D> {
    pages: HeldPages<D>,
    shape: ValueShape,
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    /// A number, in the first bytes of the array.
    Number(Primitive, [u8; 8]),
    /// A string; it may not be UTF-8.
    Text(Bytes),
    /// A list of numbers.
    List(Primitive, Bytes),
    /// An array of numbers of fixed size.
    Fixed(Primitive, Bytes),
}

/// The kind of a field's values.
#[derive(Clone, Copy)]
enum ValueShape {
    Number(Primitive),
    Text,
    List(Primitive),
    Fixed(Primitive, u64),
}

impl<D: Deref<Target = Reader>> FieldCursor<D> {
    /// A cursor over the field at a path of names through records; `None` if its values are neither
    /// numbers, strings, nor lists or arrays of numbers.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the field does not exist.
    pub fn new(reader: D, path: &[&str]) -> Result<Option<Self>> {
        let node = node_at(&reader.tree().nodes, path)?;
        let planned = planned(node);
        Ok(planned.map(|(shape, plan)| Self { pages: HeldPages::new(reader, plan), shape }))
    }

    /// Bytes of the pages that the cursor holds.
    pub fn held_bytes(&self) -> u64 {
        self.pages.held
    }

    /// Most bytes of pages that the cursor holds.
    pub fn held_bytes_max(&self) -> u64 {
        self.pages.held_max
    }

    /// Drops all pages.
    pub fn release(&mut self) {
        self.pages.clear();
    }

    /// The value of an entry, if the cursor holds its pages.
    #[inline]
    pub fn held(&mut self, entry: u64) -> Option<FieldValue> {
        let shape = self.shape;
        let cluster = self.pages.known_cluster(entry)?;
        held_value(shape, &cluster.columns, entry - cluster.entries.start)
    }

    /// Reads the value of an entry.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the entry does not exist, [`Error::Corrupt`] if its pages are damaged,
    /// [`Error::Io`] if the source cannot be read.
    pub fn get(&mut self, entry: u64) -> Result<FieldValue> {
        let (mut row, index) = self.pages.row(entry)?;
        read_value(self.shape, &mut row, index)
    }
}

#[inline]
fn held_value(shape: ValueShape, columns: &[HeldColumn], index: u64) -> Option<FieldValue> {
    let first = columns.first()?;
    let list = |size| {
        let end = |index| first.held_from(index, 8)?.first_chunk().copied().map(u64::from_le_bytes);
        let start = if index == 0 { 0 } else { end(index - 1)? };
        columns.get(1)?.shared(start, end(index)?.checked_sub(start)?, size)
    };
    Some(match shape {
        ValueShape::Number(primitive) => {
            let size = primitive.size();
            let mut number = [0; 8];
            number[..size].copy_from_slice(first.held_from(index, size)?.get(..size)?);
            FieldValue::Number(primitive, number)
        }
        ValueShape::Text => FieldValue::Text(list(1)?),
        ValueShape::List(primitive) => FieldValue::List(primitive, list(primitive.size())?),
        ValueShape::Fixed(primitive, count) => {
            let start = index.checked_mul(count)?;
            FieldValue::Fixed(primitive, first.shared(start, count, primitive.size())?)
        }
    })
}

fn read_value(shape: ValueShape, row: &mut RowReader<'_>, index: u64) -> Result<FieldValue> {
    Ok(match shape {
        ValueShape::Number(primitive) => {
            let (size, mut number) = (primitive.size(), [0; 8]);
            row.fill(index, size, &mut number[..size])?;
            FieldValue::Number(primitive, number)
        }
        ValueShape::Text => {
            let items = row.items(index)?;
            FieldValue::Text(row.elements(items, 1)?)
        }
        ValueShape::List(primitive) => {
            let items = row.items(index)?;
            FieldValue::List(primitive, row.elements(items, primitive.size())?)
        }
        ValueShape::Fixed(primitive, count) => {
            let start = index.checked_mul(count).ok_or_else(too_many)?;
            let items = start..start.checked_add(count).ok_or_else(too_many)?;
            FieldValue::Fixed(primitive, row.elements(items, primitive.size())?)
        }
    })
}

fn too_many() -> Error {
    Error::corrupt("array", 0, "it has too many items")
}

fn node_at<'a>(nodes: &'a [FieldNode], path: &[&str]) -> Result<&'a FieldNode> {
    let Some((name, below)) = path.split_first() else {
        return Err(Error::invalid("the path of a field is empty"));
    };
    let node = nodes.iter().find(|node| node.name == *name).ok_or_else(|| Error::NotFound {
        what: "field",
        name: (*name).to_owned(),
        candidates: nodes.iter().map(|node| node.name.clone()).collect(),
    })?;
    match (&node.kind, below) {
        (_, []) => Ok(node),
        (FieldKind::Record { members, .. }, below) => node_at(members, below),
        _ => node_at(&[], below),
    }
}

/// The kind of a field's values and their columns; `None` if a [`FieldCursor`] cannot read them.
fn planned(node: &FieldNode) -> Option<(ValueShape, Vec<PlannedColumn>)> {
    let column = |columns: &[ColumnId], element, is_referenced| PlannedColumn {
        columns: columns.to_vec(),
        element,
        is_referenced,
    };
    let numbers = |node: &FieldNode, is_referenced| match &node.kind {
        FieldKind::Primitive { primitive, values, .. } => {
            Some((*primitive, column(values, primitive.element(), is_referenced)))
        }
        _ => None,
    };
    Some(match &node.kind {
        FieldKind::String { offsets, bytes } => {
            let offsets = column(offsets, Element::U64, false);
            (ValueShape::Text, vec![offsets, column(bytes, Element::U8, true)])
        }
        FieldKind::List { offsets, item, optional: false } => {
            let (primitive, items) = numbers(item, true)?;
            (ValueShape::List(primitive), vec![column(offsets, Element::U64, false), items])
        }
        FieldKind::Fixed { size, item } => {
            let (primitive, items) = numbers(item, false)?;
            (ValueShape::Fixed(primitive, *size), vec![items])
        }
        _ => {
            let (primitive, values) = numbers(node, false)?;
            (ValueShape::Number(primitive), vec![values])
        }
    })
}

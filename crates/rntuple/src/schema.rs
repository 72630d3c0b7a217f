//! Fields and columns as the header envelope describes them. The header and the schema extension of the
//! footer form one [`Schema`]; the identifiers of the extension continue those of the header.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Header Envelope" and "Schema Extension Record
//! Frame".

use std::collections::HashMap;

use crate::column::{ColumnType, Element};
use crate::error::{Error, Result};

/// Position of a field in [`Schema::fields`].
pub type FieldId = u32;
/// Position of a column in [`Schema::columns`].
pub type ColumnId = u32;

/// The structural role of a field in the tree of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Structure {
    /// A leaf, or a field that only wraps one subfield (fixed array, enumeration, atomic).
    Leaf = 0,
    /// A collection of values of its one subfield.
    Collection = 1,
    /// A record of its subfields.
    Record = 2,
    /// A value of one of its subfields.
    Variant = 3,
    /// An object serialised by the ROOT streamer.
    Streamer = 4,
}

/// A node in the tree of fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Version of the field, for schema evolution.
    pub version: u32,
    /// Version of the type, for schema evolution.
    pub type_version: u32,
    /// The parent; a top-level field is its own parent.
    pub parent: FieldId,
    /// Structural role in the tree.
    pub structure: Structure,
    /// Name among its siblings.
    pub name: String,
    /// Normalised C++ type; empty if untyped.
    pub type_name: String,
    /// Type as the user wrote it, if it differs.
    pub type_alias: String,
    /// Free text.
    pub description: String,
    /// Number of items of a fixed-size array or bitset.
    pub repetition: Option<u64>,
    /// The field that a projected field is a view of.
    pub source: Option<FieldId>,
    /// ROOT's checksum of the type.
    pub type_checksum: Option<u32>,
}

/// A sequence of elements of one simple type.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Type of the elements; the code of an unknown type is kept.
    pub column_type: ColumnType,
    /// Bits of one element on disk.
    pub bits: u16,
    /// The field it belongs to.
    pub field: FieldId,
    /// Index of the field's alternative representation that the column belongs to.
    pub representation: u16,
    /// For a deferred column the index of its first element; negative if the column is suppressed before.
    pub first_element: Option<i64>,
    /// Least and greatest value of quantised numbers.
    pub range: Option<(f64, f64)>,
}

impl Column {
    /// The type of one element in memory.
    pub(crate) fn element(&self) -> Result<Element> {
        let column_type = self.column_type;
        column_type
            .element()
            .ok_or_else(|| Error::unsupported(format!("column type {:#04x}", column_type.code())))
    }
}

/// A column of a projected field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AliasColumn {
    /// The column that stores the data.
    pub physical: ColumnId,
    /// The projected field.
    pub field: FieldId,
}

/// Additional type information, such as ROOT's streamer information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraTypeInfo {
    /// Kind of content; 0 is ROOT's streamer information.
    pub content_id: u32,
    /// Version of the type.
    pub type_version: u32,
    /// Name of the type; empty for streamer information.
    pub type_name: String,
    /// The content, opaque to this library.
    pub content: Vec<u8>,
}

/// All fields and columns of an RNTuple.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// Fields, parents before their subfields.
    pub fields: Vec<Field>,
    /// Columns; those of one field are in the order of the specification.
    pub columns: Vec<Column>,
    /// Columns of projected fields.
    pub aliases: Vec<AliasColumn>,
    /// Additional type information.
    pub extra: Vec<ExtraTypeInfo>,
}

impl Schema {
    /// The columns, grouped by alternative representation: the columns of one group are alternatives for
    /// the same elements, and each cluster stores its elements in one of them.
    pub(crate) fn alternative_columns(&self) -> Vec<Vec<ColumnId>> {
        let mut groups: Vec<Vec<ColumnId>> = vec![];
        let mut numbers = HashMap::new();
        let mut positions: HashMap<(FieldId, u16), u32> = HashMap::new();
        for (id, column) in self.columns.iter().enumerate() {
            let position = positions.entry((column.field, column.representation)).or_default();
            let number = *numbers.entry((column.field, *position)).or_insert(groups.len());
            *position += 1;
            if number == groups.len() {
                groups.push(vec![]);
            }
            groups[number].push(id as ColumnId);
        }
        groups
    }
}

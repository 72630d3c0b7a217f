//! Fields and columns as the header envelope describes them.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Header Envelope" and "Schema Extension Record
//! Frame". Header and extension make one [`Schema`]; identifiers count through both.

use std::collections::HashMap;

use crate::column::{ColumnType, Element};
use crate::error::{Error, Result};

/// Position of a field in [`Schema::fields`].
pub type FieldId = u32;
/// Position of a column in [`Schema::columns`].
pub type ColumnId = u32;

/// What a field stands for in the tree of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Structure {
    /// A leaf, or a field that only wraps one subfield (fixed array, enumeration, atomic).
    Leaf = 0,
    /// A collection of its one subfield.
    Collection = 1,
    /// A record of its subfields.
    Record = 2,
    /// One of its subfields.
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
    /// Role in the tree.
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
    /// The field that a projected field shows.
    pub source: Option<FieldId>,
    /// ROOT's checksum of the type.
    pub type_checksum: Option<u32>,
}

/// A sequence of elements of one simple type.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Encoding of the elements; carries an unknown type untouched.
    pub column_type: ColumnType,
    /// Bits of one element on disk.
    pub bits: u16,
    /// The field it belongs to.
    pub field: FieldId,
    /// Which of the field's alternative representations it is part of.
    pub representation: u16,
    /// For a deferred column the index of its first element; negative if suppressed up to there.
    pub first_element: Option<i64>,
    /// Least and greatest value, for quantised numbers.
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
    /// The column with the data.
    pub physical: ColumnId,
    /// The projected field.
    pub field: FieldId,
}

/// Additional information on a type, such as streamer info.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraTypeInfo {
    /// Kind of content; 0 is ROOT streamer info.
    pub content_id: u32,
    /// Version of the type.
    pub type_version: u32,
    /// Name of the type; empty for streamer info.
    pub type_name: String,
    /// The content, opaque to this library.
    pub content: Vec<u8>,
}

/// All fields and columns of an RNTuple.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// Fields; parents come before their subfields.
    pub fields: Vec<Field>,
    /// Columns; those of a field in order.
    pub columns: Vec<Column>,
    /// Columns of projected fields.
    pub aliases: Vec<AliasColumn>,
    /// Additional type information.
    pub extra: Vec<ExtraTypeInfo>,
}

impl Schema {
    /// The columns that are representations of each other, in order: each such team holds one column
    /// of elements, and each cluster has it in one of them.
    pub(crate) fn teams(&self) -> Vec<Vec<ColumnId>> {
        let mut teams: Vec<Vec<ColumnId>> = vec![];
        let mut numbers = HashMap::new();
        let mut positions: HashMap<(FieldId, u16), u32> = HashMap::new();
        for (id, column) in self.columns.iter().enumerate() {
            let position = positions.entry((column.field, column.representation)).or_default();
            let number = *numbers.entry((column.field, *position)).or_insert(teams.len());
            *position += 1;
            if number == teams.len() {
                teams.push(vec![]);
            }
            teams[number].push(id as ColumnId);
        }
        teams
    }
}

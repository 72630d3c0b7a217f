//! The codec of a schema: the four list frames of fields, columns, alias columns and extra type
//! information that headers and schema extensions consist of.
//!
//! Invariants:
//! 1. An optional value of a field or column is present exactly if its flag is set.
//! 2. A decoded extension may refer to fields and columns of the header; [`Schema::check`] therefore
//!    checks the joined schema.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Header Envelope".

use crate::column::ColumnType;
use crate::error::{Error, Result};
use crate::schema::{AliasColumn, Column, ExtraTypeInfo, Field, Schema, Structure};
use crate::wire::{Reader, Writer};

/// Deepest nesting of fields; it bounds the recursion of all code that walks the tree of fields.
const DEPTH_MAX: u32 = 256;

const FIELD_SIZE_MIN: usize = 8 + 16 + 4 * 4;
const COLUMN_SIZE_MIN: usize = 8 + 12;
const ALIAS_SIZE_MIN: usize = 8 + 8;
const EXTRA_SIZE_MIN: usize = 8 + 8 + 2 * 4;

const FIELD_REPETITIVE: u16 = 0x01;
const FIELD_PROJECTED: u16 = 0x02;
const FIELD_HAS_CHECKSUM: u16 = 0x04;
const COLUMN_DEFERRED: u16 = 0x01;
const COLUMN_HAS_RANGE: u16 = 0x02;

impl Schema {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Schema {
            fields: decode_list(reader, FIELD_SIZE_MIN, decode_field)?,
            columns: decode_list(reader, COLUMN_SIZE_MIN, decode_column)?,
            aliases: decode_list(reader, ALIAS_SIZE_MIN, decode_alias)?,
            extra: decode_list(reader, EXTRA_SIZE_MIN, decode_extra)?,
        })
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        encode_list(writer, &self.fields, encode_field);
        encode_list(writer, &self.columns, encode_column);
        encode_list(writer, &self.aliases, encode_alias);
        encode_list(writer, &self.extra, encode_extra);
    }

    /// Appends the schema extension of a footer to this schema of its header; the identifiers of the
    /// extension continue those of the header.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the joined schema fails [`check`](Self::check).
    pub fn extend(&mut self, extension: &Schema) -> Result<()> {
        self.fields.extend_from_slice(&extension.fields);
        self.columns.extend_from_slice(&extension.columns);
        self.aliases.extend_from_slice(&extension.aliases);
        self.extra.extend_from_slice(&extension.extra);
        self.check()
    }

    /// Checks that all identifiers refer to existing fields and columns, that parents come before their
    /// subfields (so there are no cycles), and that the tree is at most 256 levels deep.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the number of the field or column that fails.
    pub fn check(&self) -> Result<()> {
        self.check_tree()?;
        let (fields, columns) = (self.fields.len(), self.columns.len());
        let missing = |id: u32, count: usize| id as usize >= count;
        for (id, column) in self.columns.iter().enumerate() {
            if missing(column.field, fields) {
                return Err(refers_nowhere("column", id, "field", column.field));
            }
        }
        for (id, alias) in self.aliases.iter().enumerate() {
            if missing(alias.field, fields) {
                return Err(refers_nowhere("alias column", id, "field", alias.field));
            }
            if missing(alias.physical, columns) {
                return Err(refers_nowhere("alias column", id, "column", alias.physical));
            }
        }
        Ok(())
    }

    fn check_tree(&self) -> Result<()> {
        let mut depths: Vec<u32> = Vec::with_capacity(self.fields.len());
        for (id, field) in self.fields.iter().enumerate() {
            let parent = field.parent as usize;
            if parent > id {
                return Err(refers_nowhere("field", id, "parent", field.parent));
            }
            let depth = if parent == id { 0 } else { depths[parent] + 1 };
            if depth > DEPTH_MAX {
                let reason = format!("field {id} lies deeper than {DEPTH_MAX} levels");
                return Err(Error::corrupt("schema", 0, reason));
            }
            depths.push(depth);
            match field.source {
                Some(source) if source as usize >= self.fields.len() => {
                    return Err(refers_nowhere("field", id, "source", source));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn refers_nowhere(what: &str, id: usize, kind: &str, target: u32) -> Error {
    Error::corrupt(
        "schema",
        0,
        format!("{what} {id} refers to {kind} {target}, which does not exist"),
    )
}

fn decode_list<T>(
    reader: &mut Reader<'_>,
    item_size_min: usize,
    decode: impl Fn(&mut Reader<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let (count, mut items) = reader.list_frame(item_size_min)?;
    (0..count).map(|_| decode(&mut items.record_frame()?)).collect()
}

fn encode_list<T>(writer: &mut Writer, items: &[T], encode: impl Fn(&T, &mut Writer)) {
    writer.list_frame(items.len(), |writer| {
        for item in items {
            writer.record_frame(|writer| encode(item, writer));
        }
    });
}

fn decode_field(reader: &mut Reader<'_>) -> Result<Field> {
    let version = reader.u32()?;
    let type_version = reader.u32()?;
    let parent = reader.u32()?;
    let structure = decode_structure(reader.u16()?)?;
    let flags = reader.u16()?;
    Ok(Field {
        version,
        type_version,
        parent,
        structure,
        name: reader.string()?,
        type_name: reader.string()?,
        type_alias: reader.string()?,
        description: reader.string()?,
        repetition: (flags & FIELD_REPETITIVE != 0).then(|| reader.u64()).transpose()?,
        source: (flags & FIELD_PROJECTED != 0).then(|| reader.u32()).transpose()?,
        type_checksum: (flags & FIELD_HAS_CHECKSUM != 0).then(|| reader.u32()).transpose()?,
    })
}

fn decode_structure(code: u16) -> Result<Structure> {
    match code {
        0 => Ok(Structure::Leaf),
        1 => Ok(Structure::Collection),
        2 => Ok(Structure::Record),
        3 => Ok(Structure::Variant),
        4 => Ok(Structure::Streamer),
        _ => Err(Error::unsupported(format!("structural role {code:#x} of a field"))),
    }
}

fn encode_field(field: &Field, writer: &mut Writer) {
    let flags = flag(FIELD_REPETITIVE, field.repetition.is_some())
        | flag(FIELD_PROJECTED, field.source.is_some())
        | flag(FIELD_HAS_CHECKSUM, field.type_checksum.is_some());
    writer.u32(field.version).u32(field.type_version).u32(field.parent);
    writer.u16(field.structure as u16).u16(flags);
    writer.string(&field.name).string(&field.type_name);
    writer.string(&field.type_alias).string(&field.description);
    field.repetition.map(|size| writer.u64(size));
    field.source.map(|id| writer.u32(id));
    field.type_checksum.map(|checksum| writer.u32(checksum));
}

fn decode_column(reader: &mut Reader<'_>) -> Result<Column> {
    let column_type = ColumnType::from_code(reader.u16()?);
    let bits = reader.u16()?;
    let field = reader.u32()?;
    let flags = reader.u16()?;
    Ok(Column {
        column_type,
        bits,
        field,
        representation: reader.u16()?,
        first_element: (flags & COLUMN_DEFERRED != 0).then(|| reader.i64()).transpose()?,
        range: (flags & COLUMN_HAS_RANGE != 0)
            .then(|| Ok::<_, Error>((reader.f64()?, reader.f64()?)))
            .transpose()?,
    })
}

fn encode_column(column: &Column, writer: &mut Writer) {
    let flags = flag(COLUMN_DEFERRED, column.first_element.is_some())
        | flag(COLUMN_HAS_RANGE, column.range.is_some());
    writer.u16(column.column_type.code()).u16(column.bits).u32(column.field);
    writer.u16(flags).u16(column.representation);
    column.first_element.map(|index| writer.i64(index));
    column.range.map(|(min, max)| writer.f64(min).f64(max));
}

fn decode_alias(reader: &mut Reader<'_>) -> Result<AliasColumn> {
    Ok(AliasColumn { physical: reader.u32()?, field: reader.u32()? })
}

fn encode_alias(alias: &AliasColumn, writer: &mut Writer) {
    writer.u32(alias.physical).u32(alias.field);
}

fn decode_extra(reader: &mut Reader<'_>) -> Result<ExtraTypeInfo> {
    Ok(ExtraTypeInfo {
        content_id: reader.u32()?,
        type_version: reader.u32()?,
        type_name: reader.string()?,
        content: reader.blob()?,
    })
}

fn encode_extra(extra: &ExtraTypeInfo, writer: &mut Writer) {
    writer.u32(extra.content_id).u32(extra.type_version);
    writer.string(&extra.type_name).blob(&extra.content);
}

fn flag(bit: u16, set: bool) -> u16 {
    if set { bit } else { 0 }
}

//! The form of a class's objects: an empty array with the types of the fields.

use bytes::Bytes;
use femtobarn::{Class, FieldType};
use rntuple::{Array, Primitive, bytes_of};

/// An empty array of objects of a class.
pub(crate) fn form_of(class: &Class) -> Array {
    let members = class.fields.iter().map(|field| (field.name.clone(), form(&field.of)));
    Array::Record { length: 0, members: members.collect() }
}

fn form(of: &FieldType) -> Array {
    let list = |item: &FieldType, optional| Array::List {
        offsets: bytes_of(vec![0_i64]),
        content: form(item).into(),
        optional,
    };
    match of {
        FieldType::Bool => numbers(Primitive::Bool),
        FieldType::Byte => numbers(Primitive::Byte),
        FieldType::Char => numbers(Primitive::Char),
        FieldType::Int8 => numbers(Primitive::Int8),
        FieldType::UInt8 => numbers(Primitive::UInt8),
        FieldType::Int16 => numbers(Primitive::Int16),
        FieldType::UInt16 => numbers(Primitive::UInt16),
        FieldType::Int32 => numbers(Primitive::Int32),
        FieldType::UInt32 => numbers(Primitive::UInt32),
        FieldType::Int64 => numbers(Primitive::Int64),
        FieldType::UInt64 => numbers(Primitive::UInt64),
        FieldType::Float16
        | FieldType::Float32
        | FieldType::Truncated { .. }
        | FieldType::Quantised { .. } => numbers(Primitive::Float32),
        FieldType::Float64 | FieldType::Double32 => numbers(Primitive::Float64),
        FieldType::String => Array::String { offsets: bytes_of(vec![0_i64]), bytes: Bytes::new() },
        FieldType::List(item) => list(item, false),
        FieldType::Optional(item) => list(item, true),
        FieldType::Array { of, size } => fixed(*size, form(of)),
        FieldType::Bitset(size) => fixed(*size, numbers(Primitive::Bool)),
        FieldType::Record { fields, .. } => {
            let members = fields.iter().map(|field| (field.name.clone(), form(&field.of)));
            Array::Record { length: 0, members: members.collect() }
        }
        FieldType::Variant(alternatives) => Array::Variant {
            tags: Bytes::new(),
            positions: Bytes::new(),
            contents: alternatives.iter().map(form).collect(),
        },
        FieldType::Link(_) => link(false),
        FieldType::ElementLink(_) => link(true),
        FieldType::Meaning { of, .. } => form(of),
    }
}

fn numbers(primitive: Primitive) -> Array {
    Array::Primitive { primitive, values: Bytes::new() }
}

fn fixed(size: u64, content: Array) -> Array {
    Array::Fixed { size, length: 0, content: content.into() }
}

/// A link: the OID of an object, and the place of an element in it.
fn link(has_element: bool) -> Array {
    let names = [
        ("database", Primitive::UInt32),
        ("container", Primitive::UInt32),
        ("entry", Primitive::UInt64),
        ("element", Primitive::UInt32),
    ];
    let members = names.into_iter().take(if has_element { 4 } else { 3 });
    let members = members.map(|(name, primitive)| (name.to_owned(), numbers(primitive)));
    Array::Record { length: 0, members: members.collect() }
}

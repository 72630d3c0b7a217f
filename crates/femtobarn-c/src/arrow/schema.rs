//! Arrow's types of arrays. An empty array has the same type as a full one.

use std::ffi::CString;
use std::ptr;

use rntuple::{Array, Primitive};

use super::abi::{ArrowSchema, NULLABLE};
use crate::status::c_text;

/// The memory that an exported type owns.
struct ExportedSchema {
    _format: CString,
    _name: CString,
    _metadata: Option<Box<[u8]>>,
    children: Vec<*mut ArrowSchema>,
}

/// The type of an array's values.
pub(crate) fn schema_of(name: &str, array: &Array) -> ArrowSchema {
    let item = |name: &str, array: &Array| vec![schema_of(name, array)];
    match array {
        Array::Primitive { primitive, .. } => {
            let metadata = match primitive {
                Primitive::Byte => Some("byte"),
                Primitive::Char => Some("char"),
                _ => None,
            };
            new(name, format_of(*primitive).to_owned(), metadata, vec![])
        }
        Array::String { .. } => new(name, "U".to_owned(), None, vec![]),
        Array::List { content, optional: true, .. } => {
            let mut schema = schema_of(name, content);
            schema.flags |= NULLABLE;
            schema
        }
        Array::List { content, .. } => new(name, "+L".to_owned(), None, item("item", content)),
        Array::Fixed { size, content, .. } => {
            new(name, format!("+w:{size}"), None, item("item", content))
        }
        Array::Record { members, .. } => {
            let members = members.iter().map(|(name, member)| schema_of(name, member));
            new(name, "+s".to_owned(), None, members.collect())
        }
        Array::Variant { contents, .. } => {
            let alternatives = contents.iter().enumerate();
            let alternatives = alternatives.map(|(at, of)| schema_of(&format!("_{at}"), of));
            let mut children: Vec<ArrowSchema> = alternatives.collect();
            children.push(new("none", "n".to_owned(), None, vec![]));
            let codes: Vec<String> = (0..children.len()).map(|code| code.to_string()).collect();
            new(name, format!("+ud:{}", codes.join(",")), None, children)
        }
    }
}

/// The format of numbers.
pub(crate) fn format_of(primitive: Primitive) -> &'static str {
    match primitive {
        Primitive::Bool => "b",
        Primitive::Byte | Primitive::Char | Primitive::UInt8 => "C",
        Primitive::Int8 => "c",
        Primitive::Int16 => "s",
        Primitive::UInt16 => "S",
        Primitive::Int32 => "i",
        Primitive::UInt32 => "I",
        Primitive::Int64 => "l",
        Primitive::UInt64 => "L",
        Primitive::Float32 => "f",
        Primitive::Float64 => "g",
    }
}

fn new(
    name: &str,
    format: String,
    own_type: Option<&str>,
    children: Vec<ArrowSchema>,
) -> ArrowSchema {
    let (name, format) = (c_text(name), c_text(&format));
    let metadata = own_type.map(encoded_metadata);
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child)));
    let mut schema = ArrowSchema {
        format: format.as_ptr(),
        name: name.as_ptr(),
        metadata: metadata.as_ref().map_or(ptr::null(), |bytes| bytes.as_ptr().cast()),
        ..ArrowSchema::released()
    };
    let mut owned = Box::new(ExportedSchema {
        _format: format,
        _name: name,
        _metadata: metadata,
        children: children.collect(),
    });
    schema.n_children = owned.children.len() as i64;
    schema.children = owned.children.as_mut_ptr();
    schema.release = Some(release);
    schema.private_data = Box::into_raw(owned).cast();
    schema
}

/// One pair of texts, as the interface encodes metadata.
fn encoded_metadata(own_type: &str) -> Box<[u8]> {
    let mut bytes = 1_i32.to_ne_bytes().to_vec();
    for text in ["femtobarn.type", own_type] {
        bytes.extend((text.len() as i32).to_ne_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes.into()
}

unsafe extern "C" fn release(schema: *mut ArrowSchema) {
    // SAFETY: the interface calls it once, with the type that refers to it; `new` made the type's private data.
    unsafe {
        let owned = Box::from_raw((*schema).private_data.cast::<ExportedSchema>());
        for &child in &owned.children {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&raw mut *child);
            }
        }
        (*schema).release = None;
    }
}

//! The fields that make up a key: where they are in a class, and their values in arrays of objects.
//!
//! Arrays are in their stored form: links have positions of databases, and optional records are lists of at
//! most one item.
//!
//! 1. The path to a field leads through at most one collection, and all fields of a key that are in a
//!    collection are in the same one. Then an object has a key for each item of it; otherwise it has one key.
//! 2. A null link makes no key.

use rntuple::{Array, Primitive, Projection, Reader, values_of};

use super::key::{self, KeyKind};
use crate::error::{Error, Result};
use crate::schema::class::{Class, Field};
use crate::schema::field_type::FieldType;

/// The fields that make up a key, in the key's order.
pub(crate) struct KeyFields {
    pub fields: Vec<KeyField>,
    projection: Projection,
}

/// A field that makes up a part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyField {
    pub path: String,
    pub kind: KeyKind,
    /// The path of the collection that it is in, if any.
    pub collection: Option<String>,
}

impl KeyFields {
    /// Finds the fields in the class of a container and in its RNTuple.
    ///
    /// # Errors
    /// [`Error::NotFound`] if a field does not exist; [`Error::Invalid`] if it cannot be part of a key.
    pub(crate) fn new(class: &Class, reader: &Reader, paths: &[String]) -> Result<Self> {
        let fields = check(class, paths)?;
        let projection = reader.select(paths).map_err(Error::storage(&class.name))?;
        Ok(KeyFields { fields, projection })
    }

    /// Reads the keys of a range of entries.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Storage`] if the stored bytes are damaged or cannot be read.
    pub(crate) fn read(
        &self,
        reader: &Reader,
        entries: std::ops::Range<u64>,
    ) -> Result<ObjectKeys> {
        let objects = reader.read(&self.projection, entries);
        ObjectKeys::new(&self.fields, &objects.map_err(Error::storage("key fields"))?)
    }

    /// A key as text, for error texts.
    pub(crate) fn show(&self, key: &[u8]) -> String {
        let mut rest = key;
        let parts = self.fields.iter().map(|field| {
            let shown = key::show(field.kind, &mut rest).unwrap_or_else(|| "?".to_owned());
            format!("{} {shown}", field.path)
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Finds the fields of a key in a class.
///
/// # Errors
/// [`Error::NotFound`] if a field does not exist; [`Error::Invalid`] if the fields cannot make up a key.
pub(crate) fn check(class: &Class, paths: &[String]) -> Result<Vec<KeyField>> {
    let fields = paths.iter().map(|path| KeyField::new(class, path));
    let fields = fields.collect::<Result<Vec<_>>>()?;
    for (at, field) in fields.iter().enumerate() {
        if fields[..at].iter().any(|other| other.path == field.path) {
            return Err(Error::invalid(format!("field {} is named twice", field.path)));
        }
    }
    let mut collections: Vec<&String> =
        fields.iter().filter_map(|field| field.collection.as_ref()).collect();
    collections.dedup();
    match collections[..] {
        [one, other, ..] => Err(Error::invalid(format!(
            "a key cannot have fields of both {one} and {other}: an object has several items of each"
        ))),
        _ => Ok(fields),
    }
}

impl KeyField {
    /// Finds a field by its path.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it does not exist; [`Error::Invalid`] if it cannot be part of a key.
    pub(crate) fn new(class: &Class, path: &str) -> Result<Self> {
        let mut fields: &[Field] = &class.fields;
        let mut collection: Option<String> = None;
        let mut walked = String::new();
        let mut names = path.split('.').peekable();
        while let Some(name) = names.next() {
            let field = fields.iter().find(|field| field.name == name).ok_or_else(|| {
                Error::NotFound { what: format!("class {} has no field {path}", class.name) }
            })?;
            walked = if walked.is_empty() { name.to_owned() } else { format!("{walked}.{name}") };
            let mut of = field.of.stored();
            while let FieldType::List(item)
            | FieldType::Optional(item)
            | FieldType::Array { of: item, .. } = of
            {
                if collection.replace(walked.clone()).is_some() {
                    return Err(Error::invalid(format!(
                        "{path} is in nested collections and cannot be part of a key"
                    )));
                }
                of = item.stored();
            }
            match (of, names.peek()) {
                (FieldType::Record { fields: members, .. }, Some(_)) => fields = members,
                (_, None) => {
                    let kind = kind_of(of).ok_or_else(|| {
                        Error::invalid(format!(
                            "{path} is not a number, string or link and cannot be part of a key"
                        ))
                    })?;
                    return Ok(KeyField { path: path.to_owned(), kind, collection });
                }
                (_, Some(_)) => break,
            }
        }
        Err(Error::NotFound { what: format!("class {} has no field {path}", class.name) })
    }
}

fn kind_of(of: &FieldType) -> Option<KeyKind> {
    use FieldType::*;
    Some(match of {
        Bool | Byte | Char | Int8 | UInt8 | Int16 | UInt16 | Int32 | UInt32 | Int64 | UInt64 => {
            KeyKind::Integer
        }
        Float16 | Float32 | Truncated { .. } | Quantised { .. } => {
            KeyKind::Number { is_single: true }
        }
        Float64 | Double32 => KeyKind::Number { is_single: false },
        String => KeyKind::Text,
        Link(_) => KeyKind::Link { to_element: false },
        ElementLink(_) => KeyKind::Link { to_element: true },
        List(_) | Array { .. } | Bitset(_) | Optional(_) | Record { .. } | Variant(_) => {
            return None;
        }
        Meaning { of, .. } => return kind_of(of),
    })
}

/// The keys of some objects.
pub(crate) struct ObjectKeys {
    columns: Vec<KeyColumn>,
    /// Where the items of each object start, if there is a key for each item.
    offsets: Option<Vec<i64>>,
    objects: usize,
}

/// The values of one field of a key.
struct KeyColumn {
    parts: Vec<Array>,
    kind: KeyKind,
    of_item: bool,
}

impl ObjectKeys {
    fn new(fields: &[KeyField], objects: &Array) -> Result<Self> {
        let mut offsets = None;
        let mut columns = Vec::with_capacity(fields.len());
        for field in fields {
            let leaf = leaf(objects, &field.path, &mut offsets).ok_or_else(unlike)?;
            let parts = match field.kind {
                KeyKind::Link { .. } => {
                    let members = field.kind.link_members().iter();
                    members.map(|name| leaf.member(name).cloned()).collect::<Option<_>>()
                }
                _ => Some(vec![leaf.clone()]),
            };
            let parts = parts.ok_or_else(unlike)?;
            columns.push(KeyColumn {
                parts,
                kind: field.kind,
                of_item: field.collection.is_some(),
            });
        }
        let keys = ObjectKeys { columns, offsets, objects: objects.len() };
        keys.check()?;
        Ok(keys)
    }

    /// Refuses arrays that are shorter than their offsets claim.
    fn check(&self) -> Result<()> {
        let items = match &self.offsets {
            Some(offsets) => {
                let is_ordered = offsets.is_sorted() && offsets.first().is_none_or(|at| *at >= 0);
                let last = offsets.last().copied().filter(|_| is_ordered);
                usize::try_from(last.ok_or_else(unlike)?).map_err(|_| unlike())?
            }
            None => self.objects,
        };
        let is_whole = |column: &KeyColumn| {
            let needed = if column.of_item { items } else { self.objects };
            column.parts.iter().all(|part| part.len() >= needed)
        };
        if self.columns.iter().all(is_whole) { Ok(()) } else { Err(unlike()) }
    }

    /// Calls `take` with every key, not cut off, and the position of its object.
    ///
    /// # Errors
    /// The errors of `take`; [`Error::Corrupt`] if the arrays do not fit the class.
    pub(crate) fn each(&self, mut take: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let mut out = vec![];
        for object in 0..self.objects {
            let items = match &self.offsets {
                Some(offsets) => offsets[object] as usize..offsets[object + 1] as usize,
                None => object..object + 1,
            };
            for item in items {
                out.clear();
                let mut is_key = true;
                for column in &self.columns {
                    let at = if column.of_item { item } else { object };
                    is_key &= column.put(&mut out, at)?;
                }
                if is_key {
                    take(object, &out)?;
                }
            }
        }
        Ok(())
    }
}

impl KeyColumn {
    /// Appends the encoding of a value; false if it makes no key.
    fn put(&self, out: &mut Vec<u8>, at: usize) -> Result<bool> {
        match (self.kind, &self.parts[..]) {
            (KeyKind::Link { .. }, parts) => {
                for part in parts {
                    key::put_integer(out, integer(part, at).ok_or_else(unlike)?);
                }
                Ok(parts.get(1).and_then(|container| integer(container, at)) != Some(0))
            }
            (KeyKind::Text, [Array::String { offsets, bytes }]) => {
                let offsets = values_of::<i64>(offsets).map_err(Error::storage("key fields"))?;
                let [start, end] = [at, at + 1].map(|at| offsets.get(at).copied().unwrap_or(-1));
                let (start, end) = (usize::try_from(start), usize::try_from(end));
                let range = start.map_err(|_| unlike())?..end.map_err(|_| unlike())?;
                key::put_text(out, bytes.get(range).ok_or_else(unlike)?);
                Ok(true)
            }
            (KeyKind::Integer, [values]) => {
                key::put_integer(out, integer(values, at).ok_or_else(unlike)?);
                Ok(true)
            }
            (KeyKind::Number { .. }, [Array::Primitive { primitive, values }]) => {
                let number = match primitive {
                    Primitive::Float32 => values_of::<f32>(values).ok().map(|of| of[at].into()),
                    Primitive::Float64 => values_of::<f64>(values).ok().map(|of| of[at]),
                    _ => None,
                };
                key::put_number(out, number.ok_or_else(unlike)?);
                Ok(true)
            }
            _ => Err(unlike()),
        }
    }
}

fn integer(array: &Array, at: usize) -> Option<i128> {
    let Array::Primitive { primitive, values } = array else { return None };
    Some(match primitive {
        Primitive::Bool | Primitive::Byte | Primitive::Char | Primitive::UInt8 => {
            (*values.get(at)?).into()
        }
        Primitive::Int8 => (*values.get(at)? as i8).into(),
        Primitive::Int16 => (*values_of::<i16>(values).ok()?.get(at)?).into(),
        Primitive::UInt16 => (*values_of::<u16>(values).ok()?.get(at)?).into(),
        Primitive::Int32 => (*values_of::<i32>(values).ok()?.get(at)?).into(),
        Primitive::UInt32 => (*values_of::<u32>(values).ok()?.get(at)?).into(),
        Primitive::Int64 => (*values_of::<i64>(values).ok()?.get(at)?).into(),
        Primitive::UInt64 => (*values_of::<u64>(values).ok()?.get(at)?).into(),
        Primitive::Float32 | Primitive::Float64 => return None,
    })
}

/// The values at the end of a path. Sets `offsets` if the path leads through a collection.
fn leaf<'a>(objects: &'a Array, path: &str, offsets: &mut Option<Vec<i64>>) -> Option<&'a Array> {
    let mut array = objects;
    let mut names = path.split('.');
    loop {
        match array {
            Array::List { offsets: of_list, content, .. } => {
                *offsets = Some(values_of::<i64>(of_list).ok()?.to_vec());
                array = content;
            }
            Array::Fixed { size, length, content } => {
                let size = i64::try_from(*size).ok()?;
                let ends = (0..=i64::try_from(*length).ok()?).map(|at| at.checked_mul(size));
                *offsets = Some(ends.collect::<Option<_>>()?);
                array = content;
            }
            Array::Record { .. } => match names.next() {
                Some(name) => array = array.member(name)?,
                None => return Some(array),
            },
            _ => return names.next().is_none().then_some(array),
        }
    }
}

fn unlike() -> Error {
    Error::Corrupt {
        what: "stored key fields do not fit their class; check the database".to_owned(),
    }
}

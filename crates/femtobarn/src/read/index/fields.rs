//! The fields that make a key: what they are in a class, and their values in arrays of objects.
//!
//! Arrays are taken as they are stored, so links have positions of databases, and optional records are
//! lists of at most one.
//!
//! Invariants:
//! 1. At most one collection lies on the way to a field, and all fields of a key that lie in one lie in
//!    the same. An object has a key for each item of it; else it has one.
//! 2. A null link is no key.

use rntuple::{Array, Primitive, Projection, Reader, values_of};

use super::key::{self, Kind};
use crate::error::{Error, Result};
use crate::schema::class::{Class, Field, FieldType};

/// The fields that make a key, in its order.
pub(crate) struct KeyFields {
    pub fields: Vec<KeyField>,
    projection: Projection,
}

/// A field that makes a part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyField {
    pub path: String,
    pub kind: Kind,
    /// The collection that it lies in, if any.
    pub collection: Option<String>,
}

impl KeyFields {
    /// Finds the fields in the class of a container and in what is stored of it.
    ///
    /// # Errors
    /// `NotFound` if there is no such field, `Invalid` if it cannot make a key.
    pub fn new(class: &Class, reader: &Reader, paths: &[String]) -> Result<Self> {
        let fields = check(class, paths)?;
        let projection = reader.select(paths).map_err(Error::storage(&class.name))?;
        Ok(KeyFields { fields, projection })
    }

    /// Reads what makes the keys of a range of entries.
    ///
    /// # Errors
    /// `Corrupt` if what is stored is damaged.
    pub fn read(&self, reader: &Reader, entries: std::ops::Range<u64>) -> Result<Keys> {
        let objects = reader.read(&self.projection, entries);
        Keys::new(&self.fields, &objects.map_err(Error::storage("key fields"))?)
    }

    /// A key in words, for messages.
    pub fn show(&self, key: &[u8]) -> String {
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
/// `NotFound` if there is no such field, `Invalid` if they cannot make a key.
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
            "fields in {one} and in {other} make no key: their items are not each other's"
        ))),
        _ => Ok(fields),
    }
}

impl KeyField {
    /// Finds a field.
    ///
    /// # Errors
    /// `NotFound` if there is no such field, `Invalid` if it cannot make a key.
    pub fn new(class: &Class, path: &str) -> Result<Self> {
        let mut fields: &[Field] = &class.fields;
        let mut collection: Option<String> = None;
        let mut walked = String::new();
        let mut names = path.split('.').peekable();
        while let Some(name) = names.next() {
            let field = fields.iter().find(|field| field.name == name).ok_or_else(|| {
                Error::NotFound { what: format!("class {} has no field {path}", class.name) }
            })?;
            walked = if walked.is_empty() { name.to_owned() } else { format!("{walked}.{name}") };
            let mut of = &field.of;
            while let FieldType::List(item)
            | FieldType::Optional(item)
            | FieldType::Array { of: item, .. } = of
            {
                if collection.replace(walked.clone()).is_some() {
                    return Err(Error::invalid(format!(
                        "{path} lies in collections of collections, which make no key"
                    )));
                }
                of = item;
            }
            match (of, names.peek()) {
                (FieldType::Record { fields: members, .. }, Some(_)) => fields = members,
                (_, None) => {
                    let kind = kind_of(of).ok_or_else(|| {
                        Error::invalid(format!(
                            "{path} is not a number, text or link, and cannot be a key"
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

fn kind_of(of: &FieldType) -> Option<Kind> {
    use FieldType::*;
    Some(match of {
        Bool | Byte | Char | Int8 | UInt8 | Int16 | UInt16 | Int32 | UInt32 | Int64 | UInt64 => {
            Kind::Integer
        }
        Float16 | Float32 | Truncated { .. } | Quantised { .. } => Kind::Number { is_single: true },
        Float64 | Double32 => Kind::Number { is_single: false },
        String => Kind::Text,
        Link(_) => Kind::Link { to_element: false },
        ElementLink(_) => Kind::Link { to_element: true },
        List(_) | Array { .. } | Bitset(_) | Optional(_) | Record { .. } | Variant(_) => {
            return None;
        }
    })
}

/// What makes the keys of some objects.
pub(crate) struct Keys {
    columns: Vec<Column>,
    /// Offsets of the items of each object, if there is a key for each item.
    offsets: Option<Vec<i64>>,
    objects: usize,
}

/// The values of one field.
struct Column {
    parts: Vec<Array>,
    kind: Kind,
    of_item: bool,
}

impl Keys {
    fn new(fields: &[KeyField], objects: &Array) -> Result<Self> {
        let mut offsets = None;
        let mut columns = Vec::with_capacity(fields.len());
        for field in fields {
            let leaf = leaf(objects, &field.path, &mut offsets).ok_or_else(unlike)?;
            let parts = match field.kind {
                Kind::Link { .. } => {
                    let members = field.kind.link_members().iter();
                    members.map(|name| leaf.member(name).cloned()).collect::<Option<_>>()
                }
                _ => Some(vec![leaf.clone()]),
            };
            let parts = parts.ok_or_else(unlike)?;
            columns.push(Column { parts, kind: field.kind, of_item: field.collection.is_some() });
        }
        let keys = Keys { columns, offsets, objects: objects.len() };
        keys.check()?;
        Ok(keys)
    }

    /// Refuses arrays that are shorter than their offsets say.
    fn check(&self) -> Result<()> {
        let items = match &self.offsets {
            Some(offsets) => {
                let is_ordered = offsets.is_sorted() && offsets.first().is_none_or(|at| *at >= 0);
                let last = offsets.last().copied().filter(|_| is_ordered);
                usize::try_from(last.ok_or_else(unlike)?).map_err(|_| unlike())?
            }
            None => self.objects,
        };
        let is_whole = |column: &Column| {
            let needed = if column.of_item { items } else { self.objects };
            column.parts.iter().all(|part| part.len() >= needed)
        };
        match self.columns.iter().all(is_whole) {
            true => Ok(()),
            false => Err(unlike()),
        }
    }

    /// Gives every key with the position of its object, not cut off, to `take`.
    ///
    /// # Errors
    /// As `take`; `Corrupt` if the arrays are not of the class.
    pub fn each(&self, mut take: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
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

impl Column {
    /// Appends the part of the key that a value makes; says whether it makes one.
    fn put(&self, out: &mut Vec<u8>, at: usize) -> Result<bool> {
        match (self.kind, &self.parts[..]) {
            (Kind::Link { .. }, parts) => {
                for part in parts {
                    key::put_integer(out, integer(part, at).ok_or_else(unlike)?);
                }
                Ok(parts.get(1).and_then(|container| integer(container, at)) != Some(0))
            }
            (Kind::Text, [Array::String { offsets, bytes }]) => {
                let offsets = values_of::<i64>(offsets).map_err(Error::storage("key fields"))?;
                let [start, end] = [at, at + 1].map(|at| offsets.get(at).copied().unwrap_or(-1));
                let (start, end) = (usize::try_from(start), usize::try_from(end));
                let range = start.map_err(|_| unlike())?..end.map_err(|_| unlike())?;
                key::put_text(out, bytes.get(range).ok_or_else(unlike)?);
                Ok(true)
            }
            (Kind::Integer, [values]) => {
                key::put_integer(out, integer(values, at).ok_or_else(unlike)?);
                Ok(true)
            }
            (Kind::Number { .. }, [Array::Primitive { primitive, values }]) => {
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

/// The values at the end of a path, and on the way the offsets of the items of each object.
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
    Error::Corrupt { what: "what is stored of key fields is not of their class".to_owned() }
}

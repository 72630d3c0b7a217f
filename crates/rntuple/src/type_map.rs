//! The mapping of logical types to fields and columns, as ROOT lays them out.
//!
//! Records without a class name, and collections of them, become untyped fields, which ROOT reads
//! without a dictionary. Collections get columns of 64-bit offsets, like ROOT's: coffea 2026.9 knows no
//! others and reads 32-bit offsets as pairs of numbers. An RNTuple whose header has 32-bit offsets
//! keeps them.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Mapping of C++ Types to Fields and Columns".

use crate::column::ColumnType;
use crate::error::{Error, Result};
use crate::schema::{Column, Field, FieldId, Schema, Structure};
use crate::types::{Precision, Primitive, Type};

/// The family of column types that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Values as in memory: fastest, and parts of a page can be read.
    Plain,
    /// Values split into byte planes, which compresses better.
    Split,
}

impl Schema {
    /// The schema of an RNTuple with these top-level fields.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that RNTuple does not allow or a type that cannot be stored.
    pub fn new(members: &[(String, Type)], encoding: Encoding) -> Result<Self> {
        let mut builder = Builder { schema: Schema::default(), encoding };
        builder.add_members(members, None)?;
        Ok(builder.schema)
    }
}

/// Adds fields one by one, parents before their subfields.
struct Builder {
    schema: Schema,
    encoding: Encoding,
}

impl Builder {
    fn add_members(&mut self, members: &[(String, Type)], parent: Option<FieldId>) -> Result<()> {
        for (position, (name, member)) in members.iter().enumerate() {
            check_name("field", name)?;
            if members[..position].iter().any(|(other, _)| other == name) {
                return Err(Error::invalid(format!("field name {name:?} is used twice")));
            }
            self.add(name, member, parent)?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, of: &Type, parent: Option<FieldId>) -> Result<()> {
        let id = self.add_field(name, of, parent)?;
        match of {
            Type::Primitive(primitive) => self.add_primitive(id, *primitive),
            Type::Reduced(primitive, precision) => self.add_reduced(id, *primitive, *precision)?,
            Type::String => {
                self.add_offsets(id);
                self.add_column(id, ColumnType::Char, 8, None);
            }
            Type::Bitset { .. } => self.add_column(id, ColumnType::Bit, 1, None),
            Type::List(item) | Type::Optional(item) => {
                self.add_offsets(id);
                self.add("_0", item, Some(id))?;
            }
            Type::Array { item, .. } => self.add("_0", item, Some(id))?,
            Type::Record { members, .. } => self.add_members(members, Some(id))?,
            Type::Variant(alternatives) => {
                self.add_column(id, ColumnType::Switch, 96, None);
                for (position, alternative) in alternatives.iter().enumerate() {
                    self.add(&format!("_{position}"), alternative, Some(id))?;
                }
            }
            Type::Cardinality(_) => {
                return Err(Error::invalid(format!(
                    "field {name:?} is a cardinality, which is a projection and cannot be written"
                )));
            }
        }
        Ok(())
    }

    fn add_field(&mut self, name: &str, of: &Type, parent: Option<FieldId>) -> Result<FieldId> {
        let id = self.schema.fields.len() as FieldId;
        let type_name = type_name(of).map(stored_name);
        if let (None, Some(reason)) = (&type_name, must_be_typed(&self.schema, parent)) {
            return Err(Error::invalid(format!(
                "field {name:?} has a record without a class name, {reason}"
            )));
        }
        let (structure, repetition) = match of {
            Type::List(_) | Type::Optional(_) => (Structure::Collection, None),
            Type::Record { .. } => (Structure::Record, None),
            Type::Variant(alternatives) => {
                check_alternatives(alternatives)?;
                (Structure::Variant, None)
            }
            Type::Array { size, .. } | Type::Bitset { size } => {
                if *size == 0 {
                    return Err(Error::invalid(format!("array {name:?} has no items")));
                }
                (Structure::Leaf, Some(*size))
            }
            _ => (Structure::Leaf, None),
        };
        let type_alias = match of {
            Type::Reduced(Primitive::Float64, Precision::Single) => "Double32_t".to_owned(),
            _ => String::new(),
        };
        self.schema.fields.push(Field {
            version: 0,
            type_version: 0,
            parent: parent.unwrap_or(id),
            structure,
            name: name.to_owned(),
            type_name: type_name.unwrap_or_default(),
            type_alias,
            description: String::new(),
            repetition,
            source: None,
            type_checksum: None,
        });
        Ok(id)
    }

    fn add_column(&mut self, id: FieldId, of: ColumnType, bits: u16, range: Option<(f64, f64)>) {
        self.schema.columns.push(Column {
            column_type: of,
            bits,
            field: id,
            representation: 0,
            first_element: None,
            range,
        });
    }

    fn add_offsets(&mut self, id: FieldId) {
        self.add_column(id, self.encoded(ColumnType::Index64), 64, None);
    }

    fn add_primitive(&mut self, id: FieldId, primitive: Primitive) {
        let column_type = self.encoded(column_type(primitive));
        let bits = if primitive == Primitive::Bool { 1 } else { 8 * primitive.size() as u16 };
        self.add_column(id, column_type, bits, None);
    }

    fn encoded(&self, plain: ColumnType) -> ColumnType {
        match self.encoding {
            Encoding::Plain => plain,
            Encoding::Split => plain.split(),
        }
    }

    fn add_reduced(&mut self, id: FieldId, of: Primitive, precision: Precision) -> Result<()> {
        if !matches!(of, Primitive::Float32 | Primitive::Float64) {
            return Err(Error::invalid(format!("{} has no reduced precision", of.cpp_name())));
        }
        match precision {
            Precision::Half => self.add_column(id, ColumnType::Real16, 16, None),
            Precision::Single => self.add_column(id, self.encoded(ColumnType::Real32), 32, None),
            Precision::Truncated { bits: bits @ 10..=31 } => {
                self.add_column(id, ColumnType::Real32Trunc, bits, None);
            }
            Precision::Truncated { bits } => {
                return Err(Error::invalid(format!(
                    "cannot truncate to {bits} bits: take 10 to 31 bits"
                )));
            }
            Precision::Quantised { bits: bits @ 1..=32, min, max }
                if min < max && min.is_finite() && max.is_finite() =>
            {
                self.add_column(id, ColumnType::Real32Quant, bits, Some((min, max)));
            }
            Precision::Quantised { bits, min, max } => {
                return Err(Error::invalid(format!(
                    "cannot quantise to {bits} bits between {min} and {max}: \
                     take 1 to 32 bits and a range with min < max"
                )));
            }
        }
        Ok(())
    }
}

/// The column type that ROOT gives a primitive by default, without its encoding.
fn column_type(primitive: Primitive) -> ColumnType {
    match primitive {
        Primitive::Bool => ColumnType::Bit,
        Primitive::Byte => ColumnType::Byte,
        Primitive::Char => ColumnType::Char,
        Primitive::Int8 => ColumnType::Int8,
        Primitive::UInt8 => ColumnType::UInt8,
        Primitive::Int16 => ColumnType::Int16,
        Primitive::UInt16 => ColumnType::UInt16,
        Primitive::Int32 => ColumnType::Int32,
        Primitive::UInt32 => ColumnType::UInt32,
        Primitive::Int64 => ColumnType::Int64,
        Primitive::UInt64 => ColumnType::UInt64,
        Primitive::Float32 => ColumnType::Real32,
        Primitive::Float64 => ColumnType::Real64,
    }
}

/// How the class of the items of a map begins in a [`Type`].
const MAP_ITEM: &str = "std::pair<const ";

/// The name of a type on disk, where the items of maps are plain pairs.
fn stored_name(name: String) -> String {
    match name.strip_prefix(MAP_ITEM) {
        Some(key_and_value) => format!("std::pair<{key_and_value}"),
        None => name,
    }
}

/// The class of the items of a collection with this name, whose class on disk is `stored`; see [`stored_name`].
pub(crate) fn item_class(collection: &str, stored: &str) -> String {
    match stored.strip_prefix("std::pair<") {
        Some(key_and_value) if collection.starts_with("std::map<") => {
            format!("{MAP_ITEM}{key_and_value}")
        }
        _ => stored.to_owned(),
    }
}

/// The normalised C++ name of a type; `None` for untyped records and types that contain them.
pub fn type_name(of: &Type) -> Option<String> {
    match of {
        Type::Primitive(primitive) | Type::Reduced(primitive, _) => {
            Some(primitive.cpp_name().to_owned())
        }
        Type::String => Some("std::string".to_owned()),
        Type::List(item) => {
            let item = type_name(item)?;
            Some(match item.strip_prefix(MAP_ITEM) {
                Some(key_and_value) => format!("std::map<{key_and_value}"),
                None => format!("std::vector<{item}>"),
            })
        }
        Type::Array { item, size } => Some(format!("std::array<{},{size}>", type_name(item)?)),
        Type::Bitset { size } => Some(format!("std::bitset<{size}>")),
        Type::Optional(item) => Some(format!("std::optional<{}>", type_name(item)?)),
        Type::Record { class, .. } => (!class.is_empty()).then(|| class.clone()),
        Type::Variant(alternatives) => {
            let names: Option<Vec<_>> = alternatives.iter().map(type_name).collect();
            Some(format!("std::variant<{}>", names?.join(",")))
        }
        Type::Cardinality(size) => Some(format!("ROOT::RNTupleCardinality<{}>", size.cpp_name())),
    }
}

/// The reason if a subfield of `parent` needs a type name. Specification, "Untyped collections and
/// records".
fn must_be_typed(schema: &Schema, parent: Option<FieldId>) -> Option<&'static str> {
    let parent = &schema.fields[parent? as usize];
    (!parent.type_name.is_empty() || parent.structure == Structure::Leaf)
        .then_some("which is allowed only in lists and records without a class name")
}

/// Checks the name of a field or an RNTuple. Specification, "Naming specification".
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let forbidden = |c: char| c.is_control() || matches!(c, '.' | ' ' | '\\' | '/');
    match name.chars().find(|c| forbidden(*c)) {
        Some(c) => Err(Error::invalid(format!("{what} name {name:?} contains {c:?}"))),
        None if name.is_empty() => Err(Error::invalid(format!("a {what} name is empty"))),
        None => Ok(()),
    }
}

fn check_alternatives(alternatives: &[Type]) -> Result<()> {
    match alternatives.len() {
        1..=125 => Ok(()),
        count => Err(Error::invalid(format!("a variant has 1 to 125 alternatives, not {count}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::FieldTree;

    #[test]
    fn maps_have_their_names_on_disk_and_are_read_as_they_were_declared() {
        let pair = |class: &str| Type::Record {
            class: class.to_owned(),
            members: vec![
                ("_0".to_owned(), Type::String),
                ("_1".to_owned(), Type::Primitive(Primitive::Float32)),
            ],
        };
        let list = |item: Type| Type::List(Box::new(item));
        let members = vec![
            ("map".to_owned(), list(pair("std::pair<const std::string,float>"))),
            ("maps".to_owned(), list(list(pair("std::pair<const std::string,float>")))),
            ("pairs".to_owned(), list(pair("std::pair<std::string,float>"))),
            ("untyped".to_owned(), list(pair(""))),
        ];
        let schema = Schema::new(&members, Encoding::Split).expect("a schema");
        let names = |wanted: &[&str]| {
            let found = schema.fields.iter().filter(|field| !field.name.starts_with('_'));
            assert_eq!(found.map(|field| field.type_name.as_str()).collect::<Vec<_>>(), wanted);
        };
        let map = "std::map<std::string,float>";
        let maps = format!("std::vector<{map}>");
        names(&[map, &maps, "std::vector<std::pair<std::string,float>>", ""]);
        let is_pair = |field: &&Field| field.structure == Structure::Record;
        let pairs: Vec<_> = schema.fields.iter().filter(is_pair).map(|it| &*it.type_name).collect();
        let stored = "std::pair<std::string,float>";
        assert_eq!(pairs, [stored, stored, stored, ""]);
        let read: Vec<_> = FieldTree::of(&schema)
            .expect("a tree")
            .nodes
            .iter()
            .map(|node| (node.name.clone(), node.logical_type()))
            .collect();
        assert_eq!(read, members);
    }
}

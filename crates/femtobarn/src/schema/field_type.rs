//! The types of fields, as users declare them and as RNTuples store them.
//!
//! A link is stored as a record of plain numbers, and an optional record as a list of at most one item, because
//! ROOT reads these without a dictionary. It knows maps and tuples by their C++ names.

use rntuple::{Precision, Primitive, Type};
use serde::{Deserialize, Serialize};

use crate::schema::class::{Field, fields_of, inherited};

/// The type of a field's values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum FieldType {
    Bool,
    Byte,
    Char,
    Int8,
    #[serde(rename = "uint8")]
    UInt8,
    Int16,
    #[serde(rename = "uint16")]
    UInt16,
    Int32,
    #[serde(rename = "uint32")]
    UInt32,
    Int64,
    #[serde(rename = "uint64")]
    UInt64,
    /// Single precision in memory, half precision on disk.
    Float16,
    Float32,
    Float64,
    /// Double precision in memory, single precision on disk (ROOT's `Double32_t`).
    #[serde(rename = "double32")]
    Double32,
    /// Single precision in memory, the uppermost bits of it on disk.
    Truncated {
        /// 10 to 31.
        bits: u16,
    },
    /// Single precision in memory, on disk an integer that divides the range evenly.
    Quantised {
        /// 1 to 32.
        bits: u16,
        min: f64,
        max: f64,
    },
    String,
    /// Any number of items.
    List(Box<FieldType>),
    /// A fixed number of items.
    Array {
        of: Box<FieldType>,
        size: u64,
    },
    /// A fixed number of truth values, one bit each on disk.
    Bitset(u64),
    /// A value that may be missing.
    Optional(Box<FieldType>),
    /// Named members.
    Record {
        /// The name of the record's class; empty if it has none.
        #[serde(default)]
        class: String,
        #[serde(deserialize_with = "inherited")]
        fields: Vec<Field>,
    },
    /// A value of one of several types.
    Variant(Vec<FieldType>),
    /// A reference to an object of a class.
    Link(String),
    /// A reference to an element of a collection in an object of a class.
    ElementLink(String),
    /// Values that stand for something else in Python, such as times; the engine handles them as stored.
    Meaning {
        of: Box<FieldType>,
        /// Their meaning, a word that `docs/format.md` lists.
        is: String,
        /// Of an enumeration, its name.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        name: String,
        /// Of an enumeration, the names of its values.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        members: Vec<(String, serde_json::Value)>,
    },
}

/// The class of the items of dictionaries: records of `_0`, the key, and `_1`, the value.
pub const MAP_ITEM: &str = "std::map::value_type";

/// The class of tuples: records of `_0`, `_1` and so on.
pub const TUPLE: &str = "std::tuple";

impl FieldType {
    /// The type in which values are stored.
    pub(crate) fn storage_type(&self) -> Type {
        let number = Type::Primitive;
        let reduced = |precision| Type::Reduced(Primitive::Float32, precision);
        match self {
            FieldType::Bool => number(Primitive::Bool),
            FieldType::Byte => number(Primitive::Byte),
            FieldType::Char => number(Primitive::Char),
            FieldType::Int8 => number(Primitive::Int8),
            FieldType::UInt8 => number(Primitive::UInt8),
            FieldType::Int16 => number(Primitive::Int16),
            FieldType::UInt16 => number(Primitive::UInt16),
            FieldType::Int32 => number(Primitive::Int32),
            FieldType::UInt32 => number(Primitive::UInt32),
            FieldType::Int64 => number(Primitive::Int64),
            FieldType::UInt64 => number(Primitive::UInt64),
            FieldType::Float32 => number(Primitive::Float32),
            FieldType::Float64 => number(Primitive::Float64),
            FieldType::Float16 => reduced(Precision::Half),
            FieldType::Double32 => Type::Reduced(Primitive::Float64, Precision::Single),
            FieldType::Truncated { bits } => reduced(Precision::Truncated { bits: *bits }),
            FieldType::Quantised { bits, min, max } => {
                reduced(Precision::Quantised { bits: *bits, min: *min, max: *max })
            }
            FieldType::String => Type::String,
            FieldType::List(item) => Type::List(item.storage_type().into()),
            FieldType::Array { of, size } => {
                Type::Array { item: of.storage_type().into(), size: *size }
            }
            FieldType::Bitset(size) => Type::Bitset { size: *size },
            FieldType::Optional(item) if item.is_untyped() => {
                Type::List(item.storage_type().into())
            }
            FieldType::Optional(item) => Type::Optional(item.storage_type().into()),
            FieldType::Record { class, fields } => {
                let members: Vec<_> = fields.iter().map(Field::member).collect();
                Type::Record { class: standard_class(class, &members), members }
            }
            FieldType::Variant(alternatives) => {
                Type::Variant(alternatives.iter().map(FieldType::storage_type).collect())
            }
            FieldType::Meaning { of, .. } => of.storage_type(),
            FieldType::Link(_) => record(link_members()),
            FieldType::ElementLink(_) => {
                let mut members = link_members();
                members.push(("element".to_owned(), number(Primitive::UInt32)));
                record(members)
            }
        }
    }

    /// The type of values in Rust rows: the stored type, but links differ from records of numbers, and optional
    /// values from lists.
    pub(crate) fn row_type(&self) -> Type {
        match (self, self.storage_type()) {
            (FieldType::List(item), _) => Type::List(item.row_type().into()),
            (FieldType::Array { of, size }, _) => {
                Type::Array { item: of.row_type().into(), size: *size }
            }
            (FieldType::Optional(item), _) => Type::Optional(item.row_type().into()),
            (FieldType::Record { fields, .. }, _) => record(row_members(fields)),
            (FieldType::Meaning { of, .. }, _) => of.row_type(),
            (FieldType::Link(_) | FieldType::ElementLink(_), Type::Record { members, .. }) => {
                Type::Record { class: LINK_CLASS.to_owned(), members }
            }
            (_, stored) => stored,
        }
    }

    /// The type in which values are stored for readers that know the class of each record, by its name, as one of C++.
    pub(crate) fn typed(&self) -> Type {
        match (self, self.storage_type()) {
            (FieldType::List(item), _) => Type::List(item.typed().into()),
            (FieldType::Array { of, size }, _) => {
                Type::Array { item: of.typed().into(), size: *size }
            }
            (FieldType::Meaning { of, .. }, _) => of.typed(),
            (FieldType::Record { class: own, fields }, Type::Record { class, .. }) => {
                Type::Record {
                    class: if class.is_empty() { own.clone() } else { class },
                    members: typed_members(fields),
                }
            }
            (_, stored) => stored,
        }
    }

    /// The type of the innermost items of nested collections; the type itself if it is not a collection.
    pub(crate) fn item(&self) -> &FieldType {
        match self {
            FieldType::List(of) | FieldType::Optional(of) | FieldType::Array { of, .. } => {
                of.item()
            }
            FieldType::Meaning { of, .. } => of.item(),
            other => other,
        }
    }

    /// The type by which values are stored: the type itself if they have no other meaning.
    pub(crate) fn stored(&self) -> &FieldType {
        match self {
            FieldType::Meaning { of, .. } => of.stored(),
            other => other,
        }
    }

    /// Whether values of this type may become those of `to` as they are stored: one of the two has no meaning, or
    /// both have the same, and an enumeration has further members.
    pub(crate) fn may_mean(&self, to: &FieldType) -> bool {
        let FieldType::Meaning { is, members: ours, .. } = self else { return true };
        let FieldType::Meaning { is: other, members: theirs, .. } = to else { return true };
        let has_all = |all: &[_], of: &[_]| of.iter().all(|member| all.contains(member));
        is == other && (has_all(ours, theirs) || has_all(theirs, ours))
    }

    /// Whether values, or the items of collections, have a meaning.
    pub fn has_meaning(&self) -> bool {
        match self {
            FieldType::Meaning { .. } => true,
            FieldType::List(of) | FieldType::Optional(of) | FieldType::Array { of, .. } => {
                of.has_meaning()
            }
            _ => false,
        }
    }

    /// Whether ROOT has no name for the type.
    fn is_untyped(&self) -> bool {
        match self {
            FieldType::Record { .. } | FieldType::Link(_) | FieldType::ElementLink(_) => true,
            FieldType::List(item) | FieldType::Optional(item) => item.is_untyped(),
            FieldType::Array { of, .. } | FieldType::Meaning { of, .. } => of.is_untyped(),
            _ => false,
        }
    }

    /// Whether values have links or optional records in them, which are stored as something else.
    pub(crate) fn needs_translation(&self) -> bool {
        match self {
            FieldType::Link(_) | FieldType::ElementLink(_) => true,
            FieldType::Optional(item) => item.is_untyped() || item.needs_translation(),
            FieldType::List(item) => item.needs_translation(),
            FieldType::Array { of, .. } | FieldType::Meaning { of, .. } => of.needs_translation(),
            FieldType::Record { fields, .. } => {
                fields.iter().any(|field| field.of.needs_translation())
            }
            FieldType::Variant(alternatives) => {
                alternatives.iter().any(FieldType::needs_translation)
            }
            _ => false,
        }
    }

    pub(super) fn of_type(of: &Type) -> Self {
        match of {
            Type::Primitive(primitive) | Type::Cardinality(primitive) => number(*primitive),
            Type::Reduced(_, Precision::Half) => FieldType::Float16,
            Type::Reduced(_, Precision::Single) => FieldType::Double32,
            Type::Reduced(_, Precision::Truncated { bits }) => FieldType::Truncated { bits: *bits },
            Type::Reduced(_, Precision::Quantised { bits, min, max }) => {
                FieldType::Quantised { bits: *bits, min: *min, max: *max }
            }
            Type::String => FieldType::String,
            Type::List(item) => FieldType::List(Self::of_type(item).into()),
            Type::Array { item, size } => {
                FieldType::Array { of: Self::of_type(item).into(), size: *size }
            }
            Type::Bitset { size } => FieldType::Bitset(*size),
            Type::Optional(item) => FieldType::Optional(Self::of_type(item).into()),
            Type::Record { class, members } => FieldType::Record {
                class: class.replacen("std::pair<const ", "std::pair<", 1),
                fields: fields_of(members),
            },
            Type::Variant(alternatives) => {
                FieldType::Variant(alternatives.iter().map(Self::of_type).collect())
            }
        }
    }
}

fn number(primitive: Primitive) -> FieldType {
    match primitive {
        Primitive::Bool => FieldType::Bool,
        Primitive::Byte => FieldType::Byte,
        Primitive::Char => FieldType::Char,
        Primitive::Int8 => FieldType::Int8,
        Primitive::UInt8 => FieldType::UInt8,
        Primitive::Int16 => FieldType::Int16,
        Primitive::UInt16 => FieldType::UInt16,
        Primitive::Int32 => FieldType::Int32,
        Primitive::UInt32 => FieldType::UInt32,
        Primitive::Int64 => FieldType::Int64,
        Primitive::UInt64 => FieldType::UInt64,
        Primitive::Float32 => FieldType::Float32,
        Primitive::Float64 => FieldType::Float64,
    }
}

/// The C++ class of a record that is stored with one: an item of a map or a tuple, if ROOT has names for the types
/// of its members.
fn standard_class(class: &str, members: &[(String, Type)]) -> String {
    let names = || {
        let names: Option<Vec<String>> =
            members.iter().map(|(_, of)| rntuple::type_name(of)).collect();
        names.map(|names| names.join(","))
    };
    match class {
        MAP_ITEM => names().map(|names| format!("std::pair<const {names}>")),
        TUPLE => names().map(|names| format!("std::tuple<{names}>")),
        _ => None,
    }
    .unwrap_or_default()
}

/// The members of rows with these fields.
pub(super) fn row_members(fields: &[Field]) -> Vec<(String, Type)> {
    fields.iter().map(|field| (field.name.clone(), field.of.row_type())).collect()
}

/// The members of records with these fields; see [`FieldType::typed`].
pub(super) fn typed_members(fields: &[Field]) -> Vec<(String, Type)> {
    fields.iter().map(|field| (field.name.clone(), field.of.typed())).collect()
}

/// The class name that distinguishes a link from a record of numbers in the type of a row. It is never stored.
pub(crate) const LINK_CLASS: &str = "femtobarn::Link";

pub(super) fn record(members: Vec<(String, Type)>) -> Type {
    Type::Record { class: String::new(), members }
}

/// The members of a stored link. `database` is a position in the container's list of the databases
/// that it links to, 0 being its own; container 0 means that the link is null.
fn link_members() -> Vec<(String, Type)> {
    let member = |name: &str, of| (name.to_owned(), Type::Primitive(of));
    vec![
        member("database", Primitive::UInt32),
        member("container", Primitive::UInt32),
        member("entry", Primitive::UInt64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::class::Class;

    #[test]
    fn typed_members_have_the_classes_of_records_as_their_types() {
        let class = Class::from_json(
            r#"{"name": "Event", "version": 1, "fields": [
                {"name": "ids", "type": {"list": {"record": {"class": "podio::ObjectID", "fields": [
                    {"name": "index", "type": {"meaning": {"of": "int32", "is": "element", "name": "Hits"}}}]}}}},
                {"name": "pairs", "type": {"list": {"record": {"class": "std::tuple", "fields": [
                    {"name": "_0", "type": "string"}, {"name": "_1", "type": "uint16"}]}}}},
                {"name": "numbers", "type": {"list": "float32"}}]}"#,
        );
        let class = class.expect("a class");
        let names = |members: Vec<(String, Type)>| -> Vec<_> {
            members.iter().map(|(_, of)| rntuple::type_name(of).unwrap_or_default()).collect()
        };
        let pairs = "std::vector<std::tuple<std::string,std::uint16_t>>";
        let typed = ["std::vector<podio::ObjectID>", pairs, "std::vector<float>"];
        assert_eq!(names(class.typed_members()), typed);
        assert_eq!(names(class.members()), ["", pairs, "std::vector<float>"]);
    }
}

//! Classes: the fields of the objects of a container.
//!
//! A class is declared in Python or Rust, stored as JSON in the catalogue, and laid out as the fields of an
//! RNTuple. There, a link is a record of plain numbers, and an optional record is a list of at most one item,
//! because ROOT reads these without a dictionary.

use femtobarn_catalog::ClassRow;
use rntuple::{
    InheritedMember, PREFIX_BYTES_MAX, Precision, Primitive, Type, is_base_class, with_unique_names,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Error, Result};

/// A named, versioned list of fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Its name, unique in the federation.
    pub name: String,
    /// Its version, from 1.
    pub version: u32,
    /// Its fields in order.
    pub fields: Vec<Field>,
}

/// A field of a class or of a record within one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Its name, unique among its siblings.
    pub name: String,
    /// The type of its values.
    #[serde(rename = "type")]
    pub of: FieldType,
    /// What it means, with its unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its name in the version before, if it was renamed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub was: String,
    /// The value in objects that were stored before the field was added; without it, zero or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<serde_json::Value>,
}

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
    /// A value or nothing.
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
}

impl Class {
    /// A class from its JSON definition.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the definition is not valid.
    pub fn from_json(definition: &str) -> Result<Self> {
        serde_json::from_str(definition)
            .map_err(|error| Error::invalid(format!("class definition: {error}")))
    }

    /// The JSON definition, as the catalogue stores it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a class has only names and numbers")
    }

    /// The class as the catalogue lists it.
    pub(crate) fn row(&self) -> ClassRow {
        ClassRow { name: self.name.clone(), version: self.version, definition: self.to_json() }
    }

    /// The class of an RNTuple that Femtobarn did not write.
    pub(crate) fn of_members(name: &str, members: &[(String, Type)]) -> Self {
        Class { name: name.to_owned(), version: 1, fields: fields_of(members) }
    }

    /// The top-level fields of the RNTuple that holds objects of this class.
    pub(crate) fn members(&self) -> Vec<(String, Type)> {
        self.fields.iter().map(Field::member).collect()
    }

    /// The type of the field with a path such as `tracks.pt`, which leads through collections.
    pub(crate) fn field_type(&self, path: &str) -> Option<&FieldType> {
        let mut names = path.split('.');
        let named = |fields: &'_ [Field], name: &str| fields.iter().position(|f| f.name == name);
        let first = names.next()?;
        let mut found = &self.fields[named(&self.fields, first)?].of;
        for name in names {
            let FieldType::Record { fields, .. } = found.item() else { return None };
            found = &fields[named(fields, name)?].of;
        }
        Some(found)
    }

    /// The type of Rust rows of this class.
    pub(crate) fn row_type(&self) -> Type {
        record(row_members(&self.fields))
    }

    /// Checks that objects of the class can be stored. The class of a foreign file need not pass: its objects
    /// are stored already.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the field and the reason.
    pub fn check(&self) -> Result<()> {
        if self.version == 0 {
            return Err(Error::invalid(format!("class {}: versions count from 1", self.name)));
        }
        if self.fields.is_empty() {
            return Err(Error::invalid(format!("class {} has no fields", self.name)));
        }
        if self.fields.iter().any(|field| field.name == rntuple::DELETED_FIELD) {
            return Err(Error::invalid(format!(
                "class {}: the field name {:?} is reserved; choose another name",
                self.name,
                rntuple::DELETED_FIELD
            )));
        }
        rntuple::Schema::new(&self.members(), rntuple::Encoding::Plain)
            .map(|_| ())
            .map_err(Error::storage(format!("class {}", self.name)))
    }
}

impl Field {
    fn member(&self) -> (String, Type) {
        (self.name.clone(), self.of.storage_type())
    }
}

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
            FieldType::Record { fields, .. } => record(fields.iter().map(Field::member).collect()),
            FieldType::Variant(alternatives) => {
                Type::Variant(alternatives.iter().map(FieldType::storage_type).collect())
            }
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
            (FieldType::Link(_) | FieldType::ElementLink(_), Type::Record { members, .. }) => {
                Type::Record { class: LINK_CLASS.to_owned(), members }
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
            other => other,
        }
    }

    /// Whether ROOT has no name for the type.
    fn is_untyped(&self) -> bool {
        match self {
            FieldType::Record { .. } | FieldType::Link(_) | FieldType::ElementLink(_) => true,
            FieldType::List(item) | FieldType::Optional(item) => item.is_untyped(),
            FieldType::Array { of, .. } => of.is_untyped(),
            _ => false,
        }
    }

    /// Whether values have links or optional records in them, which are stored as something else.
    pub(crate) fn needs_translation(&self) -> bool {
        match self {
            FieldType::Link(_) | FieldType::ElementLink(_) => true,
            FieldType::Optional(item) => item.is_untyped() || item.needs_translation(),
            FieldType::List(item) => item.needs_translation(),
            FieldType::Array { of, .. } => of.needs_translation(),
            FieldType::Record { fields, .. } => {
                fields.iter().any(|field| field.of.needs_translation())
            }
            FieldType::Variant(alternatives) => {
                alternatives.iter().any(FieldType::needs_translation)
            }
            _ => false,
        }
    }

    fn of_type(of: &Type) -> Self {
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
            Type::Record { class, members } => {
                FieldType::Record { class: class.clone(), fields: fields_of(members) }
            }
            Type::Variant(alternatives) => {
                FieldType::Variant(alternatives.iter().map(Self::of_type).collect())
            }
        }
    }
}

fn fields_of(members: &[(String, Type)]) -> Vec<Field> {
    let field = |(name, of): &(String, Type)| Field {
        name: name.clone(),
        of: FieldType::of_type(of),
        description: String::new(),
        was: String::new(),
        default: None,
    };
    members.iter().map(field).collect()
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

/// The members of a record. Earlier versions of Femtobarn had a member for each base class of a foreign record,
/// with that class's members in it; these become the record's own.
fn inherited<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<Field>, D::Error> {
    let fields = Vec::<Field>::deserialize(from)?;
    if !fields.iter().any(|field| is_base_class(&field.name)) {
        return Ok(fields);
    }
    let parts = fields.into_iter().map(|field| match field.of {
        FieldType::Record { class, fields } if is_base_class(&field.name) => {
            (Some(if class.is_empty() { field.name } else { class }), fields)
        }
        _ => (None, vec![field]),
    });
    let (bases, members): (Vec<Option<String>>, Vec<Vec<Field>>) = parts.unzip();
    let mut inherited = vec![];
    for (base, fields) in bases.iter().zip(members) {
        let base = base.as_deref();
        let of = |member: Field| InheritedMember { base, name: member.name.clone(), member };
        inherited.extend(fields.into_iter().map(of));
    }
    let named = with_unique_names(inherited, &mut { PREFIX_BYTES_MAX });
    let named = named.ok_or_else(|| D::Error::custom("names of base classes are too long"))?;
    Ok(named.into_iter().map(|(name, field)| Field { name, ..field }).collect())
}

/// The members of rows with these fields.
fn row_members(fields: &[Field]) -> Vec<(String, Type)> {
    fields.iter().map(|field| (field.name.clone(), field.of.row_type())).collect()
}

/// The class name by which the type of a row tells a link from a record of numbers. It is never stored.
pub(crate) const LINK_CLASS: &str = "femtobarn::Link";

fn record(members: Vec<(String, Type)>) -> Type {
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

//! Classes: the fields of the objects of a container.
//!
//! A class is declared in Python or Rust, stored as JSON in the catalogue, and laid out as the fields of an
//! RNTuple.

use std::sync::Arc;

use femtobarn_catalog::ClassRow;
use rntuple::{InheritedMember, PREFIX_BYTES_MAX, Type, is_base_class, with_unique_names};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::schema::field_type::{FieldType, record, row_members, typed_members};

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
    /// The field's meaning, with its unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its name in the version before, if it was renamed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub was: String,
    /// The value in objects that were stored before the field was added; without it, zero or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<serde_json::Value>,
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

    /// The members for readers that know the classes of records: each record has its class as its C++ type.
    pub(crate) fn typed_members(&self) -> Vec<(String, Type)> {
        typed_members(&self.fields)
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

/// A class that is shared, as part of a JSON text.
pub(crate) mod shared_class {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        class: &Arc<Class>,
        into: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        (**class).serialize(into)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> std::result::Result<Arc<Class>, D::Error> {
        Class::deserialize(from).map(Arc::new)
    }
}

impl Field {
    pub(super) fn member(&self) -> (String, Type) {
        (self.name.clone(), self.of.storage_type())
    }
}

pub(super) fn fields_of(members: &[(String, Type)]) -> Vec<Field> {
    let field = |(name, of): &(String, Type)| Field {
        name: name.clone(),
        of: FieldType::of_type(of),
        description: String::new(),
        was: String::new(),
        default: None,
    };
    members.iter().map(field).collect()
}

/// The members of a record. Earlier versions of Femtobarn had a member for each base class of a foreign record,
/// with that class's members in it; these become the record's own.
pub(super) fn inherited<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Vec<Field>, D::Error> {
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

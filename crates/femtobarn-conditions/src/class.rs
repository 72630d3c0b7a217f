//! The class of a series' objects: the fields of their validity, and the fields of the payload.

use femtobarn::{Class, Error, Field, FieldType, Result, VALIDITY_FIELDS};

const PREFIX: &str = "Condition<";
const SUFFIX: &str = ">";
const DESCRIPTIONS: [&str; 3] = [
    "first moment at which the condition is valid",
    "first moment at which it is not valid any more",
    "channel",
];

/// The class of the objects of a series with this payload: `Condition<Gain>` for `Gain`.
///
/// # Errors
/// [`Error::Invalid`] if the payload has a field named `since`, `until` or `channel`.
pub fn series_class(payload: &Class) -> Result<Class> {
    let is_taken = |field: &&Field| VALIDITY_FIELDS.contains(&&*field.name);
    if let Some(field) = payload.fields.iter().find(is_taken) {
        return Err(Error::Invalid {
            what: format!(
                "class {} cannot be a condition: the field name {:?} is reserved for the validity; rename the field",
                payload.name, field.name
            ),
        });
    }
    let validity = VALIDITY_FIELDS.iter().zip(DESCRIPTIONS).map(|(name, description)| Field {
        name: (*name).to_owned(),
        of: FieldType::Int64,
        description: description.to_owned(),
        was: String::new(),
        default: None,
    });
    Ok(Class {
        name: format!("{PREFIX}{}{SUFFIX}", payload.name),
        version: payload.version,
        fields: validity.chain(payload.fields.iter().cloned()).collect(),
    })
}

/// The payload's class, from the class of a series' objects.
///
/// # Errors
/// [`Error::Invalid`] if the class does not begin with the fields of a validity.
pub fn payload_class(class: &Class) -> Result<Class> {
    let (validity, payload) = class.fields.split_at(class.fields.len().min(VALIDITY_FIELDS.len()));
    let is_validity = validity.len() == VALIDITY_FIELDS.len()
        && validity
            .iter()
            .zip(VALIDITY_FIELDS)
            .all(|(field, name)| field.name == name && field.of == FieldType::Int64);
    if !is_validity {
        return Err(Error::Invalid {
            what: format!(
                "class {} is not that of a series: it must begin with the int64 fields {}",
                class.name,
                VALIDITY_FIELDS.join(", ")
            ),
        });
    }
    // A class that came with an attached file may have an origin behind its name.
    let (name, origin) = class.name.split_once('@').unwrap_or((&class.name, ""));
    let name = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX)).unwrap_or(name);
    let at = if origin.is_empty() { "" } else { "@" };
    Ok(Class {
        name: format!("{name}{at}{origin}"),
        version: class.version,
        fields: payload.to_vec(),
    })
}

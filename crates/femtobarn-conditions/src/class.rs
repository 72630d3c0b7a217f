//! The class of a series' objects: the fields of their validity, and the fields of the payload.

use femtobarn::{Class, Error, Field, FieldType, REPLACED_FIELD, Result, VALIDITY_FIELDS};

const PREFIX: &str = "Condition<";
const BRANCH_PREFIX: &str = "BranchCondition<";
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
    let validity = VALIDITY_FIELDS.iter().copied().zip(DESCRIPTIONS);
    class_of(payload, PREFIX, validity.collect())
}

/// The class of a branch's objects in a series with this payload: `BranchCondition<Gain>` for `Gain`.
///
/// # Errors
/// [`Error::Invalid`] if the payload has a field named `since`, `until`, `channel` or `replaced_entry`.
pub(crate) fn branch_class(payload: &Class) -> Result<Class> {
    let validity = VALIDITY_FIELDS.iter().copied().zip(DESCRIPTIONS);
    let replaced = (REPLACED_FIELD, "condition of the series behind that it replaces; -1: none");
    class_of(payload, BRANCH_PREFIX, validity.chain([replaced]).collect())
}

fn class_of(payload: &Class, prefix: &str, leading: Vec<(&str, &str)>) -> Result<Class> {
    let is_taken = |field: &&Field| leading.iter().any(|(name, _)| *name == field.name);
    if let Some(field) = payload.fields.iter().find(is_taken) {
        return Err(Error::Invalid {
            what: format!(
                "class {} cannot be a condition: the field name {:?} is reserved for the validity; rename the field",
                payload.name, field.name
            ),
        });
    }
    let leading = leading.into_iter().map(|(name, description)| Field {
        name: name.to_owned(),
        of: FieldType::Int64,
        description: description.to_owned(),
        was: String::new(),
        default: None,
    });
    let name = payload.name.split_once('@').map_or(&*payload.name, |(name, _)| name);
    Ok(Class {
        name: format!("{prefix}{name}{SUFFIX}"),
        version: payload.version,
        fields: leading.chain(payload.fields.iter().cloned()).collect(),
    })
}

/// The payload's class, from the class of the objects of a series or a branch.
///
/// # Errors
/// [`Error::Invalid`] if the class does not begin with the fields of a validity.
pub fn payload_class(class: &Class) -> Result<Class> {
    let mut leading = VALIDITY_FIELDS.to_vec();
    leading.extend(class.name.starts_with(BRANCH_PREFIX).then_some(REPLACED_FIELD));
    let (validity, payload) = class.fields.split_at(class.fields.len().min(leading.len()));
    let is_validity = validity.len() == leading.len()
        && validity
            .iter()
            .zip(&leading)
            .all(|(field, name)| field.name == *name && field.of == FieldType::Int64);
    if !is_validity {
        return Err(Error::Invalid {
            what: format!(
                "class {} is not that of a series: it must begin with the int64 fields {}",
                class.name,
                leading.join(", ")
            ),
        });
    }
    Ok(Class { name: payload_name(&class.name), version: class.version, fields: payload.to_vec() })
}

/// The name of the payload's class, from that of the class of the objects of a series or a branch.
pub(crate) fn payload_name(class: &str) -> String {
    // A class that came with an attached file may have an origin behind its name.
    let (name, origin) = class.split_once('@').unwrap_or((class, ""));
    let inner = name.strip_prefix(BRANCH_PREFIX).or_else(|| name.strip_prefix(PREFIX));
    let name = inner.and_then(|name| name.strip_suffix(SUFFIX)).unwrap_or(name);
    let at = if origin.is_empty() { "" } else { "@" };
    format!("{name}{at}{origin}")
}

//! Adding indexes to a container and removing them.

use super::fields;
use super::pending::PendingKeys;
use crate::annex::IndexState;
use crate::error::{Error, Result};
use crate::schema::class::Class;

/// Bytes of the longest name of an index.
const NAME_BYTES_MAX: usize = 255;

/// Adds an index, which has no runs yet, to those of a container.
///
/// # Errors
/// [`Error::Exists`] if the name is in use; [`Error::Invalid`] if the name is not valid or there are no fields; the
/// errors of [`fields::check`].
pub(crate) fn create(
    indexes: &mut Vec<IndexState>,
    pending: &mut PendingKeys,
    class: &Class,
    mut index: IndexState,
) -> Result<()> {
    let name = &index.name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "invalid index name {name:?}: must be 1 to {NAME_BYTES_MAX} bytes"
        )));
    }
    if indexes.iter().any(|other| other.name == *name) {
        return Err(Error::Exists {
            what: format!("index {name:?} exists already; choose another name"),
        });
    }
    if index.fields.is_empty() {
        return Err(Error::invalid(format!("index {name:?} has no fields; name at least one")));
    }
    fields::check(class, &index.fields)?;
    pending.rebuild(&mut index);
    indexes.push(index);
    Ok(())
}

/// Removes an index.
///
/// # Errors
/// [`Error::NotFound`] if there is no index of that name.
pub(crate) fn remove(
    indexes: &mut Vec<IndexState>,
    pending: &mut PendingKeys,
    name: &str,
) -> Result<()> {
    let at = indexes.iter().position(|index| index.name == name).ok_or_else(|| {
        let names: Vec<&str> = indexes.iter().map(|index| &index.name[..]).collect();
        let others = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Error::NotFound {
            what: format!("index {name:?} does not exist; existing indexes: {others}"),
        }
    })?;
    indexes.remove(at);
    pending.forget(name);
    Ok(())
}

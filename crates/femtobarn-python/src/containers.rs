//! How transactions find the containers that Python names.

use std::cmp::Ordering;

use femtobarn::{Class, ContainerKey, ContainerOptions, Profile, Transaction};
use pyo3::prelude::*;

use crate::error::{OrRaise, exception};

/// Finds a container, or makes it if asked to, and locks it. With `evolve` a newer version of its class
/// becomes the class of its objects.
///
/// # Errors
/// As the engine; `InvalidError` if the container is of another class.
pub(crate) fn find_container(
    transaction: &mut Transaction,
    database: &str,
    name: &str,
    class: Option<Class>,
    create: bool,
    evolve: bool,
    options: ContainerOptions,
) -> PyResult<(ContainerKey, Class)> {
    let database = transaction.database(database).or_raise()?;
    let is_new = create && transaction.find_container(database, name).or_raise()?.is_none();
    let key = match (is_new, &class) {
        (false, _) => transaction.container(database, name).or_raise()?,
        (true, Some(class)) => {
            transaction.create_container(database, name, class, options).or_raise()?
        }
        (true, None) => {
            let text = format!("container {name:?} is new; say which class its objects are of");
            return Err(exception("invalid", text));
        }
    };
    let stored = transaction.class(key).or_raise()?.clone();
    match class {
        Some(class)
            if evolve && stored.is_called(&class.name) && class.version > stored.version =>
        {
            transaction.evolve(key, &class).or_raise()?;
            Ok((key, transaction.class(key).or_raise()?.clone()))
        }
        Some(class) if !stored.is_called(&class.name) || class.fields != stored.fields => {
            Err(exception("invalid", mismatch(name, &class, &stored)))
        }
        _ => Ok((key, stored)),
    }
}

fn mismatch(container: &str, given: &Class, stored: &Class) -> String {
    if !stored.is_called(&given.name) {
        let (stored, given) = (&stored.name, &given.name);
        return format!("container {container:?} holds objects of class {stored}, not {given}");
    }
    let unlike = given.fields.iter().find(|field| !stored.fields.contains(field));
    let unlike =
        unlike.or_else(|| stored.fields.iter().find(|field| !given.fields.contains(field)));
    let field =
        unlike.map_or_else(|| "the order of fields".to_owned(), |f| format!("field {:?}", f.name));
    let advice = match given.version.cmp(&stored.version) {
        Ordering::Greater => "pass evolve=True to make its objects such".to_owned(),
        Ordering::Equal => format!(
            "raise the version, as in @fb.persistent(version={}), and pass evolve=True to change its objects",
            stored.version + 1
        ),
        Ordering::Less => format!("it was changed since: take version {} or newer", stored.version),
    };
    format!(
        "container {container:?} holds class {} as of version {}, from which this one, version {}, \
         differs in {field}; {advice}, or give it a container of its own",
        stored.name, stored.version, given.version
    )
}

/// Options of a new container; what is not given is as usual.
///
/// # Errors
/// `InvalidError` for a compression that does not exist.
pub(crate) fn container_options(
    page_size: Option<usize>,
    cluster_size: Option<u64>,
    compression: Option<&str>,
) -> PyResult<ContainerOptions> {
    let default = ContainerOptions::default();
    Ok(ContainerOptions {
        page_size: page_size.unwrap_or(default.page_size),
        cluster_size: cluster_size.unwrap_or(default.cluster_size),
        compression: match compression {
            None => default.compression,
            Some("none") => Profile::Plain,
            Some("lz4" | "fast") => Profile::Fast,
            Some("zstd" | "archive") => Profile::Archive,
            Some(other) => {
                let text =
                    format!("compression {other:?} does not exist; there are none, lz4, zstd");
                return Err(exception("invalid", text));
            }
        },
    })
}

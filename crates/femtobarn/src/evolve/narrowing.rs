//! Narrowing: objects read as of an older version of their class that cannot hold all their values.
//!
//! Whether a value fits is known when it is read. Whole fields are read as they are stored, and converted to
//! the older class or refused; then members that were not selected are dropped.

use std::sync::Arc;

use rntuple::{Array, Conversion, NewMember, Projection, Reader, Type, ValueOrigin};

use crate::error::{Error, Result};
use crate::schema::class::Class;

/// The last part of a path that selects only the number of a list's items.
const COUNT: &str = "#";

/// A conversion of objects to an older version of their class.
pub(crate) struct Narrowing {
    /// The fields of the older class, and the stored fields that they are made of.
    pub members: Vec<NewMember>,
}

/// Selected fields of the older class.
#[derive(Clone)]
pub(crate) struct NarrowedFields {
    conversion: Arc<Conversion>,
    paths: Vec<String>,
}

impl Narrowing {
    /// Selects fields of the older class by path: the stored fields to read, and their conversion.
    pub(crate) fn select(
        &self,
        reader: &Reader,
        class: &Class,
        paths: &[String],
    ) -> rntuple::Result<(Projection, NarrowedFields)> {
        let first = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
        let unknown =
            |path: &&String| class.field_type(path.strip_suffix(".#").unwrap_or(path)).is_none();
        if let Some(path) = paths.iter().find(unknown).filter(|path| !is_part_of_link(class, path))
        {
            return Err(rntuple::Error::NotFound {
                what: "field",
                name: path.clone(),
                candidates: class.fields.iter().map(|field| field.name.clone()).collect(),
            });
        }
        let is_wanted = |name: &String| paths.iter().any(|path| first(path) == *name);
        let members: Vec<NewMember> =
            self.members.iter().filter(|member| is_wanted(&member.name)).cloned().collect();
        let mut stored: Vec<String> = members
            .iter()
            .filter_map(|member| match &member.from {
                ValueOrigin::Same(path) => Some(first(path)),
                ValueOrigin::Default(_) => None,
            })
            .collect();
        stored.sort();
        stored.dedup();
        let projection = reader.select(&stored)?;
        let read = Type::Record { class: String::new(), members: projection.members() };
        let conversion = Conversion::new(&read, &members)?.into();
        Ok((projection, NarrowedFields { conversion, paths: paths.to_vec() }))
    }
}

/// Whether a path is that of a part of a link, such as `best.entry`.
fn is_part_of_link(class: &Class, path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(link, _)| class.field_type(link).is_some())
}

impl NarrowedFields {
    /// Converts stored fields to those of the older class.
    pub(crate) fn convert(&self, read: &Array, what: &str) -> Result<Array> {
        self.conversion.apply(read).map_err(|error| match error {
            rntuple::Error::Invalid { what: why } => Error::invalid(format!("{what}: {why}")),
            other => Error::storage(what)(other),
        })
    }

    /// Drops members that were not selected.
    pub(crate) fn prune(&self, whole: Array) -> Array {
        let paths: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        prune(whole, &paths)
    }
}

fn strip<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    path.strip_prefix(name)?.strip_prefix('.')
}

fn prune(array: Array, paths: &[&str]) -> Array {
    match array {
        Array::Record { length, .. } if paths.iter().all(|path| *path == COUNT) => {
            Array::Record { length, members: vec![] }
        }
        Array::Record { length, members } => {
            let chosen = |(name, array): (String, Array)| {
                if paths.contains(&name.as_str()) {
                    return Some((name, array));
                }
                let below: Vec<&str> = paths.iter().filter_map(|path| strip(path, &name)).collect();
                (!below.is_empty()).then(|| (name, prune(array, &below)))
            };
            Array::Record { length, members: members.into_iter().filter_map(chosen).collect() }
        }
        Array::List { offsets, content, optional } => {
            let content = if paths.iter().all(|path| *path == COUNT) {
                Array::Record { length: content.len(), members: vec![] }
            } else {
                prune(*content, paths)
            };
            Array::List { offsets, content: content.into(), optional }
        }
        Array::Fixed { size, length, content } => {
            Array::Fixed { size, length, content: prune(*content, paths).into() }
        }
        other => other,
    }
}

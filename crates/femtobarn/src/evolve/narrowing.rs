//! Objects seen as of an older version of their class that does not hold all their values.
//!
//! Whether the values fit is known when they are read: whole fields are read as they are stored, become
//! those of the older class or are refused, and what was not asked for is left out.

use std::sync::Arc;

use rntuple::{Array, Conversion, NewMember, Projection, Reader, Type, ValueOrigin};

use crate::error::{Error, Result};
use crate::schema::class::Class;

/// Stands for the items of a list when only their number is wanted.
const COUNT: &str = "#";

/// How objects become those of an older class.
pub(crate) struct Narrowing {
    /// The fields of the older class, and what they are made of.
    pub members: Vec<NewMember>,
}

/// Fields of the older class that were chosen.
#[derive(Clone)]
pub(crate) struct Narrowed {
    conversion: Arc<Conversion>,
    paths: Vec<String>,
}

impl Narrowing {
    /// Chooses fields of the older class by path: what to read for them, and how they are made of it.
    pub fn select(
        &self,
        reader: &Reader,
        class: &Class,
        paths: &[String],
    ) -> rntuple::Result<(Projection, Narrowed)> {
        let first = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
        let unknown =
            |path: &&String| class.field_type(path.strip_suffix(".#").unwrap_or(path)).is_none();
        if let Some(path) = paths.iter().find(unknown).filter(|path| !is_of_link(class, path)) {
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
        Ok((projection, Narrowed { conversion, paths: paths.to_vec() }))
    }
}

/// Whether a path is that of a link's part, such as `best.entry`.
fn is_of_link(class: &Class, path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(link, _)| class.field_type(link).is_some())
}

impl Narrowed {
    /// Makes fields of the older class of what was read.
    pub fn convert(&self, read: &Array, what: &str) -> Result<Array> {
        self.conversion.apply(read).map_err(|error| match error {
            rntuple::Error::Invalid { what: why } => Error::invalid(format!("{what}: {why}")),
            other => Error::storage(what)(other),
        })
    }

    /// Leaves out what was not chosen.
    pub fn prune(&self, whole: Array) -> Array {
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
            let content = match paths.iter().all(|path| *path == COUNT) {
                true => Array::Record { length: content.len(), members: vec![] },
                false => prune(*content, paths),
            };
            Array::List { offsets, content: content.into(), optional }
        }
        Array::Fixed { size, length, content } => {
            Array::Fixed { size, length, content: prune(*content, paths).into() }
        }
        other => other,
    }
}

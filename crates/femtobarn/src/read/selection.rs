//! Fields of a container that are read together.

use std::sync::Arc;

use rntuple::{Projection, Reader};

use crate::evolve::narrowing::{Narrowed, Narrowing};
use crate::schema::class::Class;

/// Fields of a container that were chosen for reading.
#[derive(Clone)]
pub struct Selection {
    pub(super) projection: Arc<Projection>,
    /// Whether links or optional records are among them.
    pub(super) translated: bool,
    /// How they are made of what is stored, if the view is one of another class.
    pub(super) narrowed: Option<Narrowed>,
}

impl Selection {
    pub(super) fn new(projection: Projection, class: &Class) -> Self {
        let translated = |name: &str| {
            let field = class.fields.iter().find(|field| field.name == name);
            field.is_some_and(|field| field.of.needs_translation())
        };
        let translated = projection.members().iter().any(|(name, _)| translated(name));
        Selection { projection: projection.into(), translated, narrowed: None }
    }

    pub(super) fn narrowed(
        reader: &Reader,
        class: &Class,
        narrowing: &Narrowing,
        paths: &[String],
    ) -> rntuple::Result<Self> {
        let (projection, narrowed) = narrowing.select(reader, class, paths)?;
        let translated = class.fields.iter().any(|field| field.of.needs_translation());
        Ok(Selection { projection: projection.into(), translated, narrowed: Some(narrowed) })
    }
}

/// All fields of a class; the RNTuple of a sealed container has one more if objects are deleted.
pub(super) fn all(reader: &Reader, class: &Class) -> rntuple::Result<Projection> {
    match reader.members().len() == class.fields.len() {
        true => Ok(reader.select_all()),
        false => {
            let names: Vec<&str> = class.fields.iter().map(|field| field.name.as_str()).collect();
            reader.select(&names)
        }
    }
}

//! Selections: fields of a container that are read together.

use std::sync::Arc;

use rntuple::{Projection, Reader};

use crate::evolve::narrowing::{NarrowedFields, Narrowing};
use crate::schema::class::Class;

/// Fields of a container that are read together.
#[derive(Clone)]
pub struct Selection {
    pub(super) projection: Arc<Projection>,
    /// Number of top-level fields that are read.
    pub(super) fields: usize,
    /// Whether values must be translated, because links or optional records are among them.
    pub(super) translated: bool,
    /// Their conversion from the stored fields, if the view narrows to another version of the class.
    pub(super) narrowed: Option<NarrowedFields>,
}

impl Selection {
    pub(super) fn new(projection: Projection, class: &Class) -> Self {
        let translated = |name: &str| {
            let field = class.fields.iter().find(|field| field.name == name);
            field.is_some_and(|field| field.of.needs_translation())
        };
        let members = projection.members();
        let translated = members.iter().any(|(name, _)| translated(name));
        let fields = members.len();
        Selection { projection: projection.into(), fields, translated, narrowed: None }
    }

    pub(super) fn narrowed(
        reader: &Reader,
        class: &Class,
        narrowing: &Narrowing,
        paths: &[String],
    ) -> rntuple::Result<Self> {
        let (projection, narrowed) = narrowing.select(reader, class, paths)?;
        let translated = class.fields.iter().any(|field| field.of.needs_translation());
        let (fields, narrowed) = (projection.members().len(), Some(narrowed));
        Ok(Selection { projection: projection.into(), fields, translated, narrowed })
    }
}

/// All fields of a class. The RNTuple of a sealed container has another one if objects were deleted.
pub(super) fn all(reader: &Reader, class: &Class) -> rntuple::Result<Projection> {
    if reader.members().len() == class.fields.len() {
        Ok(reader.select_all())
    } else {
        let names: Vec<&str> = class.fields.iter().map(|field| field.name.as_str()).collect();
        reader.select(&names)
    }
}

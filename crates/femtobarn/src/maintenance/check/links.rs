//! The targets of links: objects that exist, objects that do not, or other federations.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use femtobarn_catalog::{ContainerId, Csn, DatabaseId};
use rntuple::{Array, Primitive, values_of};

use super::walk::{StoredValues, walk};
use crate::deletion::Deletions;
use crate::error::{Error, ErrorKind, Result};
use crate::federation::Inner;
use crate::schema::class::Class;
use crate::schema::field_type::FieldType;
use crate::storage::file::DatabaseFile;
use crate::storage::nearline;

/// A link in its stored form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredLink {
    /// Position in the container's list of databases; 0 is the container's own.
    pub position: u32,
    pub container: ContainerId,
    pub entry: u64,
}

/// Called with the entry of an object, the path of a field, and a link in it.
pub(crate) type VisitLink<'v> = dyn FnMut(u64, &str, StoredLink) -> Result<()> + 'v;

/// Visits all links but null ones of stored objects; `first` is the entry of the first object.
pub(crate) fn visit(
    class: &Class,
    objects: &Array,
    first: u64,
    visit: &mut VisitLink<'_>,
) -> Result<()> {
    walk(class, objects, first, &mut |values| match values.of {
        FieldType::Link(_) | FieldType::ElementLink(_) => links(values, visit).map(|()| false),
        of => Ok(of.needs_translation()),
    })
}

fn links(values: &StoredValues<'_>, visit: &mut VisitLink<'_>) -> Result<()> {
    let positions = numbers::<u32>(values.array, "database", Primitive::UInt32)?;
    let containers = numbers::<u32>(values.array, "container", Primitive::UInt32)?;
    let entries = numbers::<u64>(values.array, "entry", Primitive::UInt64)?;
    let parts = positions.iter().zip(containers).zip(entries).zip(values.owners);
    for (((&position, &container), &entry), &owner) in parts {
        if container != 0 {
            let link = StoredLink { position, container: ContainerId(container), entry };
            visit(owner, values.path, link)?;
        }
    }
    Ok(())
}

fn numbers<'a, T: Number>(links: &'a Array, name: &str, of: Primitive) -> Result<&'a [T]> {
    match links.member(name) {
        Some(Array::Primitive { primitive, values }) if *primitive == of => T::of(values),
        _ => Err(Error::Corrupt { what: format!("links have no {name}") }),
    }
}

/// The integers that links consist of.
trait Number: Sized {
    fn of(bytes: &[u8]) -> Result<&[Self]>;
}

impl Number for u32 {
    fn of(bytes: &[u8]) -> Result<&[Self]> {
        values_of(bytes).map_err(Error::storage("links"))
    }
}

impl Number for u64 {
    fn of(bytes: &[u8]) -> Result<&[Self]> {
        values_of(bytes).map_err(Error::storage("links"))
    }
}

/// Containers that links lead to, as of one commit.
pub(super) struct LinkTargetCache {
    at: Csn,
    /// Databases whose files are at other servers.
    elsewhere: HashSet<DatabaseId>,
    known: HashMap<(DatabaseId, ContainerId), Option<Arc<TargetContainer>>>,
}

/// The entries and deletions of a container.
pub(super) struct TargetContainer {
    /// `None` if it is in a store alone, or at another server; its deletions are not known then.
    source: Option<Arc<DatabaseFile>>,
    entries: u64,
    deletions: Deletions,
}

impl LinkTargetCache {
    pub(super) fn new(at: Csn, elsewhere: HashSet<DatabaseId>) -> Self {
        LinkTargetCache { at, elsewhere, known: HashMap::new() }
    }

    /// Whether a container was not found in one of these databases.
    pub(super) fn has_missed_any(&self, databases: &HashSet<DatabaseId>) -> bool {
        self.known.iter().any(|((of, _), found)| found.is_none() && databases.contains(of))
    }

    /// Why a link dangles; `None` if its target exists.
    pub(super) fn missing(
        &mut self,
        inner: &Inner,
        database: DatabaseId,
        link: StoredLink,
    ) -> Result<Option<&'static str>> {
        let live = match self.known.get(&(database, link.container)) {
            Some(live) => live.clone(),
            None => {
                let is_here = !self.elsewhere.contains(&database);
                let live = TargetContainer::of(inner, database, link.container, self.at, is_here)?;
                let live = live.map(Arc::new);
                self.known.insert((database, link.container), live.clone());
                live
            }
        };
        Ok(match live {
            None => Some("the container does not exist"),
            Some(live) if link.entry >= live.entries => Some("the object does not exist"),
            // A damaged deletion list is reported for the target's container.
            Some(live) => {
                let source = live.source.as_deref();
                let deleted = source.map(|source| live.deletions.contains(source, link.entry));
                matches!(deleted, Some(Ok(true))).then_some("the object was deleted")
            }
        })
    }
}

impl TargetContainer {
    fn of(
        inner: &Inner,
        database: DatabaseId,
        container: ContainerId,
        at: Csn,
        is_here: bool,
    ) -> Result<Option<Self>> {
        let absent = |error: femtobarn_catalog::Error| match error.kind() {
            ErrorKind::NotFound => Ok(None),
            _ => Err(Error::from(error)),
        };
        if let Err(error) = inner.catalog.container_by_id(database, container, at) {
            return absent(error);
        }
        let Some(row) = inner.catalog.version(database, container, at)? else { return Ok(None) };
        let file = match inner.catalog.database_by_id(database, at) {
            Ok(_) if !is_here => Ok(None),
            Ok(row) => nearline::open(&*inner.catalog, &row, inner.path_of(&row)),
            Err(error) => return absent(error),
        };
        // A missing file is reported for its database.
        let Ok(file) = file else { return Ok(None) };
        let source = file.map(Arc::new);
        let deletions = source.as_deref().and_then(|source| Deletions::of(source, &row).ok());
        let deletions = deletions.unwrap_or_default();
        Ok(Some(TargetContainer { source, entries: row.entries, deletions }))
    }
}

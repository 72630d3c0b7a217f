//! The targets of links: objects that exist, objects that do not, or other federations.

use std::collections::HashMap;
use std::sync::Arc;

use femtobarn_catalog::{ContainerId, Csn, DatabaseId};
use rntuple::{Array, Primitive, values_of};

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
    let owners: Vec<u64> = (first..first + objects.len() as u64).collect();
    for field in class.fields.iter().filter(|field| field.of.needs_translation()) {
        if let Some(array) = objects.member(&field.name) {
            LinkWalk { visit, path: field.name.clone() }.walk(&field.of, array, &owners)?;
        }
    }
    Ok(())
}

struct LinkWalk<'a, 'v> {
    visit: &'a mut VisitLink<'v>,
    path: String,
}

impl LinkWalk<'_, '_> {
    /// `owners` holds, for each item of `array`, the entry of its object.
    fn walk(&mut self, of: &FieldType, array: &Array, owners: &[u64]) -> Result<()> {
        if !of.needs_translation() {
            return Ok(());
        }
        match (of, array) {
            (FieldType::Link(_) | FieldType::ElementLink(_), links) => self.links(links, owners),
            (
                FieldType::List(item) | FieldType::Optional(item),
                Array::List { offsets, content, .. },
            ) => self.walk(item, content, &spread(offsets, content.len(), owners)?),
            (FieldType::Array { of, .. }, Array::Fixed { size, content, .. }) => {
                let size = *size as usize;
                let repeat = owners.iter().flat_map(|owner| std::iter::repeat_n(*owner, size));
                self.walk(of, content, &repeat.collect::<Vec<_>>())
            }
            (FieldType::Record { fields, .. }, records) => {
                for field in fields {
                    let Some(member) = records.member(&field.name) else { continue };
                    let length = self.path.len();
                    self.path.push('.');
                    self.path.push_str(&field.name);
                    self.walk(&field.of, member, owners)?;
                    self.path.truncate(length);
                }
                Ok(())
            }
            (FieldType::Variant(of), Array::Variant { tags, positions, contents }) => {
                self.variant(of, tags, positions, contents, owners)
            }
            _ => Ok(()),
        }
    }

    fn variant(
        &mut self,
        of: &[FieldType],
        tags: &[u8],
        positions: &[u8],
        contents: &[Array],
        owners: &[u64],
    ) -> Result<()> {
        let positions = values_of::<i64>(positions).map_err(Error::storage("variant"))?;
        for (number, (of, content)) in of.iter().zip(contents).enumerate() {
            let mut chosen = vec![0; content.len()];
            for ((tag, position), owner) in tags.iter().zip(positions).zip(owners) {
                let place = usize::try_from(*position).ok().and_then(|at| chosen.get_mut(at));
                if let Some(place) = place.filter(|_| usize::from(*tag) == number) {
                    *place = *owner;
                }
            }
            self.walk(of, content, &chosen)?;
        }
        Ok(())
    }

    fn links(&mut self, links: &Array, owners: &[u64]) -> Result<()> {
        let positions = numbers::<u32>(links, "database", Primitive::UInt32)?;
        let containers = numbers::<u32>(links, "container", Primitive::UInt32)?;
        let entries = numbers::<u64>(links, "entry", Primitive::UInt64)?;
        let parts = positions.iter().zip(containers).zip(entries).zip(owners);
        for (((&position, &container), &entry), &owner) in parts {
            if container != 0 {
                let link = StoredLink { position, container: ContainerId(container), entry };
                (self.visit)(owner, &self.path, link)?;
            }
        }
        Ok(())
    }
}

/// The owner of each item of lists.
fn spread(offsets: &[u8], items: usize, owners: &[u64]) -> Result<Vec<u64>> {
    let offsets = values_of::<i64>(offsets).map_err(Error::storage("list"))?;
    let mut spread = vec![0; items];
    for (pair, owner) in offsets.windows(2).zip(owners) {
        let range = usize::try_from(pair[0]).ok().zip(usize::try_from(pair[1]).ok());
        if let Some(places) = range.and_then(|(start, end)| spread.get_mut(start..end)) {
            places.fill(*owner);
        }
    }
    Ok(spread)
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
    known: HashMap<(DatabaseId, ContainerId), Option<Arc<TargetContainer>>>,
}

/// The entries and deletions of a container.
pub(super) struct TargetContainer {
    /// None if it is in a store alone; its deletions are not known then.
    source: Option<Arc<DatabaseFile>>,
    entries: u64,
    deletions: Deletions,
}

impl LinkTargetCache {
    pub(super) fn new(at: Csn) -> Self {
        LinkTargetCache { at, known: HashMap::new() }
    }

    /// Why a link dangles; none if its target exists.
    pub(super) fn missing(
        &mut self,
        inner: &Inner,
        database: DatabaseId,
        link: StoredLink,
    ) -> Result<Option<&'static str>> {
        let live = match self.known.get(&(database, link.container)) {
            Some(live) => live.clone(),
            None => {
                let live =
                    TargetContainer::of(inner, database, link.container, self.at)?.map(Arc::new);
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

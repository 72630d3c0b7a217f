//! Objects as Rust rows: by entry of one container, or by OID across containers.
//!
//! A cursor holds the pages that it read from, up to half of the page cache's size, so it reads another object of
//! the same pages without a lock. A cursor belongs to one thread; make one for each.

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::sync::Arc;

use femtobarn_catalog::{ContainerId, DatabaseId, Oid};
use rntuple::{FromCell, Reader, Type};

use crate::error::{Error, Result};
use crate::read::snapshot::Snapshot;
use crate::read::version::OpenVersion;
use crate::read::view::View;
use crate::schema::field_type::LINK_CLASS;

/// Reads objects of one container as structures that `rntuple::row!` declares.
///
/// The structure's members are fields of the class, by name; it may leave out fields.
pub struct Cursor<R> {
    view: View,
    rows: rntuple::Cursor<R, VersionHandle>,
}

/// Dereferences to the reader of a version.
pub(crate) struct VersionHandle(pub Arc<OpenVersion>);

impl Deref for VersionHandle {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.0.reader
    }
}

impl View {
    /// A cursor that reads objects as Rust structures.
    ///
    /// # Errors
    /// [`ErrorKind`](crate::ErrorKind): `NotFound` if a member of the structure is not a field of the class;
    /// `Invalid` if it is of another type, or if the view narrows to another version of the class.
    pub fn cursor<R: FromCell>(&self) -> Result<Cursor<R>> {
        let version = self.shared_version();
        let refused = |why: &str| {
            Err(Error::invalid(format!(
                "objects of {} {why}; read them as values or arrays",
                self.path()
            )))
        };
        if version.is_narrowed() {
            return refused("are converted to an older version of their class");
        }
        // A record of numbers read from a link field, or the reverse, would not be translated.
        let is_other = |(name, of): &(String, Type)| {
            let field = version.class.fields.iter().find(|field| field.name == *name);
            field.is_some_and(|field| {
                (field.of.needs_translation() || has_links(of)) && field.of.row_type() != *of
            })
        };
        if let Type::Record { members, .. } = R::cell_type()
            && let Some((name, _)) = members.iter().find(|member| is_other(member))
        {
            return refused(&format!("have field {name:?} of another type than the row"));
        }
        let numbers = version.link_databases.clone();
        let rows =
            rntuple::Cursor::new(VersionHandle(version)).map_err(Error::storage(self.path()))?;
        let rows = rows.with_numbers(numbers);
        Ok(Cursor { view: self.clone(), rows })
    }
}

impl<R: FromCell> Cursor<R> {
    /// Optimises for reading in ascending order: pages that were passed are released, and evict no others from the page
    /// cache.
    #[must_use]
    pub fn forward(self) -> Self {
        Cursor { rows: self.rows.forward(), ..self }
    }

    /// The view that it reads.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The object at an entry.
    ///
    /// # Errors
    /// [`ErrorKind`](crate::ErrorKind): `NotFound` if the entry does not exist or was deleted; `Corrupt` if the
    /// stored bytes are damaged.
    #[inline]
    pub fn get(&mut self, entry: u64) -> Result<R> {
        if self.view.is_checked() {
            self.view.check_readable()?;
            self.view.check_live(entry)?;
        }
        let view = &self.view;
        self.rows.get(entry).map_err(|error| failed(view, error))
    }

    /// Calls `each` with the objects of a range of entries, without deleted ones.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get), and those that `each` returns.
    pub fn for_each(
        &mut self,
        entries: Range<u64>,
        mut each: impl FnMut(u64, R) -> Result<()>,
    ) -> Result<()> {
        for run in self.view.live_runs(entries)? {
            for entry in run {
                let object = self.rows.get(entry);
                each(entry, object.map_err(|error| failed(&self.view, error))?)?;
            }
        }
        Ok(())
    }
}

/// The error of a cursor's read.
#[cold]
fn failed(view: &View, error: rntuple::Error) -> Error {
    view.snapshot().unless_given_up(Error::storage(view.path())(error))
}

/// Whether a row type contains links.
fn has_links(of: &Type) -> bool {
    match of {
        Type::Record { class, members } => {
            class == LINK_CLASS || members.iter().any(|(_, of)| has_links(of))
        }
        Type::List(of) | Type::Optional(of) | Type::Array { item: of, .. } => has_links(of),
        _ => false,
    }
}

/// Reads objects of any container as structures that `rntuple::row!` declares.
pub struct Objects<R> {
    snapshot: Snapshot,
    containers: HashMap<(DatabaseId, ContainerId), usize>,
    cursors: Vec<Cursor<R>>,
    /// The container of the last object, the index of its cursor, and the bytes that the cursor held before.
    last: Option<((DatabaseId, ContainerId), usize, u64)>,
    /// Bytes that all cursors held when the last one was chosen.
    held: u64,
}

impl Snapshot {
    /// Reads objects by their OIDs as Rust structures.
    pub fn objects<R: FromCell>(&self) -> Objects<R> {
        let (containers, cursors) = (HashMap::new(), vec![]);
        Objects { snapshot: self.clone(), containers, cursors, last: None, held: 0 }
    }
}

impl<R: FromCell> Objects<R> {
    /// The most cursors that are open at once.
    const CURSORS_MAX: usize = 1024;

    /// An object.
    ///
    /// # Errors
    /// The errors of [`Snapshot::target`], [`View::cursor`] and [`Cursor::get`].
    #[inline]
    pub fn get(&mut self, oid: Oid) -> Result<R> {
        let container = (oid.database, oid.container);
        let at = match self.last {
            Some((last, at, _)) if last == container => at,
            _ => self.cursor_of(oid)?,
        };
        self.cursors[at].get(oid.entry)
    }

    fn cursor_of(&mut self, oid: Oid) -> Result<usize> {
        if let Some((_, at, before)) = self.last.take() {
            self.held = self.held.saturating_sub(before) + self.cursors[at].rows.held_bytes();
        }
        let inner = &self.snapshot.federation().inner;
        if self.held > inner.pages.capacity() / 2 || self.cursors.len() >= Self::CURSORS_MAX {
            self.containers.clear();
            self.cursors.clear();
            self.held = 0;
        }
        let container = (oid.database, oid.container);
        let at = match self.containers.get(&container) {
            Some(&at) => at,
            None => {
                self.cursors.push(self.snapshot.target(oid)?.cursor()?);
                self.containers.insert(container, self.cursors.len() - 1);
                self.cursors.len() - 1
            }
        };
        self.last = Some((container, at, self.cursors[at].rows.held_bytes()));
        Ok(at)
    }
}

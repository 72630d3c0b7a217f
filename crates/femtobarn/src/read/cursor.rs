//! Objects as Rust structures: by entry of one container, or by OID wherever they are.
//!
//! What a cursor has read from it holds, up to half of the page cache's size, so that another object
//! of the same pages is read without a lock. A cursor belongs to one thread; make one for each.

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::sync::Arc;

use femtobarn_catalog::{ContainerId, DatabaseId, Oid};
use rntuple::{FromCell, Reader, Type};

use crate::error::{Error, Result};
use crate::read::snapshot::Snapshot;
use crate::read::version::Version;
use crate::read::view::View;
use crate::schema::class::LINK_CLASS;

/// Reads objects of one container as structures that `rntuple::row!` declares.
///
/// The structure's members are fields of the class, by name; there may be fewer of them.
pub struct Cursor<R> {
    view: View,
    rows: rntuple::Cursor<R, Held>,
}

/// A version as what leads to its reader.
pub(crate) struct Held(pub Arc<Version>);

impl Deref for Held {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.0.reader
    }
}

impl View {
    /// A cursor that reads objects as Rust structures.
    ///
    /// # Errors
    /// `NotFound` if a member of the structure is no field of the class; `Invalid` if it is of another
    /// type, or if the view is one of another version of the class.
    pub fn cursor<R: FromCell>(&self) -> Result<Cursor<R>> {
        let version = self.shared_version();
        let refused = |why: &str| {
            Err(Error::invalid(format!("objects of {} {why}; read values or arrays", self.path())))
        };
        if version.is_narrowed() {
            return refused("are seen as of another class than they are stored");
        }
        // Numbers in the place of links, or the other way about, would be of other databases.
        let is_other = |(name, of): &(String, Type)| {
            let field = version.class.fields.iter().find(|field| field.name == *name);
            field.is_some_and(|field| {
                (field.of.needs_translation() || has_links(of)) && field.of.row_type() != *of
            })
        };
        if let Type::Record { members, .. } = R::cell_type()
            && let Some((name, _)) = members.iter().find(|member| is_other(member))
        {
            return refused(&format!("have another type of field {name:?}"));
        }
        let numbers = version.link_databases.clone();
        let rows = rntuple::Cursor::new(Held(version)).map_err(Error::storage(self.path()))?;
        let rows = rows.with_numbers(numbers);
        Ok(Cursor { view: self.clone(), rows })
    }
}

impl<R: FromCell> Cursor<R> {
    /// Goes through the objects from first to last rather than to and fro: pages are let go of behind
    /// and do not push others out of the cache.
    #[must_use]
    pub fn forward(self) -> Self {
        Cursor { rows: self.rows.forward(), ..self }
    }

    /// The container.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The object at an entry.
    ///
    /// # Errors
    /// `NotFound` if there is none or it was deleted; `Corrupt` if what is stored is damaged.
    #[inline]
    pub fn get(&mut self, entry: u64) -> Result<R> {
        if self.view.is_checked() {
            self.view.check_kept()?;
            self.view.check_live(entry)?;
        }
        self.rows.get(entry).map_err(|error| Error::storage(self.view.path())(error))
    }

    /// Hands over the objects of a range of entries with their entries; deleted ones are left out.
    ///
    /// # Errors
    /// As [`get`](Self::get), and what `each` returns.
    pub fn for_each(
        &mut self,
        entries: Range<u64>,
        mut each: impl FnMut(u64, R) -> Result<()>,
    ) -> Result<()> {
        for run in self.view.live_runs(entries)? {
            for entry in run {
                let object = self.rows.get(entry);
                each(entry, object.map_err(|error| Error::storage(self.view.path())(error))?)?;
            }
        }
        Ok(())
    }
}

/// Whether a type of rows has links in it.
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
    /// The container of the last object and its cursor, and the bytes that this held at first.
    last: Option<((DatabaseId, ContainerId), usize, u64)>,
    /// Bytes that all cursors held when the last one was turned to.
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
    /// Cursors that are open at most.
    const CURSORS_MAX: usize = 1024;

    /// An object.
    ///
    /// # Errors
    /// As [`Snapshot::target`], [`View::cursor`] and [`Cursor::get`].
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

//! The databases that a transaction writes to: creating and opening them.

use femtobarn_catalog::{
    Csn, DATABASES_FOLDER, DatabaseId, DatabaseRow, DatabaseState, ErrorKind, LockGuard, LockKind,
    LockTarget,
};
use uuid::Uuid;

use super::names::renamed_or_dropped;
use super::{OpenDatabase, Transaction};
use crate::error::{Error, Result};
use crate::storage::extent::ExtentWriter;
use crate::storage::file::{self, DatabaseFile};

/// Bytes reserved by one call, at most: one TKey cannot span much more.
const RESERVED_BYTES_MAX: u64 = 1_000_000_000;

impl Transaction {
    /// Creates a database.
    ///
    /// # Errors
    /// `Exists` if the name is taken; `Invalid` if it is not a valid name; `Io` or `Full` if its file cannot
    /// be created.
    pub fn create_database(&mut self, name: &str) -> Result<DatabaseId> {
        self.create_database_in(name, None)
    }

    /// Creates a database whose file lies in a place: a folder below the federation's folder of databases,
    /// often the mount point of another disk. A missing folder is created.
    ///
    /// # Errors
    /// The errors of [`create_database`](Self::create_database); `Invalid` if `place` is not a plain folder name.
    pub fn create_database_in(&mut self, name: &str, place: Option<&str>) -> Result<DatabaseId> {
        if self.look_for_database(name)?.is_some() {
            return Err(Error::Exists { what: format!("database {name:?} already exists") });
        }
        self.new_database(name, place)
    }

    /// Opens a database by name, or creates it in a place.
    ///
    /// # Errors
    /// The errors of [`create_database_in`](Self::create_database_in), except for a name that exists.
    pub fn database_or_new(&mut self, name: &str, place: Option<&str>) -> Result<DatabaseId> {
        match self.look_for_database(name)? {
            Some(id) => Ok(id),
            None => self.new_database(name, place),
        }
    }

    fn new_database(&mut self, name: &str, place: Option<&str>) -> Result<DatabaseId> {
        place.map_or(Ok(()), femtobarn_catalog::check_place)?;
        femtobarn_catalog::check_database_name(name)?;
        let (id, uuid) = (
            self.federation.inner.writers().next_database(self.federation.catalog())?,
            Uuid::new_v4(),
        );
        let lock = self.owner.share_database(id, self.options.lock_wait)?;
        let (path, file, front) = self.create_file(name, place, id, uuid)?;
        let row = DatabaseRow {
            id,
            uuid,
            name: name.to_owned(),
            path,
            state: DatabaseState::Open,
            created: Csn::ZERO,
            epoch: 0,
        };
        let catalog = self.federation.inner.catalog.clone();
        let extents = ExtentWriter::of_new_file(file, &front, id, catalog)?;
        self.identities.insert(id, uuid);
        self.databases.insert(id, OpenDatabase { row, is_new: true, extents, _lock: lock });
        Ok(id)
    }

    /// Creates the file of a new database. If a killed process left a file of that name, the new file gets a
    /// part of its UUID as a suffix.
    fn create_file(
        &self,
        name: &str,
        place: Option<&str>,
        id: DatabaseId,
        uuid: Uuid,
    ) -> Result<(String, DatabaseFile, Vec<u8>)> {
        let folder = match place {
            Some(place) => format!("{DATABASES_FOLDER}/{place}"),
            None => DATABASES_FOLDER.to_owned(),
        };
        let plain = format!("{folder}/{name}.root");
        let distinct = format!("{folder}/{name}-{}.root", &uuid.simple().to_string()[..8]);
        let create = |path: String| {
            let front = file::front(path.as_ref(), uuid)?;
            let file = self.federation.inner.files.create(&path, id)?;
            Ok((path, file, front))
        };
        match create(plain) {
            Err(Error::Exists { .. }) => create(distinct),
            created => created,
        }
    }

    /// Reserves space in a database's file for this process, so that a disk that is too small fails here. The
    /// rest is released when this process stops writing to the database.
    ///
    /// # Errors
    /// `Invalid` for more than 1 GB at once; `Full` if the disk has less; `Closed` for a database that takes
    /// no changes.
    pub fn reserve(&mut self, database: DatabaseId, bytes: u64) -> Result<()> {
        self.check_open()?;
        if bytes > RESERVED_BYTES_MAX {
            let what = format!("cannot reserve {bytes} bytes at once: the limit is 1 GB");
            return Err(Error::invalid(what));
        }
        self.open_database(database)?.extents.set_aside(bytes)
    }

    /// Finds a database by name, committed or created by this transaction.
    ///
    /// # Errors
    /// `NotFound`, with similar names.
    pub fn database(&mut self, name: &str) -> Result<DatabaseId> {
        self.check_open()?;
        if let Some(id) = self.own_database(name) {
            return Ok(id);
        }
        let id = match self.federation.catalog().database(name, Csn::MAX) {
            Ok(row) => row.id,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let Some(place) = self.expected.remove(name) else { return Err(error.into()) };
                // It also asks for the head, which the new database's commit record needs.
                return self.database_or_new(name, place.as_deref());
            }
            Err(error) => return Err(error.into()),
        };
        self.found = Some(id);
        if self.has_renamed(id) { Err(renamed_or_dropped(name)) } else { Ok(id) }
    }

    /// Like [`database`](Self::database) or, with `create`, [`database_or_new`](Self::database_or_new), but without
    /// asking a server about a database that this process wrote to before. Then the number is a guess, which the next
    /// call that names the database verifies. If the database no longer exists, that call or the commit creates it.
    ///
    /// # Errors
    /// The errors of these two, now or at that call.
    pub fn expect_database(
        &mut self,
        name: &str,
        create: bool,
        place: Option<&str>,
    ) -> Result<DatabaseId> {
        self.check_open()?;
        // Asking a local catalogue is faster than guessing.
        let is_at_server = self.federation.catalog().session().is_some();
        if is_at_server
            && self.own_database(name).is_none()
            && let Some(id) = self.last_database(name)
        {
            if create {
                self.expected.insert(name.to_owned(), place.map(str::to_owned));
            }
            return Ok(id);
        }
        if create { self.database_or_new(name, place) } else { self.database(name) }
    }

    /// Creates the databases that are to be created if they do not exist, unless the transaction found them since.
    pub(super) fn create_expected(&mut self) -> Result<()> {
        for (name, place) in std::mem::take(&mut self.expected) {
            self.database_or_new(&name, place.as_deref())?;
        }
        Ok(())
    }

    /// Creates the database of a name if it is to be created and does not exist, before the name belongs to another
    /// database or to none.
    pub(super) fn create_if_expected(&mut self, name: &str) -> Result<()> {
        if let Some(place) = self.expected.remove(name) {
            self.database_or_new(name, place.as_deref())?;
        }
        Ok(())
    }

    /// The database that had a name when this process last wrote to it; it may have another one now.
    pub(super) fn last_database(&self, name: &str) -> Option<DatabaseId> {
        let last = self.federation.inner.writers().database_named(name);
        last.filter(|id| !self.has_renamed(*id))
    }

    pub(super) fn open_database(&mut self, id: DatabaseId) -> Result<&mut OpenDatabase> {
        if !self.databases.contains_key(&id) {
            self.check_not_dropped(id)?;
            let share = [(LockTarget::Database(id), LockKind::Shared)];
            let (mut guards, rows) = self.owner.lock_together(&share, self.options.lock_wait)?;
            let row = match rows {
                Some(rows) => rows.database,
                None => self.federation.catalog().database_by_id(id, Csn::MAX)?,
            };
            self.insert_database(row, guards.pop().expect("the lock has a guard"))?;
        }
        Ok(self.databases.get_mut(&id).expect("the database is open or was just inserted"))
    }

    /// Takes a shared lock on a database, unless it is open. The row is read under the lock: the rest of an
    /// extent may be used only in the epoch that the row states.
    pub(super) fn share_database(&self, id: DatabaseId) -> Result<Option<LockGuard>> {
        self.check_not_dropped(id)?;
        if self.databases.contains_key(&id) {
            Ok(None)
        } else {
            Ok(Some(self.owner.share_database(id, self.options.lock_wait)?))
        }
    }

    pub(super) fn check_not_dropped(&self, id: DatabaseId) -> Result<()> {
        if self.names.dropped_databases.contains_key(&id) {
            let what = format!("database {id} was dropped by this transaction");
            return Err(Error::NotFound { what });
        }
        Ok(())
    }

    pub(super) fn insert_database(
        &mut self,
        mut row: DatabaseRow,
        shared: LockGuard,
    ) -> Result<()> {
        if let Some((_, name)) = self.names.renamed_databases.get(&row.id) {
            row.name.clone_from(name);
        }
        let open = self.federation.inner.open_database(row, shared)?;
        self.databases.insert(open.row.id, open);
        Ok(())
    }
}

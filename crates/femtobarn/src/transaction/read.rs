//! Reading within a transaction.
//!
//! Invariants:
//! 1. All reads use one snapshot, taken at the first of them, plus the transaction's own changes.
//! 2. A container that another transaction committed to after that snapshot can be appended to, but neither
//!    updated nor read with own changes.

use std::sync::Arc;

use femtobarn_catalog::{Csn, VersionRow};

use super::container::OpenContainer;
use super::{ContainerKey, Transaction, range, unopened};
use crate::error::{Error, Result};
use crate::options::Isolation;
use crate::read::snapshot::{Snapshot, split};
use crate::read::version::{ContainerVersion, VersionParts};
use crate::read::view::View;

impl Transaction {
    /// The snapshot that the transaction reads, taken at its first read. It lacks the transaction's own
    /// changes, and reads through it are not tracked for serializability; [`view`](Self::view) does both.
    ///
    /// # Errors
    /// `Unavailable` if the catalogue's server does not answer; `Io` if the catalogue cannot be read.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.check_open()?;
        if let Some(snapshot) = &self.snapshot {
            return Ok(snapshot.clone());
        }
        // Containers that are open for writing are the ones that are read, too.
        let open = self.containers.iter().filter(|(_, open)| !open.is_new);
        let open: Vec<_> = open.map(|(key, _)| (key.database, key.container)).collect();
        let snapshot = self.federation.newest_snapshot(&open)?;
        self.snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// A container by its path, such as `run7/events`, with this transaction's changes so far. The view does
    /// not show later changes; a view with changes can be read while the transaction lives.
    ///
    /// # Errors
    /// `NotFound`, with similar names; `Conflict` if the transaction has changed the container and another
    /// one committed to it since the first read; `Io` or `Full` if pending changes cannot be written.
    pub fn view(&mut self, path: &str) -> Result<View> {
        let snapshot = self.snapshot()?;
        let key = self.resolve(&snapshot, path)?;
        self.view_by_key(key)
    }

    /// The container that has a path in this transaction.
    fn resolve(&self, snapshot: &Snapshot, path: &str) -> Result<ContainerKey> {
        let (database_name, name) = split(path)?;
        let gone = || Error::NotFound {
            what: format!("{path} was renamed or dropped by this transaction"),
        };
        let database = match self.own_database(database_name) {
            Some(id) => id,
            None => {
                let id = snapshot.database(database_name)?.id;
                if self.has_renamed(id) {
                    return Err(gone());
                }
                id
            }
        };
        if let Some(key) = self.containers.named(database, name) {
            return Ok(key);
        }
        let row = snapshot.rows(|catalog| catalog.container(database, name, snapshot.csn()))?;
        let container = row.id;
        let key = ContainerKey { database, container };
        if self.has_renamed_container(key) { Err(gone()) } else { Ok(key) }
    }

    /// Like [`view`](Self::view), by the numbers of database and container.
    ///
    /// # Errors
    /// The errors of [`view`](Self::view).
    pub fn view_by_key(&mut self, key: ContainerKey) -> Result<View> {
        let snapshot = self.snapshot()?;
        match self.containers.get(&key) {
            Some(open) if open.is_changed || self.has_renamed_container(key) => {
                self.changed_view(snapshot, key)
            }
            _ => self.note_read(snapshot.view_by_id(key.database, key.container)?),
        }
    }

    /// Records the version that was read, if the transaction is serializable.
    fn note_read(&mut self, view: View) -> Result<View> {
        if self.options.isolation == Isolation::Serializable {
            let row = view.version();
            let key = ContainerKey { database: row.database, container: row.container };
            self.reads.insert(key, row.csn);
        }
        Ok(view)
    }

    /// A view of a container with this transaction's changes.
    fn changed_view(&mut self, snapshot: Snapshot, key: ContainerKey) -> Result<View> {
        let open = self.containers.get_mut(&key).ok_or_else(unopened)?;
        let database = self.databases.get_mut(&key.database).ok_or_else(unopened)?;
        let path = format!("{}/{}", database.row.name, open.row.name);
        let what = format!("container {path}");
        let written = open.write(&mut database.extents, &what)?;
        database.extents.flush()?;
        let open = self.containers.get(&key).ok_or_else(unopened)?;
        self.check_unchanged(open, &path)?;
        let row = VersionRow {
            database: key.database,
            container: key.container,
            csn: open.base.unwrap_or(Csn::ZERO),
            header: range(&open.header),
            footer: range(&written.footer),
            annex: written.annex,
            record: Default::default(),
            class_version: open.class.version,
            entries: written.entries,
            deleted: written.deleted,
            bytes: written.bytes,
        };
        let database = &self.databases[&key.database];
        // The database's epoch may have changed since it was opened, and cached pages are keyed by epoch.
        let epoch = if database.is_new {
            database.row.epoch
        } else {
            self.federation.catalog().database_by_id(key.database, Csn::MAX)?.epoch
        };
        let parts = VersionParts {
            row: &row,
            epoch,
            what,
            source: database.extents.file().clone(),
            class: open.class.clone(),
            deletions: open.deletions.clone(),
            targets: open.targets.clone(),
            writer: Some(Arc::downgrade(&self.life)),
        };
        let version = self.federation.inner.versions().open_parts(parts)?;
        let opened = ContainerVersion {
            database: database.row.name.clone(),
            container: open.row.clone(),
            version: Arc::new(version),
        };
        Ok(View::new(snapshot, Arc::new(opened)))
    }

    /// Checks that a container has not changed since this transaction's first read.
    pub(super) fn check_unchanged(&self, open: &OpenContainer, path: &str) -> Result<()> {
        self.check_not_changed_since_read(open.base, path)
    }

    /// Checks that a version is part of the snapshot that this transaction reads.
    pub(super) fn check_not_changed_since_read(
        &self,
        version: Option<Csn>,
        path: &str,
    ) -> Result<()> {
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        match version {
            Some(csn) if csn > snapshot.csn() => Err(Error::Conflict {
                what: format!(
                    "{path} was changed by commit {csn}, and this transaction reads commit {}; \
                     roll back and retry in a new transaction",
                    snapshot.csn()
                ),
            }),
            _ => Ok(()),
        }
    }
}

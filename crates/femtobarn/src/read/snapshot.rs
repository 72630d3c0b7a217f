//! Snapshots: the whole federation as of one commit.
//!
//! A snapshot pins its commit, so vacuum keeps all that it can read until the snapshot, its clones and views
//! are gone. A server that was away may have given it up meanwhile: reads fail then.

use std::collections::HashMap;
use std::sync::Arc;

use femtobarn_catalog::{
    Catalogue, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow, NewestRows, Oid, PinGuard,
    TagRow, VersionRow,
};
use parking_lot::Mutex;
use rntuple::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::federation::Federation;
use crate::read::version::ContainerVersion;
use crate::read::view::View;

/// Containers that a snapshot retains, which bounds its memory however many are read.
const OPENED_MAX: usize = 4096;

type OpenedContainers = HashMap<(DatabaseId, ContainerId), Arc<ContainerVersion>>;

/// A point in a federation's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest commit.
    Newest,
    /// This commit.
    Commit(Csn),
    /// The commit that this tag names.
    Tag(String),
    /// The newest commit at this time, in microseconds since 1970.
    Time(i64),
}

/// The federation as of a commit. It never changes.
#[derive(Clone)]
pub struct Snapshot {
    federation: Federation,
    csn: Csn,
    /// Keeps vacuum from its versions.
    pin: PinGuard,
    /// Databases whose rows the pin returned.
    databases: Arc<[DatabaseRow]>,
    /// Containers that were opened, so that the catalogue is asked once for each.
    opened: Arc<Mutex<OpenedContainers>>,
}

impl Federation {
    /// The federation as of a commit; without one, as of the newest.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the commit does not exist, or its snapshot was
    /// given up.
    pub fn snapshot(&self, csn: Option<Csn>) -> Result<Snapshot> {
        self.snapshot_at(&csn.map_or(At::Newest, At::Commit))
    }

    /// The federation as of a moment. While the snapshot, a clone or a view of it lives, vacuum keeps everything that
    /// it can read.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if there is no such commit or tag, or its snapshot
    /// was given up.
    pub fn snapshot_at(&self, at: &At) -> Result<Snapshot> {
        let catalog = self.catalog();
        let csn = match at {
            At::Newest => return self.newest_snapshot(&[]),
            At::Commit(csn) => *csn,
            At::Tag(name) => catalog.tag(name)?.csn,
            At::Time(time_us) => catalog.snapshot_at_time(*time_us)?,
        };
        let head = self.head()?;
        if csn > head {
            return Err(Error::NotFound {
                what: format!("commit {csn} does not exist; the newest is {head}"),
            });
        }
        Ok(Snapshot::new(self.clone(), csn, catalog.pin(csn)?))
    }

    /// The newest snapshot, in which these containers will be read.
    pub(crate) fn newest_snapshot(
        &self,
        containers: &[(DatabaseId, ContainerId)],
    ) -> Result<Snapshot> {
        let (csn, pin, databases) = self.catalog().pin_head_to_read(containers)?;
        let snapshot = Snapshot::new(self.clone(), csn, pin);
        Ok(Snapshot { databases: databases.into(), ..snapshot })
    }

    /// Tags the snapshot of a commit, or the newest one. Vacuum keeps it until the tag is removed.
    ///
    /// # Errors
    /// [`ErrorKind`](crate::ErrorKind): `Exists` if the name is in use; `NotFound` if the commit does not
    /// exist, or its snapshot was given up; `Invalid` if the name is not valid.
    pub fn tag(&self, name: &str, csn: Option<Csn>, message: &str) -> Result<TagRow> {
        let snapshot = self.snapshot(csn)?;
        Ok(self.catalog().create_tag(name, snapshot.csn(), message)?)
    }
}

impl Snapshot {
    pub(crate) fn new(federation: Federation, csn: Csn, pin: PinGuard) -> Self {
        Snapshot { federation, csn, pin, databases: Arc::default(), opened: Arc::default() }
    }

    /// The commit.
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// The federation.
    pub fn federation(&self) -> &Federation {
        &self.federation
    }

    /// All databases, by number.
    ///
    /// # Errors
    /// [`Error::Catalogue`] if the catalogue cannot be read.
    pub fn databases(&self) -> Result<Vec<DatabaseRow>> {
        self.rows(|catalog| catalog.databases(self.csn))
    }

    /// The database with a name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), with similar names.
    pub fn database(&self, name: &str) -> Result<DatabaseRow> {
        self.rows(|catalog| catalog.database(name, self.csn))
    }

    /// The containers of a database, by number.
    ///
    /// # Errors
    /// [`Error::Catalogue`] if the catalogue cannot be read.
    pub fn containers(&self, database: DatabaseId) -> Result<Vec<ContainerRow>> {
        self.rows(|catalog| catalog.containers(database, self.csn))
    }

    /// Whether a container with a path such as `run7/events` exists. Unlike a failed [`view`](Self::view), it
    /// looks for no similar names, which takes longer the more containers there are.
    ///
    /// # Errors
    /// [`Error::Catalogue`] if the catalogue cannot be read.
    pub fn has(&self, path: &str) -> Result<bool> {
        let Some((database, container)) = path.split_once('/') else { return Ok(false) };
        self.rows(|catalog| match catalog.find_database(database, self.csn)? {
            Some(found) => Ok(catalog.find_container(found.id, container, self.csn)?.is_some()),
            None => Ok(false),
        })
    }

    /// The container with a path such as `run7/events`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound), with similar names.
    pub fn view(&self, path: &str) -> Result<View> {
        let (database, container) = split(path)?;
        let (database, row) = self.rows(|catalog| {
            let database = catalog.database(database, self.csn)?;
            let row = catalog.container(database.id, container, self.csn)?;
            Ok((database, row))
        })?;
        self.open(database, row)
    }

    /// The container with these numbers.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if it is not in this snapshot.
    pub fn view_by_id(&self, database: DatabaseId, container: ContainerId) -> Result<View> {
        let known = self.opened.lock().get(&(database, container)).cloned();
        if let Some(opened) = known {
            return Ok(View::new(self.clone(), opened));
        }
        let catalog = self.federation.catalog();
        if let Ok(local) = catalog.local()
            && let Some(NewestRows { database, container: Some(row), version, .. }) =
                local.known_container(database, container, self.csn)?
        {
            return self.open_version(database, row, version);
        }
        let (database, row) = self.rows(|catalog| {
            let row = catalog.container_by_id(database, container, self.csn)?;
            let database = match self.databases.iter().find(|row| row.id == database) {
                Some(row) => row.clone(),
                None => catalog.database_by_id(database, self.csn)?,
            };
            Ok((database, row))
        })?;
        self.open(database, row)
    }

    /// An object by its OID.
    ///
    /// # Errors
    /// The errors of [`target`](Self::target).
    pub fn object(&self, oid: Oid) -> Result<Value> {
        self.target(oid)?.value(oid.entry)
    }

    fn open(&self, database: DatabaseRow, container: ContainerRow) -> Result<View> {
        let row =
            self.rows(|catalog| catalog.version(container.database, container.id, self.csn))?;
        self.kept(self.open_version(database, container, row))
    }

    /// Rows of the catalogue as of the snapshot. All of its look-ups pass here: rows of a snapshot that was given up may be
    /// gone.
    ///
    /// # Errors
    /// The errors of the catalogue; `Conflict` if the snapshot was given up.
    pub fn rows<T>(
        &self,
        look_up: impl FnOnce(&dyn Catalogue) -> femtobarn_catalog::Result<T>,
    ) -> Result<T> {
        self.kept(look_up(self.federation.catalog()).map_err(Error::from))
    }

    /// The result of a read, if the snapshot has been pinned until now. A server that was away may have given it up: its rows
    /// may be gone then, and its bytes those of later versions.
    ///
    /// # Errors
    /// `Conflict` if the snapshot was given up.
    pub(crate) fn kept<T>(&self, read: Result<T>) -> Result<T> {
        match read {
            Ok(_) if !self.pin.is_held() => Err(self.given_up()),
            Ok(read) => Ok(read),
            Err(error) => Err(self.unless_given_up(error)),
        }
    }

    /// The error of a read; `Conflict` if it failed because the snapshot was given up. Every read of bytes passes here or
    /// through [`kept`](Self::kept). Where checksums or deletions decide, the bytes of other versions are errors, so reads
    /// that succeed need not ask.
    #[cold]
    pub(crate) fn unless_given_up(&self, error: Error) -> Error {
        if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound)
            && self.pin.is_on_lease()
        {
            // The session may not have noticed yet that the server was away. If it stays away, the first error tells more.
            drop(self.federation.catalog().pin_head());
        }
        if self.pin.is_held() { error } else { self.given_up() }
    }

    fn given_up(&self) -> Error {
        Error::Conflict {
            what: format!(
                "snapshot {} was given up while its server could not be reached; read a newer one, or run the transaction \
                 again",
                self.csn
            ),
        }
    }

    fn open_version(
        &self,
        database: DatabaseRow,
        container: ContainerRow,
        row: Option<VersionRow>,
    ) -> Result<View> {
        let row = row.ok_or_else(|| Error::NotFound {
            what: format!("container {}/{} has no version", database.name, container.name),
        })?;
        let versions = self.federation.inner.versions();
        let version = versions.open(&database, &container, &row)?;
        let opened = Arc::new(ContainerVersion { database: database.name, container, version });
        if opened.version.is_settled {
            let mut known = self.opened.lock();
            if known.len() >= OPENED_MAX {
                known.clear();
            }
            known.insert((row.database, row.container), opened.clone());
        }
        Ok(View::new(self.clone(), opened))
    }
}

pub(crate) fn split(path: &str) -> Result<(&str, &str)> {
    path.split_once('/').ok_or_else(|| {
        Error::invalid(format!("invalid container path {path:?}: must be like run7/events"))
    })
}

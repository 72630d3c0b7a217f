//! The whole federation as of one commit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use femtobarn_catalog::{ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow, Oid, PinGuard};
use rntuple::Value;

use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::read::version::{Opened, Version};
use crate::read::view::View;

/// Containers that a snapshot remembers, so that it takes no more memory the more of them were read.
const OPENED_MAX: usize = 4096;

type OpenedContainers = HashMap<(DatabaseId, ContainerId), Arc<Opened>>;

/// The federation as of a commit: what it shows never changes.
#[derive(Clone)]
pub struct Snapshot {
    federation: Federation,
    csn: Csn,
    /// Keeps what it shows from being vacuumed.
    _pin: PinGuard,
    /// Containers that were looked at: a snapshot need not ask the catalogue twice.
    opened: Arc<Mutex<OpenedContainers>>,
}

impl Snapshot {
    pub(crate) fn new(federation: Federation, csn: Csn, pin: PinGuard) -> Self {
        Snapshot { federation, csn, _pin: pin, opened: Arc::default() }
    }

    /// The commit.
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// The federation.
    pub fn federation(&self) -> &Federation {
        &self.federation
    }

    /// All databases, in the order of their numbers.
    ///
    /// # Errors
    /// As the catalogue.
    pub fn databases(&self) -> Result<Vec<DatabaseRow>> {
        Ok(self.federation.catalog().databases(self.csn)?)
    }

    /// The containers of a database, in the order of their numbers.
    ///
    /// # Errors
    /// As the catalogue.
    pub fn containers(&self, database: DatabaseId) -> Result<Vec<ContainerRow>> {
        Ok(self.federation.catalog().containers(database, self.csn)?)
    }

    /// Whether there is a container with a path such as `run7/events`. Unlike a failed
    /// [`view`](Self::view) it takes no longer the more there are.
    ///
    /// # Errors
    /// As the catalogue.
    pub fn has(&self, path: &str) -> Result<bool> {
        let Some((database, container)) = path.split_once('/') else { return Ok(false) };
        let catalog = self.federation.catalog();
        match catalog.find_database(database, self.csn)? {
            Some(found) => Ok(catalog.find_container(found.id, container, self.csn)?.is_some()),
            None => Ok(false),
        }
    }

    /// The container with a path such as `run7/events`.
    ///
    /// # Errors
    /// `NotFound`, with names that are like the one asked for.
    pub fn view(&self, path: &str) -> Result<View> {
        let (database, container) = split(path)?;
        let database = self.federation.catalog().database(database, self.csn)?;
        let row = self.federation.catalog().container(database.id, container, self.csn)?;
        self.open(database, row)
    }

    /// The container with these numbers.
    ///
    /// # Errors
    /// `NotFound` if there is none in this snapshot.
    pub fn view_by_id(&self, database: DatabaseId, container: ContainerId) -> Result<View> {
        let known = self.lock_opened().get(&(database, container)).cloned();
        if let Some(opened) = known {
            return Ok(View::new(self.clone(), opened));
        }
        let catalog = self.federation.catalog();
        let row = catalog.container_by_id(database, container, self.csn)?;
        self.open(catalog.database_by_id(database, self.csn)?, row)
    }

    /// An object by its OID.
    ///
    /// # Errors
    /// As [`target`](Self::target).
    pub fn object(&self, oid: Oid) -> Result<Value> {
        self.target(oid)?.value(oid.entry)
    }

    fn open(&self, database: DatabaseRow, container: ContainerRow) -> Result<View> {
        let inner = &self.federation.inner;
        let row = inner.catalog.version(container.database, container.id, self.csn)?;
        let row = row.ok_or_else(|| Error::NotFound {
            what: format!("container {}/{} has no version", database.name, container.name),
        })?;
        // A new epoch may have moved what the version refers to.
        let key = (row.database, database.epoch, row.container, row.csn);
        let version = match inner.versions.get(&key) {
            Some(version) => version,
            None => Arc::new(Version::open(inner, &database, &container, &row)?),
        };
        let opened = Arc::new(Opened { database: database.name, container, version });
        if opened.version.is_settled {
            inner.versions.insert(key, opened.version.clone());
            let mut known = self.lock_opened();
            if known.len() >= OPENED_MAX {
                known.clear();
            }
            known.insert((row.database, row.container), opened.clone());
        }
        Ok(View::new(self.clone(), opened))
    }

    fn lock_opened(&self) -> MutexGuard<'_, OpenedContainers> {
        // The map is whole whatever happened to a thread that held it.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn split(path: &str) -> Result<(&str, &str)> {
    path.split_once('/').ok_or_else(|| {
        Error::invalid(format!("{path:?} is not the path of a container, such as run7/events"))
    })
}

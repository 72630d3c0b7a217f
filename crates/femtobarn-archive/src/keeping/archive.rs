//! [`Archive`]: the copies of a federation's databases.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{
    Catalogue, DatabaseId, DatabaseRow, DatabaseState, FilePin, LocalCatalogue, LockGuard,
    LockKind, LockTarget, ReplicaRow, ReplicaState, Residence, Role, clock,
};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::settings::{StorageSettings, StoreSettings};
use crate::stores::{ByteWatch, Store};

/// The time to wait for another operation on the same database. Staging may take longer; callers that wait for it pass
/// a time of their own.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(10);
/// The time to wait for a store's answer whether it has a copy at hand; after that, the copy counts as one to be
/// staged.
const AT_HAND_WAIT: Duration = Duration::from_secs(10);

/// The copies of a federation's databases, in the stores that its settings name.
#[derive(Debug)]
pub struct Archive {
    pub(super) catalogue: Arc<dyn Catalogue>,
    pub(super) settings: StorageSettings,
    /// The stores used so far.
    stores: Mutex<BTreeMap<String, Arc<dyn Store>>>,
}

impl Archive {
    /// The archive of a federation on this host, with the settings in its folder.
    ///
    /// # Errors
    /// `Invalid` if the settings cannot be understood; `Unsupported` if the federation is on a server.
    pub fn open(catalogue: Arc<dyn Catalogue>) -> Result<Self> {
        let settings = StorageSettings::read(catalogue.local()?.folder())?;
        Ok(Archive { catalogue, settings, stores: Mutex::default() })
    }

    /// The settings.
    pub fn settings(&self) -> &StorageSettings {
        &self.settings
    }

    /// The folder of the federation.
    pub fn folder(&self) -> PathBuf {
        self.catalogue.folder().to_owned()
    }

    /// A store by its name.
    ///
    /// # Errors
    /// `NotFound`, with the names of all stores; `Invalid` if the store's settings are wrong.
    pub fn store(&self, name: &str) -> Result<Arc<dyn Store>> {
        let mut stores = self.stores.lock();
        if let Some(store) = stores.get(name) {
            return Ok(Arc::clone(store));
        }
        let store = self.settings.open_store(name)?.ok_or_else(|| {
            let known: Vec<&str> = self.settings.stores.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let what = format!(
                "store {name:?} is not in storage.toml of {}; there are: {known}",
                self.catalogue.folder().display()
            );
            Error::NotFound { what }
        })?;
        stores.insert(name.to_owned(), Arc::clone(&store));
        Ok(store)
    }

    /// The place of a database's file and of its copies.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub fn residence(&self, database: DatabaseId) -> Result<Residence> {
        Ok(self.local()?.residence(database)?)
    }

    /// Whether readers may read in any of the stores.
    pub fn reads_in_place(&self) -> bool {
        self.settings.stores.values().any(StoreSettings::reads_in_place)
    }

    /// The copies of a database that readers may read in place, provided that the stores have them at hand.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub fn in_place(&self, database: DatabaseId) -> Result<Vec<ReplicaRow>> {
        let may_be_read = |replica: &ReplicaRow| {
            let store = self.settings.stores.get(&replica.store);
            replica.is_complete() && store.is_some_and(StoreSettings::reads_in_place)
        };
        let mut replicas = self.residence(database)?.replicas;
        replicas.retain(may_be_read);
        Ok(replicas)
    }

    /// The store of a copy, after it has confirmed within ten seconds that it has the whole copy at hand.
    ///
    /// # Errors
    /// `NotBefore` if it must bring the copy online first; `Corrupt` if the copy has another size; `Stopped` if the
    /// store takes too long; otherwise the errors of the store.
    pub fn at_hand(&self, replica: &ReplicaRow) -> Result<Arc<dyn Store>> {
        let store = self.store(&replica.store)?;
        let began = clock::now();
        // With size 0, so that no store computes the checksum.
        let found = store.examine(&replica.key, 0, &mut |_| began.elapsed() < AT_HAND_WAIT)?;
        if found.size != replica.size {
            let (place, key, size) = (store.place(), &replica.key, replica.size);
            let what = format!("{place} has {} of the {size} bytes of {key}", found.size);
            return Err(Error::Corrupt { what });
        }
        if found.is_offline {
            let what = format!("{} must first bring {} online", store.place(), replica.key);
            return Err(Error::NotBefore { wait: AT_HAND_WAIT, what });
        }
        Ok(store)
    }

    /// The number of files that a store moves at once without one slowing down another.
    pub(crate) fn streams_of(&self, store: &str) -> usize {
        self.settings.stores.get(store).map_or(1, StoreSettings::streams).max(1)
    }

    /// Whether a database's file is at its place.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub fn is_on_disk(&self, database: DatabaseId) -> Result<bool> {
        Ok(self.path_of(&self.local()?.any_database_by_id(database)?).is_file())
    }

    /// The last name of a database, even a dropped one; `None` if it no longer exists.
    pub fn name_of(&self, database: DatabaseId) -> Option<String> {
        let row = self.local().ok()?.any_database_by_id(database).ok()?;
        Some(row.name)
    }

    /// Pins a database's file to the disk, without staging it.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub fn pin(&self, database: DatabaseId, pin: &FilePin) -> Result<()> {
        Ok(self.local()?.pin_file(database, pin)?)
    }

    /// Ends a holder's pin; returns whether there was one.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub fn unpin(&self, database: DatabaseId, holder: &str) -> Result<bool> {
        Ok(self.local()?.unpin_file(database, holder)?)
    }

    /// Like [`pin`](Self::pin), for many databases at once. Databases that no longer exist are skipped.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub fn pin_all(&self, databases: &[DatabaseId], pin: &FilePin) -> Result<()> {
        Ok(self.local()?.pin_files(databases, pin)?)
    }

    /// Ends a holder's pins of many databases.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub fn unpin_all(&self, databases: &[DatabaseId], holder: &str) -> Result<()> {
        Ok(self.local()?.unpin_files(databases, holder)?)
    }

    /// Records another state of a copy.
    pub(super) fn record_state(&self, replica: &ReplicaRow, state: ReplicaState) -> Result<()> {
        let changed = ReplicaRow { state, changed_us: clock::utc_us(), ..replica.clone() };
        Ok(self.local()?.record_replica(&changed)?)
    }

    /// Whether this federation takes changes itself, rather than following a leader.
    pub(super) fn leads(&self) -> Result<bool> {
        Ok(self.local()?.role()? == Role::Leader)
    }

    pub(super) fn local(&self) -> Result<&LocalCatalogue> {
        Ok(self.catalogue.local()?)
    }

    /// The path of a database's file.
    pub(super) fn path_of(&self, database: &DatabaseRow) -> PathBuf {
        // Joining an absolute path replaces the folder.
        self.catalogue.folder().join(&database.path)
    }

    /// Takes a database's lock, which excludes other processes that move its bytes, and returns its newest row. The
    /// watch is called while another process holds the lock.
    pub(super) fn lock(
        &self,
        database: DatabaseId,
        wait: Duration,
        watch: &mut ByteWatch<'_>,
    ) -> Result<(LockGuard, DatabaseRow)> {
        let target = LockTarget::Database(database);
        let waits = self.catalogue.locks().owner().queue(target, LockKind::Exclusive)?;
        let lock = waits.wait_while(wait, &mut || {
            let stopped = || Error::Stopped { what: format!("waiting for database {database}") };
            watch(0).then_some(()).ok_or_else(stopped)
        })?;
        Ok((lock, self.local()?.any_database_by_id(database)?))
    }
}

/// The error for an operation that only the leader of the federation may do.
pub(super) fn led_elsewhere() -> Error {
    let what = "the rules are applied at the leader of the federation, which removes objects, too; this folder \
                does not lead it";
    Error::Denied { what: what.to_owned() }
}

/// Refuses a database that still changes, or whose file belongs to another owner.
pub(super) fn check_sealed(row: &DatabaseRow) -> Result<()> {
    let why = match row.state {
        DatabaseState::Sealed => return Ok(()),
        DatabaseState::Open => "takes commits; seal it first",
        DatabaseState::Attached => {
            "is attached: its file belongs to its creator; import the file instead (femtobarn import --ntuples), and \
             seal the new database"
        }
    };
    Err(Error::Invalid { what: format!("database {:?} {why}", row.name) })
}

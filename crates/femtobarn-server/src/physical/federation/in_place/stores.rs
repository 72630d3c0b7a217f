//! The stores in which a federation's databases are read: threads that read there, unreachable stores, and counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use femtobarn_archive::{Archive, Error, ObjectRange, Result, Store};
use femtobarn_catalog::{DatabaseId, ReplicaRow, clock};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::physical::federation::budget::Budget;

/// The most concurrent calls to one store.
const CALLS_MAX: usize = 10;
/// How long a store that did not answer is not asked again.
const AWAY_TIME: Duration = Duration::from_secs(10);
/// Bytes that were announced and not read yet, of all files together.
pub(super) const ANNOUNCED_BYTES_MAX: u64 = 64 << 20;

/// Counts since the server started.
#[derive(Debug, Default)]
pub struct InPlaceCounts {
    /// Bytes that were read of databases in stores.
    pub read: AtomicU64,
    /// Bytes that were requested from stores. Bytes that a store fetches between the ranges are not counted.
    pub fetched: AtomicU64,
    /// How many times a copy was abandoned because it could not be read.
    pub left: AtomicU64,
}

/// The stores of a federation.
#[derive(Debug)]
pub(in crate::physical::federation) struct InPlaceStores {
    archive: Arc<Archive>,
    stores: Mutex<BTreeMap<String, Arc<ReadStore>>>,
    pub budget: Arc<Budget>,
    pub counts: Arc<InPlaceCounts>,
}

/// A store, and the threads that read there.
#[derive(Debug)]
pub(super) struct ReadStore {
    store: Arc<dyn Store>,
    /// `None` while the store is dropped.
    runtime: Option<Runtime>,
    threads: Handle,
    /// When the store did not answer, and why.
    away: Mutex<Option<(Instant, String)>>,
}

impl InPlaceStores {
    /// The stores of an archive; `None` if readers may read in none of them.
    pub(in crate::physical::federation) fn of(archive: &Arc<Archive>) -> Option<Arc<Self>> {
        archive.reads_in_place().then(|| {
            Arc::new(InPlaceStores {
                archive: Arc::clone(archive),
                stores: Mutex::default(),
                budget: Budget::new(ANNOUNCED_BYTES_MAX),
                counts: Arc::default(),
            })
        })
    }

    /// A copy of a database that its store has at hand, and the store. Skips unreachable stores, and those in which a
    /// read failed.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub(super) fn copy_at_hand(
        &self,
        database: DatabaseId,
        failed: &[String],
    ) -> Result<Option<(Arc<ReadStore>, ReplicaRow)>> {
        for replica in self.archive.in_place(database)? {
            let Ok(store) = self.store(&replica.store) else { continue };
            if failed.contains(&replica.store) || store.check_not_away().is_err() {
                continue;
            }
            match self.archive.at_hand(&replica) {
                Ok(_) => return Ok(Some((store, replica))),
                Err(error) => store.note(&error),
            }
        }
        Ok(None)
    }

    fn store(&self, name: &str) -> Result<Arc<ReadStore>> {
        let mut stores = self.stores.lock();
        if let Some(store) = stores.get(name) {
            return Ok(Arc::clone(store));
        }
        let store = Arc::new(ReadStore::new(self.archive.store(name)?)?);
        stores.insert(name.to_owned(), Arc::clone(&store));
        Ok(store)
    }
}

impl ReadStore {
    fn new(store: Arc<dyn Store>) -> Result<Self> {
        // Only the runtime's pool for blocking calls is used, whose threads start on demand.
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(CALLS_MAX)
            .thread_name("femtobarn-in-place")
            .build()
            .map_err(|source| Error::Io {
                what: "cannot start threads that read in a store".to_owned(),
                source,
            })?;
        let (threads, runtime) = (runtime.handle().clone(), Some(runtime));
        Ok(ReadStore { store, runtime, threads, away: Mutex::default() })
    }

    /// Runs a call of the store when it is its turn.
    pub(super) fn in_turn(&self, call: impl FnOnce() + Send + 'static) {
        drop(self.threads.spawn_blocking(call));
    }

    /// Fills ranges of an object, unless the store is unreachable.
    pub(super) fn read(&self, key: &str, ranges: &mut [ObjectRange<'_>]) -> Result<()> {
        self.check_not_away()?;
        let read = self.store.read(key, ranges);
        match &read {
            Ok(()) => *self.away.lock() = None,
            Err(error) => self.note(error),
        }
        read
    }

    fn check_not_away(&self) -> Result<()> {
        match &*self.away.lock() {
            Some((since, why)) if since.elapsed() < AWAY_TIME => {
                Err(Error::Unavailable { what: why.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Records whether an error means that the store, rather than an object, is unreachable.
    fn note(&self, error: &Error) {
        if matches!(error, Error::Unavailable { .. } | Error::Stopped { .. }) {
            *self.away.lock() = Some((clock::now(), error.to_string()));
        }
    }
}

impl Drop for ReadStore {
    fn drop(&mut self) {
        // The last user may be a call of the runtime itself, which cannot wait for its end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

//! Handles on transactions and on the containers they write to.
//!
//! Objects that are appended one by one are gathered in a [`RowBuilder`] for each container. They go to the
//! engine when enough are gathered, before an array is appended, and before the commit. Their OIDs are known
//! at once, since only this transaction appends to a container that it has locked.
//!
//! Lock order: the interpreter before a transaction's mutex, which is waited for with the interpreter
//! unlocked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use femtobarn::{Class, ContainerId, ContainerKey, DatabaseId, Savepoint, Transaction};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::buffer::bytes_of;
use crate::columns::array_of;
use crate::containers::{container_options, find_container, series_names, series_options};
use crate::error::{OrRaise, exception};
use crate::handles::{ForkGuard, HandleGroup};
use crate::oid::PyOid;
use crate::read::snapshot::SnapshotHandle;
use crate::read::view::ViewHandle;
use crate::rows::RowBuilder;

/// Objects between two checks whether enough are gathered.
const CHECK_ROWS: usize = 16;
/// Objects gathered at most.
const ROWS_MAX: usize = 4096;
/// Bytes gathered at most, so that they stay in the processor's cache.
const BYTES_MAX: usize = 256 << 10;

/// A transaction and the objects gathered for it.
struct OpenTransaction {
    transaction: ForkGuard<Transaction>,
    gathered: BTreeMap<ContainerKey, PendingRows>,
}

struct PendingRows {
    rows: RowBuilder,
    /// Entry of the first gathered object.
    first_entry: u64,
}

impl PendingRows {
    fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.rows.size() >= BYTES_MAX
    }
}

impl OpenTransaction {
    /// Passes the objects gathered for a container to the engine.
    fn flush(&mut self, py: Python<'_>, key: ContainerKey) -> PyResult<()> {
        let Some(gathered) = self.gathered.get_mut(&key) else { return Ok(()) };
        if gathered.rows.len() == 0 {
            return Ok(());
        }
        let array = gathered.rows.take();
        gathered.first_entry += array.len() as u64;
        let transaction = self.transaction.get_mut()?;
        py.detach(|| transaction.extend(key, array)).or_raise()?;
        Ok(())
    }

    /// Passes all gathered objects to the engine.
    fn flush_all(&mut self, py: Python<'_>) -> PyResult<&mut Transaction> {
        let keys: Vec<ContainerKey> = self.gathered.keys().copied().collect();
        for key in keys {
            self.flush(py, key)?;
        }
        self.transaction.get_mut()
    }

    /// Restarts gathering from the engine's state, after a rollback, a drop or an evolution.
    fn gather_anew(&mut self, py: Python<'_>) -> PyResult<()> {
        let transaction = self.transaction.get()?;
        let keys = std::mem::take(&mut self.gathered).into_keys();
        for key in keys {
            // A container that was undone or dropped is not gathered for any more.
            if let (Ok(class), Ok(first_entry)) = (transaction.class(key), transaction.entries(key))
            {
                self.gathered
                    .insert(key, PendingRows { rows: RowBuilder::new(py, class), first_entry });
            }
        }
        Ok(())
    }

    fn entries(&self, key: ContainerKey) -> PyResult<u64> {
        match self.gathered.get(&key) {
            Some(gathered) => Ok(gathered.first_entry + gathered.rows.len() as u64),
            None => self.transaction.get()?.entries(key).or_raise(),
        }
    }
}

/// An open transaction.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct TransactionHandle {
    open: Arc<Mutex<OpenTransaction>>,
}

impl TransactionHandle {
    /// A handle on a transaction.
    pub fn new(transaction: Transaction, group: &HandleGroup) -> Self {
        let transaction = ForkGuard::new(transaction, group);
        Self {
            open: Arc::new(Mutex::new(OpenTransaction { transaction, gathered: BTreeMap::new() })),
        }
    }
}

#[pymethods]
impl TransactionHandle {
    /// Whether it has been neither committed nor rolled back.
    #[getter]
    fn active(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(lock(py, &self.open)?.transaction.is_open())
    }

    /// OpenTransaction a database, or create it with `create`; return its number.
    fn database(
        &self,
        py: Python<'_>,
        name: &str,
        create: bool,
        place: Option<&str>,
    ) -> PyResult<u32> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        let found = py.detach(|| {
            if create {
                transaction.database_or_new(name, place)
            } else {
                transaction.database(name)
            }
        });
        Ok(found.or_raise()?.0)
    }

    /// Reserve space for writes to a database.
    fn reserve(&self, py: Python<'_>, database: &str, bytes: u64) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| {
            let id = transaction.database(database)?;
            transaction.reserve(id, bytes)
        })
        .or_raise()
    }

    /// Declare a class, given as JSON.
    fn declare_class(&self, py: Python<'_>, definition: &str) -> PyResult<()> {
        let class = Class::from_json(definition).or_raise()?;
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.declare_class(&class)).or_raise()
    }

    /// OpenTransaction a container, or create it with `create`, and lock it.
    #[expect(clippy::too_many_arguments, reason = "the facade passes them by position")]
    fn container(
        &self,
        py: Python<'_>,
        database: &str,
        name: &str,
        class_: Option<&str>,
        create: bool,
        evolve: bool,
        page_size: Option<usize>,
        cluster_size: Option<u64>,
        compression: Option<&str>,
        series: Option<(String, String)>,
    ) -> PyResult<WriterHandle> {
        let class = class_.map(Class::from_json).transpose().or_raise()?;
        let series = series.map(|(clock, overlap)| series_options(&clock, &overlap)).transpose()?;
        let options = container_options(page_size, cluster_size, compression, series)?;
        let mut open = lock(py, &self.open)?;
        let transaction = if evolve { open.flush_all(py)? } else { open.transaction.get_mut()? };
        let (key, class) = py.detach(|| {
            find_container(transaction, database, name, class, create, evolve, options)
        })?;
        let entries = transaction.entries(key).or_raise()?;
        let rows = RowBuilder::new(py, &class);
        if evolve {
            open.gather_anew(py)?;
        }
        open.gathered.entry(key).or_insert(PendingRows { rows, first_entry: entries });
        Ok(WriterHandle { open: self.open.clone(), key, definition: class.to_json() })
    }

    /// Commit; return the number of the commit.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let mut open = lock(py, &self.open)?;
        open.flush_all(py)?;
        let transaction = open.transaction.take()?;
        open.gathered.clear();
        Ok(py.detach(|| transaction.commit()).or_raise()?.0)
    }

    /// Commit and continue; return the number of the commit.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<u64> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        Ok(py.detach(|| transaction.checkpoint()).or_raise()?.0)
    }

    /// Save the state of the transaction.
    fn savepoint(&self, py: Python<'_>) -> PyResult<SavepointHandle> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        let savepoint = py.detach(|| transaction.savepoint()).or_raise()?;
        Ok(SavepointHandle { savepoint })
    }

    /// Undo all changes since a savepoint.
    fn rollback_to(&self, py: Python<'_>, savepoint: &SavepointHandle) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        open.flush_all(py)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.rollback_to(&savepoint.savepoint)).or_raise()?;
        open.gather_anew(py)
    }

    /// The federation as of the transaction's first read, without its own changes.
    fn snapshot(&self, py: Python<'_>) -> PyResult<SnapshotHandle> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        let snapshot = py.detach(|| transaction.snapshot()).or_raise()?;
        Ok(SnapshotHandle::new(snapshot, open.transaction.group()))
    }

    /// A container with the transaction's changes so far.
    fn view(&self, py: Python<'_>, path: &str) -> PyResult<ViewHandle> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        let view = py.detach(|| transaction.view(path)).or_raise()?;
        Ok(ViewHandle::new(view, open.transaction.group()))
    }

    fn view_by_id(&self, py: Python<'_>, database: u32, container: u32) -> PyResult<ViewHandle> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        let key =
            ContainerKey { database: DatabaseId(database), container: ContainerId(container) };
        let view = py.detach(|| transaction.view_by_key(key)).or_raise()?;
        Ok(ViewHandle::new(view, open.transaction.group()))
    }

    fn drop_database(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        py.detach(|| transaction.drop_database(name)).or_raise()?;
        open.gather_anew(py)
    }

    fn rename_database(&self, py: Python<'_>, name: &str, new_name: &str) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.rename_database(name, new_name)).or_raise()
    }

    fn drop_container(&self, py: Python<'_>, database: &str, name: &str) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        let dropped = py.detach(|| {
            let database = transaction.database(database)?;
            transaction.drop_container(database, name)
        });
        dropped.or_raise()?;
        open.gather_anew(py)
    }

    fn rename_container(
        &self,
        py: Python<'_>,
        database: &str,
        name: &str,
        new_name: &str,
    ) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        let renamed = py.detach(|| {
            let database = transaction.database(database)?;
            transaction.rename_container(database, name, new_name)
        });
        renamed.or_raise().map(drop)
    }

    /// Discard all changes.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        open.gathered.clear();
        if open.transaction.is_open() {
            let transaction = open.transaction.take()?;
            py.detach(|| transaction.rollback());
        }
        Ok(())
    }
}

/// A state of a transaction that it can return to.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub(crate) struct SavepointHandle {
    savepoint: Savepoint,
}

/// A container that a transaction writes to.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct WriterHandle {
    open: Arc<Mutex<OpenTransaction>>,
    key: ContainerKey,
    definition: String,
}

#[pymethods]
impl WriterHandle {
    /// The class of the objects, as JSON.
    #[getter]
    fn definition(&self) -> &str {
        &self.definition
    }

    /// The clock of a series and the meaning of overlaps in it; `None` for an ordinary container.
    #[getter]
    fn series(&self, py: Python<'_>) -> PyResult<Option<(&'static str, &'static str)>> {
        let open = lock(py, &self.open)?;
        let options = open.transaction.get()?.options(self.key).or_raise()?;
        Ok(options.series.map(series_names))
    }

    #[getter]
    fn database(&self) -> u32 {
        self.key.database.0
    }

    #[getter]
    fn container(&self) -> u32 {
        self.key.container.0
    }

    /// Number of entries, including uncommitted ones.
    #[getter]
    fn entries(&self, py: Python<'_>) -> PyResult<u64> {
        lock(py, &self.open)?.entries(self.key)
    }

    /// Append one object, of a persistent class or a dictionary, and return its OID.
    fn append(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<PyOid> {
        let mut open = lock(py, &self.open)?;
        open.transaction.get()?;
        let gathered = open.gathered.get_mut(&self.key).ok_or_else(over)?;
        gathered.rows.push(object)?;
        let entry = gathered.first_entry + gathered.rows.len() as u64 - 1;
        if gathered.rows.len().is_multiple_of(CHECK_ROWS) && gathered.is_full() {
            open.flush(py, self.key)?;
        }
        Ok(PyOid { database: self.key.database.0, container: self.key.container.0, entry })
    }

    /// Append the objects of a tree of columns.
    fn extend(&self, py: Python<'_>, tree: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = array_of(tree)?;
        let added = array.len() as u64;
        let mut open = lock(py, &self.open)?;
        open.flush(py, self.key)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.extend(self.key, array)).or_raise()?;
        if let Some(gathered) = open.gathered.get_mut(&self.key) {
            gathered.first_entry += added;
        }
        Ok(())
    }

    /// Replace fields of the objects at entries (`uint64`, as bytes) by the columns of a tree.
    fn update(
        &self,
        py: Python<'_>,
        entries: &Bound<'_, PyAny>,
        tree: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (entries, array) = (bytes_of(entries)?, array_of(tree)?);
        let entries = entries_of(&entries)?;
        let mut open = lock(py, &self.open)?;
        open.flush(py, self.key)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.update(self.key, entries, array)).or_raise()
    }

    /// Delete the objects at entries (`uint64`, as bytes); return their number.
    fn delete(&self, py: Python<'_>, entries: &Bound<'_, PyAny>) -> PyResult<u64> {
        let entries = bytes_of(entries)?;
        let entries = entries_of(&entries)?;
        let mut open = lock(py, &self.open)?;
        open.flush(py, self.key)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.delete(self.key, entries)).or_raise()
    }

    fn create_index(
        &self,
        py: Python<'_>,
        name: &str,
        fields: Vec<String>,
        unique: bool,
    ) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.create_index(self.key, name, &fields, unique)).or_raise()
    }

    fn drop_index(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.drop_index(self.key, name)).or_raise()
    }

    /// A view of the container with the transaction's changes so far.
    fn view(&self, py: Python<'_>) -> PyResult<ViewHandle> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        let view = py.detach(|| transaction.view_by_key(self.key)).or_raise()?;
        Ok(ViewHandle::new(view, open.transaction.group()))
    }
}

/// The entries (`uint64`) in a buffer.
fn entries_of(bytes: &Bytes) -> PyResult<&[u64]> {
    rntuple::values_of::<u64>(bytes).map_err(|error| exception("invalid", error.to_string()))
}

/// Locks a transaction; other Python threads run while it waits.
fn lock<'a>(
    py: Python<'_>,
    open: &'a Mutex<OpenTransaction>,
) -> PyResult<MutexGuard<'a, OpenTransaction>> {
    open.lock_py_attached(py).map_err(|_| over())
}

fn over() -> PyErr {
    exception("closed", "the transaction has ended; begin a new one".to_owned())
}

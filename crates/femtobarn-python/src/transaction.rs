//! Transactions as Python writes them.
//!
//! Objects that are appended one by one are gathered in [`RowBuilder`] of their container and go to the
//! engine when enough have come, before an array, and before the commit. Their OIDs are known at
//! once, since nobody else appends to a container whose lock this transaction holds.
//!
//! Lock order: the interpreter before a transaction's mutex, which is waited for detached.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use femtobarn::{Class, ContainerId, ContainerKey, DatabaseId, Savepoint, Transaction};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::buffer::bytes_of;
use crate::columns::array_of;
use crate::containers::{container_options, find_container};
use crate::error::{OrRaise, exception};
use crate::handles::{ForkGuard, HandleGroup};
use crate::oid::Oid;
use crate::read::snapshot::SnapshotHandle;
use crate::read::view::ViewHandle;
use crate::rows::RowBuilder;

/// After how many objects it is looked whether enough have come.
const CHECK_ROWS: usize = 16;
/// Objects gathered before they go to the engine.
const ROWS_MAX: usize = 4096;
/// Bytes gathered before they go to the engine: what stays in a processor's cache until it does.
const BYTES_MAX: usize = 256 << 10;

/// A transaction with the objects on their way to it.
struct Open {
    transaction: ForkGuard<Transaction>,
    gathered: BTreeMap<ContainerKey, PendingRows>,
}

struct PendingRows {
    rows: RowBuilder,
    /// Number of the first of them in the container.
    first_entry: u64,
}

impl PendingRows {
    fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.rows.size() >= BYTES_MAX
    }
}

impl Open {
    /// Hands what was gathered for a container to the engine.
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

    /// Hands everything that was gathered to the engine.
    fn flush_all(&mut self, py: Python<'_>) -> PyResult<&mut Transaction> {
        let keys: Vec<ContainerKey> = self.gathered.keys().copied().collect();
        for key in keys {
            self.flush(py, key)?;
        }
        self.transaction.get_mut()
    }

    /// Gathers anew from what the engine has, after it went back or changed a class.
    fn gather_anew(&mut self, py: Python<'_>) -> PyResult<()> {
        let transaction = self.transaction.get()?;
        let keys = std::mem::take(&mut self.gathered).into_keys();
        for key in keys {
            // A container that is gone with what was undone has no class any more.
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

/// A transaction under way.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct TransactionHandle {
    open: Arc<Mutex<Open>>,
}

impl TransactionHandle {
    /// A handle on a transaction.
    pub fn new(transaction: Transaction, group: &HandleGroup) -> Self {
        let transaction = ForkGuard::new(transaction, group);
        Self { open: Arc::new(Mutex::new(Open { transaction, gathered: BTreeMap::new() })) }
    }
}

#[pymethods]
impl TransactionHandle {
    /// Whether it has neither been committed nor rolled back.
    #[getter]
    fn active(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(lock(py, &self.open)?.transaction.is_open())
    }

    /// Finds a database, or makes it if asked to; returns its number.
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

    /// Sets space aside for what is written to a database.
    fn reserve(&self, py: Python<'_>, database: &str, bytes: u64) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| {
            let id = transaction.database(database)?;
            transaction.reserve(id, bytes)
        })
        .or_raise()
    }

    /// Declares a class, given as JSON.
    fn declare_class(&self, py: Python<'_>, definition: &str) -> PyResult<()> {
        let class = Class::from_json(definition).or_raise()?;
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.declare_class(&class)).or_raise()
    }

    /// Finds a container, or makes it if asked to, and locks it.
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
    ) -> PyResult<WriterHandle> {
        let class = class_.map(Class::from_json).transpose().or_raise()?;
        let options = container_options(page_size, cluster_size, compression)?;
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

    /// Makes everything durable and visible; returns the number of the commit.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let mut open = lock(py, &self.open)?;
        open.flush_all(py)?;
        let transaction = open.transaction.take()?;
        open.gathered.clear();
        Ok(py.detach(|| transaction.commit()).or_raise()?.0)
    }

    /// Commits and goes on; returns the number of the commit.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<u64> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        Ok(py.detach(|| transaction.checkpoint()).or_raise()?.0)
    }

    /// Remembers everything as it is now.
    fn savepoint(&self, py: Python<'_>) -> PyResult<SavepointHandle> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        let savepoint = py.detach(|| transaction.savepoint()).or_raise()?;
        Ok(SavepointHandle { savepoint })
    }

    /// Undoes everything since a savepoint.
    fn rollback_to(&self, py: Python<'_>, savepoint: &SavepointHandle) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        open.flush_all(py)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.rollback_to(&savepoint.savepoint)).or_raise()?;
        open.gather_anew(py)
    }

    /// The federation as of the transaction's first read, without what it changed itself.
    fn snapshot(&self, py: Python<'_>) -> PyResult<SnapshotHandle> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        let snapshot = py.detach(|| transaction.snapshot()).or_raise()?;
        Ok(SnapshotHandle::new(snapshot, open.transaction.group()))
    }

    /// A container with what the transaction has changed in it so far.
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

    /// Forgets everything.
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

/// A moment within a transaction that it can go back to.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub(crate) struct SavepointHandle {
    savepoint: Savepoint,
}

/// A container that is written to.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct WriterHandle {
    open: Arc<Mutex<Open>>,
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

    #[getter]
    fn database(&self) -> u32 {
        self.key.database.0
    }

    #[getter]
    fn container(&self) -> u32 {
        self.key.container.0
    }

    /// Number of objects, those not yet committed included.
    #[getter]
    fn entries(&self, py: Python<'_>) -> PyResult<u64> {
        lock(py, &self.open)?.entries(self.key)
    }

    /// Append one object, of a persistent class or a dictionary, and return its OID.
    fn append(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Oid> {
        let mut open = lock(py, &self.open)?;
        open.transaction.get()?;
        let gathered = open.gathered.get_mut(&self.key).ok_or_else(over)?;
        gathered.rows.push(object)?;
        let entry = gathered.first_entry + gathered.rows.len() as u64 - 1;
        if gathered.rows.len().is_multiple_of(CHECK_ROWS) && gathered.is_full() {
            open.flush(py, self.key)?;
        }
        Ok(Oid { database: self.key.database.0, container: self.key.container.0, entry })
    }

    /// Appends the objects of a tree of columns.
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

    /// Replaces fields of the objects at entries (`uint64`, as bytes) by the columns of a tree.
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

    /// Deletes the objects at entries (`uint64`, as bytes); returns their number.
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

    /// A view of the container with what the transaction has changed in it so far.
    fn view(&self, py: Python<'_>) -> PyResult<ViewHandle> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        let view = py.detach(|| transaction.view_by_key(self.key)).or_raise()?;
        Ok(ViewHandle::new(view, open.transaction.group()))
    }
}

/// The numbers (`uint64`) in a buffer.
fn entries_of(bytes: &Bytes) -> PyResult<&[u64]> {
    rntuple::values_of::<u64>(bytes).map_err(|error| exception("invalid", error.to_string()))
}

/// Locks a transaction, letting other Python threads run while it waits.
fn lock<'a>(py: Python<'_>, open: &'a Mutex<Open>) -> PyResult<MutexGuard<'a, Open>> {
    open.lock_py_attached(py).map_err(|_| over())
}

fn over() -> PyErr {
    exception("closed", "the transaction is over; begin another".to_owned())
}

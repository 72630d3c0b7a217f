//! Handles on transactions and on the containers they write to.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use femtobarn::{Class, ContainerId, ContainerKey, DatabaseId, Savepoint, Transaction};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::buffer::bytes_of;
use crate::columns::array_of;
use crate::containers::{container_options, find_container, series_names, series_options};
use crate::error::{OrRaise, exception};
use crate::handles::{ForkGuard, HandleGroup};
use crate::oid::PyOid;
use crate::open_transaction::{OpenTransaction, lock};
use crate::progress::stoppable;
use crate::read::snapshot::SnapshotHandle;
use crate::read::view::ViewHandle;
use crate::tasks::receipt_of;
use crate::text::Text;

/// An open transaction.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct TransactionHandle {
    open: Arc<Mutex<OpenTransaction>>,
}

impl TransactionHandle {
    /// A handle on a transaction.
    pub fn new(transaction: Transaction, group: &HandleGroup) -> Self {
        let open = OpenTransaction::new(ForkGuard::new(transaction, group));
        Self { open: Arc::new(Mutex::new(open)) }
    }

    /// Runs an operation on the transaction, with all gathered objects passed on.
    ///
    /// # Errors
    /// `ClosedError` if the transaction has ended; those of the operation.
    pub fn with<T>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut Transaction, &HandleGroup) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut open = lock(py, &self.open)?;
        open.flush_all(py)?;
        let OpenTransaction { transaction, .. } = &mut *open;
        let group = transaction.group().clone();
        operation(transaction.get_mut()?, &group)
    }
}

#[pymethods]
impl TransactionHandle {
    /// Whether it has been neither committed nor rolled back.
    #[getter]
    fn active(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(lock(py, &self.open)?.transaction.is_open())
    }

    /// Open a database, or create it with `create`; return its number.
    fn database(
        &self,
        py: Python<'_>,
        name: Text,
        create: bool,
        place: Option<Text>,
    ) -> PyResult<u32> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        let place = place.as_deref();
        Ok(stoppable(py, || transaction.expect_database(&name, create, place).or_raise())?.0)
    }

    /// Reserve space for writes to a database.
    fn reserve(&self, py: Python<'_>, database: Text, bytes: u64) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        stoppable(py, || {
            let id = transaction.database(&database).or_raise()?;
            transaction.reserve(id, bytes).or_raise()
        })
    }

    /// Declare a class, given as JSON.
    fn declare_class(&self, py: Python<'_>, definition: Text) -> PyResult<()> {
        let class = Class::from_json(&definition).or_raise()?;
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.declare_class(&class)).or_raise()
    }

    /// Open a container, or create it with `create`, and lock it.
    #[expect(clippy::too_many_arguments, reason = "the facade passes them by position")]
    fn container(
        &self,
        py: Python<'_>,
        database: Text,
        name: Text,
        class_: Option<Text>,
        create: bool,
        evolve: bool,
        page_size: Option<usize>,
        cluster_size: Option<u64>,
        compression: Option<Text>,
        series: Option<(Text, Text)>,
    ) -> PyResult<WriterHandle> {
        let class = class_.as_deref().map(Class::from_json).transpose().or_raise()?;
        let series = series.map(|(clock, overlap)| series_options(&clock, &overlap)).transpose()?;
        let options = container_options(page_size, cluster_size, compression.as_deref(), series)?;
        let mut open = lock(py, &self.open)?;
        let transaction = if evolve { open.flush_all(py)? } else { open.transaction.get_mut()? };
        let (key, class) = stoppable(py, || {
            find_container(transaction, &database, &name, class, create, evolve, options)
        })?;
        if evolve {
            open.gather_anew()?;
        }
        open.gather_for(key)?;
        Ok(WriterHandle { open: self.open.clone(), key, class })
    }

    /// Commit; return the number of the commit.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let mut open = lock(py, &self.open)?;
        open.flush_all(py)?;
        let transaction = open.transaction.take()?;
        open.clear();
        Ok(py.detach(|| transaction.commit()).or_raise()?.0)
    }

    /// Commit and continue; return the number of the commit.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<u64> {
        let csn =
            self.with(py, |transaction, _| py.detach(|| transaction.checkpoint()).or_raise())?;
        lock(py, &self.open)?.forget_views();
        Ok(csn.0)
    }

    /// Save the state of the transaction.
    fn savepoint(&self, py: Python<'_>) -> PyResult<SavepointHandle> {
        let saved =
            self.with(py, |transaction, _| py.detach(|| transaction.savepoint()).or_raise());
        Ok(SavepointHandle { savepoint: saved? })
    }

    /// Undo all changes since a savepoint.
    fn rollback_to(&self, py: Python<'_>, savepoint: &SavepointHandle) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        open.discard_updates();
        let transaction = open.flush_all(py)?;
        py.detach(|| transaction.rollback_to(&savepoint.savepoint)).or_raise()?;
        open.gather_anew()
    }

    /// The federation as of the transaction's first read, without its own changes.
    fn snapshot(&self, py: Python<'_>) -> PyResult<SnapshotHandle> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        let snapshot = py.detach(|| transaction.snapshot()).or_raise()?;
        Ok(SnapshotHandle::new(snapshot, open.transaction.group()))
    }

    /// A container with the transaction's changes so far.
    fn view(&self, py: Python<'_>, path: Text) -> PyResult<ViewHandle> {
        self.with(py, |transaction, group| {
            let view = py.detach(|| transaction.view(&path)).or_raise()?;
            Ok(ViewHandle::new(view, group))
        })
    }

    fn view_by_id(&self, py: Python<'_>, database: u32, container: u32) -> PyResult<ViewHandle> {
        let key =
            ContainerKey { database: DatabaseId(database), container: ContainerId(container) };
        self.with(py, |transaction, group| {
            let view = py.detach(|| transaction.view_by_key(key)).or_raise()?;
            Ok(ViewHandle::new(view, group))
        })
    }

    fn drop_database(&self, py: Python<'_>, name: Text) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        stoppable(py, || transaction.drop_database(&name).or_raise())?;
        open.gather_anew()
    }

    fn rename_database(&self, py: Python<'_>, name: Text, new_name: Text) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        stoppable(py, || transaction.rename_database(&name, &new_name).or_raise())
    }

    fn drop_container(&self, py: Python<'_>, database: Text, name: Text) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.flush_all(py)?;
        stoppable(py, || {
            let database = transaction.database(&database).or_raise()?;
            transaction.drop_container(database, &name).or_raise()
        })?;
        open.gather_anew()
    }

    fn rename_container(
        &self,
        py: Python<'_>,
        database: Text,
        name: Text,
        new_name: Text,
    ) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        let renamed = stoppable(py, || {
            let database = transaction.database(&database).or_raise()?;
            transaction.rename_container(database, &name, &new_name).or_raise()
        });
        renamed.map(drop)
    }

    /// Let tasks write to containers by their paths, or to all open ones; return the fork.
    fn fork<'py>(
        &self,
        py: Python<'py>,
        containers: Vec<Text>,
        links: Vec<Text>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let forked = self.with(py, |transaction, _| {
            let fork = py.detach(|| {
                let links = links.iter().map(|name| transaction.database(name));
                let links = links.collect::<femtobarn::Result<Vec<_>>>()?;
                let keys = forked_containers(transaction, &containers)?;
                transaction.fork(&keys, &links)
            });
            fork.or_raise()
        });
        Ok(PyBytes::new(py, &forked?.encode()))
    }

    /// Append the objects that tasks wrote; return the number of tasks that were not merged before.
    fn merge(&self, py: Python<'_>, receipts: Vec<Bound<'_, PyAny>>) -> PyResult<u64> {
        let receipts = receipts.iter().map(receipt_of).collect::<PyResult<Vec<_>>>()?;
        let merged =
            self.with(py, |transaction, _| py.detach(|| transaction.merge(&receipts)).or_raise());
        lock(py, &self.open)?.gather_anew()?;
        merged
    }

    /// Discard all changes.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        open.clear();
        if open.transaction.is_open() {
            let transaction = open.transaction.take()?;
            py.detach(|| transaction.rollback());
        }
        Ok(())
    }
}

/// The open containers with some paths; all of them if none is given.
fn forked_containers(
    transaction: &mut Transaction,
    paths: &[Text],
) -> femtobarn::Result<Vec<ContainerKey>> {
    if paths.is_empty() {
        return Ok(transaction.open_containers());
    }
    let opened = paths.iter().map(|path| {
        let (database, name) = path.split_once('/').unwrap_or((path, ""));
        let database = transaction.database(database)?;
        transaction.container(database, name)
    });
    opened.collect()
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
    class: Arc<Class>,
}

#[pymethods]
impl WriterHandle {
    /// The class of the objects, as JSON.
    #[getter]
    fn definition(&self) -> String {
        self.class.to_json()
    }

    /// The clock of a series and the meaning of overlaps in it; `None` for an ordinary container.
    #[getter]
    fn series(&self, py: Python<'_>) -> PyResult<Option<(&'static str, &'static str)>> {
        let open = lock(py, &self.open)?;
        let options = open.transaction.get()?.options(self.key).or_raise()?;
        Ok(options.series.map(series_names))
    }

    /// Whether the container has a branch's changes of a series.
    #[getter]
    fn is_branch(&self, py: Python<'_>) -> PyResult<bool> {
        let open = lock(py, &self.open)?;
        let options = open.transaction.get()?.options(self.key).or_raise()?;
        Ok(options.series.is_some_and(|series| series.is_branch))
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
        let entry = lock(py, &self.open)?.gather_row(py, self.key, object)?;
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
        open.note_appended(self.key, added);
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

    /// Replace fields of the object at an entry by single values, by their dotted paths. Returns `False` and changes
    /// nothing if a field does not exist or cannot store its value.
    fn update_values(
        &self,
        py: Python<'_>,
        entry: u64,
        values: &Bound<'_, PyDict>,
    ) -> PyResult<bool> {
        lock(py, &self.open)?.gather_update(py, self.key, entry, values)
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
        name: Text,
        fields: Vec<Text>,
        unique: bool,
    ) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.create_index(self.key, &name, &fields, unique)).or_raise()
    }

    fn drop_index(&self, py: Python<'_>, name: Text) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.drop_index(self.key, &name)).or_raise()
    }

    /// A view of the container with the transaction's changes so far.
    fn view(&self, py: Python<'_>) -> PyResult<Py<ViewHandle>> {
        lock(py, &self.open)?.view(py, self.key)
    }
}

/// The entries (`uint64`) in a buffer.
fn entries_of(bytes: &Bytes) -> PyResult<&[u64]> {
    rntuple::values_of::<u64>(bytes).map_err(|error| exception("invalid", error.to_string()))
}

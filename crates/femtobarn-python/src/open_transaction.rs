//! An open transaction, and the changes that are gathered for it.
//!
//! Objects that are appended one by one are gathered in a [`RowBuilder`] for each container, and so are single values
//! that replace those of objects. They go to the engine when enough are gathered, before the container is read or
//! changed otherwise, and before the commit. OIDs of appended objects are known at once, since only this transaction
//! appends to a container that it has locked.
//!
//! 1. An update is validated when it is gathered. Only damage of stored data and failures of the disk are found later;
//!    after one of these the transaction can only be rolled back.
//! 2. Views are retained until the transaction ends, or is committed by a checkpoint: they pin their snapshot.
//!
//! Lock order: the interpreter before a transaction's mutex, which is waited for with the interpreter
//! unlocked.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use femtobarn::{ContainerKey, Transaction};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;

use crate::error::{OrRaise, exception};
use crate::handles::ForkGuard;
use crate::read::view::ViewHandle;
use crate::rows::RowBuilder;
use crate::text::Text;

/// Objects or updates gathered at most.
const ROWS_MAX: usize = 4096;
/// Bytes gathered at most, so that they stay in the processor's cache.
const BYTES_MAX: usize = 256 << 10;
/// Objects between two checks whether enough are gathered.
const CHECK_ROWS: usize = 16;

/// A transaction and the changes that are gathered for it.
pub(crate) struct OpenTransaction {
    pub(crate) transaction: ForkGuard<Transaction>,
    gathered: BTreeMap<ContainerKey, PendingChanges>,
    /// The view of each container that was requested last.
    views: BTreeMap<ContainerKey, Py<ViewHandle>>,
    /// Whether gathered updates could not be written.
    has_lost_updates: bool,
}

/// The changes that are gathered for a container.
struct PendingChanges {
    /// Objects to append; none before the first one.
    rows: Option<RowBuilder>,
    /// Entry of the first of them.
    first_entry: u64,
    updates: Option<PendingUpdates>,
}

/// New values of some fields of different objects.
struct PendingUpdates {
    paths: Vec<Text>,
    rows: RowBuilder,
    entries: Vec<u64>,
}

impl PendingChanges {
    fn new(first_entry: u64) -> Self {
        PendingChanges { rows: None, first_entry, updates: None }
    }

    fn count(&self) -> u64 {
        self.rows.as_ref().map_or(0, |rows| rows.len() as u64)
    }
}

fn is_full(rows: &RowBuilder) -> bool {
    rows.len() >= ROWS_MAX || rows.size() >= BYTES_MAX
}

impl OpenTransaction {
    pub(crate) fn new(transaction: ForkGuard<Transaction>) -> Self {
        let (gathered, views) = (BTreeMap::new(), BTreeMap::new());
        OpenTransaction { transaction, gathered, views, has_lost_updates: false }
    }

    /// Gathers for a container from now on.
    pub(crate) fn gather_for(&mut self, key: ContainerKey) -> PyResult<()> {
        let entries = self.transaction.get()?.entries(key).or_raise()?;
        self.gathered.entry(key).or_insert(PendingChanges::new(entries));
        Ok(())
    }

    /// Gathers an object to append, and returns its entry.
    pub(crate) fn gather_row(
        &mut self,
        py: Python<'_>,
        key: ContainerKey,
        object: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let transaction = self.transaction.get()?;
        let gathered = self.gathered.get_mut(&key).ok_or_else(over)?;
        let rows = match &mut gathered.rows {
            Some(rows) => rows,
            none => none.insert(RowBuilder::new(py, transaction.class(key).or_raise()?)),
        };
        rows.push(object)?;
        let entry = gathered.first_entry + rows.len() as u64 - 1;
        if rows.len().is_multiple_of(CHECK_ROWS) && is_full(rows) {
            self.flush(py, key)?;
        }
        Ok(entry)
    }

    /// Counts objects that were appended without being gathered.
    pub(crate) fn note_appended(&mut self, key: ContainerKey, count: u64) {
        if let Some(gathered) = self.gathered.get_mut(&key) {
            gathered.first_entry += count;
        }
    }

    /// Gathers new values of fields of an object, by their dotted paths. Returns `false` and gathers nothing if a field
    /// does not exist or cannot store its value.
    pub(crate) fn gather_update(
        &mut self,
        py: Python<'_>,
        key: ContainerKey,
        entry: u64,
        values: &Bound<'_, PyDict>,
    ) -> PyResult<bool> {
        let paths: Vec<Text> = values.keys().extract()?;
        if self.has_rows(key) || !self.takes_update(key, entry, &paths) {
            self.flush(py, key)?;
        }
        let transaction = self.transaction.get()?;
        let class = transaction.class(key).or_raise()?;
        let gathered = self.gathered.get_mut(&key).ok_or_else(over)?;
        let updates = match &mut gathered.updates {
            Some(updates) => updates,
            none => {
                let Some(rows) = RowBuilder::of_fields(py, class, &paths) else { return Ok(false) };
                none.insert(PendingUpdates { paths, rows, entries: vec![] })
            }
        };
        if updates.rows.push(values).is_err() {
            return Ok(false);
        }
        if let Err(refused) = py.detach(|| transaction.check_entries(key, &[entry])).or_raise() {
            updates.rows.undo();
            return Err(refused);
        }
        updates.entries.push(entry);
        Ok(true)
    }

    fn has_rows(&self, key: ContainerKey) -> bool {
        self.gathered.get(&key).is_some_and(|gathered| gathered.count() > 0)
    }

    /// Whether an update can join those that are gathered.
    fn takes_update(&self, key: ContainerKey, entry: u64, paths: &[Text]) -> bool {
        let updates = self.gathered.get(&key).and_then(|gathered| gathered.updates.as_ref());
        updates.is_none_or(|updates| {
            updates.paths == paths && !updates.entries.contains(&entry) && !is_full(&updates.rows)
        })
    }

    /// Passes the gathered changes of a container to the engine.
    pub(crate) fn flush(&mut self, py: Python<'_>, key: ContainerKey) -> PyResult<()> {
        if self.has_lost_updates {
            let text = "an earlier update could not be written; roll back and retry";
            return Err(exception("closed", text.to_owned()));
        }
        let Some(gathered) = self.gathered.get_mut(&key) else { return Ok(()) };
        if let Some(rows) = gathered.rows.as_mut().filter(|rows| rows.len() > 0) {
            let array = rows.take();
            gathered.first_entry += array.len() as u64;
            let transaction = self.transaction.get_mut()?;
            py.detach(|| transaction.extend(key, array)).or_raise()?;
        }
        if let Some(mut updates) = gathered.updates.take().filter(|it| !it.entries.is_empty()) {
            let values = updates.rows.take();
            let transaction = self.transaction.get_mut()?;
            let updated = py.detach(|| transaction.update(key, &updates.entries, values));
            self.has_lost_updates = updated.is_err();
            updated.or_raise()?;
        }
        Ok(())
    }

    /// Passes all that is gathered to the engine.
    pub(crate) fn flush_all(&mut self, py: Python<'_>) -> PyResult<&mut Transaction> {
        let keys: Vec<ContainerKey> = self.gathered.keys().copied().collect();
        for key in keys {
            self.flush(py, key)?;
        }
        self.transaction.get_mut()
    }

    /// Discards all gathered changes, and releases the views: the transaction has ended.
    pub(crate) fn clear(&mut self) {
        self.gathered.clear();
        self.views.clear();
    }

    /// Releases the views.
    pub(crate) fn forget_views(&mut self) {
        self.views.clear();
    }

    /// Discards gathered updates, those that were lost among them: they came after a savepoint.
    pub(crate) fn discard_updates(&mut self) {
        self.has_lost_updates = false;
        self.gathered.values_mut().for_each(|gathered| gathered.updates = None);
    }

    /// A view of a container with the changes so far: the one that was asked for last, unless it has changed.
    pub(crate) fn view(&mut self, py: Python<'_>, key: ContainerKey) -> PyResult<Py<ViewHandle>> {
        let transaction = self.flush_all(py)?;
        let view = py.detach(|| transaction.view_by_key(key)).or_raise()?;
        if let Some(last) = self.views.get(&key)
            && last.get().view()?.is_same(&view)
        {
            return Ok(last.clone_ref(py));
        }
        let handle = Py::new(py, ViewHandle::new(view, self.transaction.group()))?;
        self.views.insert(key, handle.clone_ref(py));
        Ok(handle)
    }

    /// Restarts gathering from the engine's state, after a rollback, a drop or an evolution.
    pub(crate) fn gather_anew(&mut self) -> PyResult<()> {
        let transaction = self.transaction.get()?;
        let keys = std::mem::take(&mut self.gathered).into_keys();
        for key in keys {
            // A container that was undone or dropped is not gathered for any more.
            if let Ok(first_entry) = transaction.entries(key) {
                self.gathered.insert(key, PendingChanges::new(first_entry));
            }
        }
        Ok(())
    }

    pub(crate) fn entries(&self, key: ContainerKey) -> PyResult<u64> {
        match self.gathered.get(&key) {
            Some(gathered) => Ok(gathered.first_entry + gathered.count()),
            None => self.transaction.get()?.entries(key).or_raise(),
        }
    }
}

/// Locks a transaction; other Python threads run while it waits.
pub(crate) fn lock<'a>(
    py: Python<'_>,
    open: &'a Mutex<OpenTransaction>,
) -> PyResult<MutexGuard<'a, OpenTransaction>> {
    open.lock_py_attached(py).map_err(|_| over())
}

pub(crate) fn over() -> PyErr {
    exception("closed", "the transaction has ended; begin a new one".to_owned())
}

//! An open transaction, and the objects that are gathered for it.
//!
//! Objects that are appended one by one are gathered in a [`RowBuilder`] for each container. They go to the
//! engine when enough are gathered, before an array is appended, and before the commit. Their OIDs are known
//! at once, since only this transaction appends to a container that it has locked.
//!
//! Lock order: the interpreter before a transaction's mutex, which is waited for with the interpreter
//! unlocked.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use femtobarn::{ContainerKey, Transaction};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::error::{OrRaise, exception};
use crate::handles::ForkGuard;
use crate::rows::RowBuilder;

/// Objects gathered at most.
const ROWS_MAX: usize = 4096;
/// Bytes gathered at most, so that they stay in the processor's cache.
const BYTES_MAX: usize = 256 << 10;

/// A transaction and the objects gathered for it.
pub(crate) struct OpenTransaction {
    pub(crate) transaction: ForkGuard<Transaction>,
    pub(crate) gathered: BTreeMap<ContainerKey, PendingRows>,
}

pub(crate) struct PendingRows {
    pub(crate) rows: RowBuilder,
    /// Entry of the first gathered object.
    pub(crate) first_entry: u64,
}

impl PendingRows {
    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.rows.size() >= BYTES_MAX
    }
}

impl OpenTransaction {
    /// Passes the objects gathered for a container to the engine.
    pub(crate) fn flush(&mut self, py: Python<'_>, key: ContainerKey) -> PyResult<()> {
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
    pub(crate) fn flush_all(&mut self, py: Python<'_>) -> PyResult<&mut Transaction> {
        let keys: Vec<ContainerKey> = self.gathered.keys().copied().collect();
        for key in keys {
            self.flush(py, key)?;
        }
        self.transaction.get_mut()
    }

    /// Restarts gathering from the engine's state, after a rollback, a drop or an evolution.
    pub(crate) fn gather_anew(&mut self, py: Python<'_>) -> PyResult<()> {
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

    pub(crate) fn entries(&self, key: ContainerKey) -> PyResult<u64> {
        match self.gathered.get(&key) {
            Some(gathered) => Ok(gathered.first_entry + gathered.rows.len() as u64),
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

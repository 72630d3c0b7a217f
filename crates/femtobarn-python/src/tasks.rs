//! Handles on tasks, which write for a transaction in another process, and the contents of their receipts.

use std::sync::{Mutex, MutexGuard};

use femtobarn::{Fork, Receipt, TaskWriter};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use crate::buffer::bytes_of;
use crate::columns::array_of;
use crate::error::{OrRaise, exception};
use crate::handles::{ForkGuard, HandleGroup};
use crate::rows::RowBuilder;

/// Objects gathered before they are passed on.
const ROWS_MAX: usize = 4096;
/// Bytes gathered before they are passed on, so that they stay in the processor's cache.
const BYTES_MAX: usize = 256 << 10;

/// A task that writes objects.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct TaskHandle {
    open: Mutex<OpenTask>,
}

/// A task, and the objects that are gathered for each container.
struct OpenTask {
    writer: ForkGuard<TaskWriter>,
    gathered: Vec<RowBuilder>,
}

impl TaskHandle {
    /// A handle on a task that was begun.
    pub fn new(py: Python<'_>, writer: TaskWriter, group: &HandleGroup) -> Self {
        let gathered = writer.containers().map(|(_, class)| RowBuilder::new(py, class)).collect();
        let writer = ForkGuard::new(writer, group);
        Self { open: Mutex::new(OpenTask { writer, gathered }) }
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, OpenTask>> {
        self.open.lock_py_attached(py).map_err(|_| over())
    }
}

#[pymethods]
impl TaskHandle {
    /// The path of each container, and its class as JSON.
    fn containers(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let open = self.lock(py)?;
        let containers = open.writer.get()?.containers();
        Ok(containers.map(|(path, class)| (path.to_owned(), class.to_json())).collect())
    }

    /// Append one object to the container with a number.
    fn append(&self, py: Python<'_>, number: usize, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut open = self.lock(py)?;
        open.writer()?;
        let rows = open.gathered.get_mut(number).ok_or_else(over)?;
        rows.push(object)?;
        if rows.len() >= ROWS_MAX || rows.size() >= BYTES_MAX {
            open.flush(py, number)?;
        }
        Ok(())
    }

    /// Append the objects of a tree of columns.
    fn extend(&self, py: Python<'_>, number: usize, tree: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = array_of(tree)?;
        let mut open = self.lock(py)?;
        open.flush(py, number)?;
        let writer = open.writer()?;
        py.detach(|| writer.extend(number, array)).or_raise()
    }

    /// Write everything; return the receipt.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut open = self.lock(py)?;
        open.writer()?;
        for number in 0..open.gathered.len() {
            open.flush(py, number)?;
        }
        let writer = open.writer.take()?;
        let receipt = py.detach(|| writer.finish()).or_raise()?;
        Ok(PyBytes::new(py, &receipt.encode()))
    }

    /// Discard the task's writes.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        let mut open = self.lock(py)?;
        if open.writer.is_open() {
            let writer = open.writer.take()?;
            py.detach(|| drop(writer));
        }
        Ok(())
    }
}

impl OpenTask {
    fn writer(&mut self) -> PyResult<&mut TaskWriter> {
        self.writer.group().check()?;
        self.writer.get_mut().map_err(|_| over())
    }

    fn flush(&mut self, py: Python<'_>, number: usize) -> PyResult<()> {
        let rows = self.gathered.get_mut(number).ok_or_else(over)?;
        if rows.len() == 0 {
            return Ok(());
        }
        let array = rows.take();
        let writer = self.writer()?;
        py.detach(|| writer.extend(number, array)).or_raise()
    }
}

/// The key of a receipt's task, and the number of objects that it wrote.
#[pyfunction]
pub(crate) fn read_receipt(receipt: &Bound<'_, PyAny>) -> PyResult<(String, u64)> {
    let receipt = receipt_of(receipt)?;
    Ok((receipt.task().to_owned(), receipt.entries()))
}

/// The receipt in bytes.
///
/// # Errors
/// `CorruptError` if the bytes are damaged.
pub(crate) fn receipt_of(bytes: &Bound<'_, PyAny>) -> PyResult<Receipt> {
    Receipt::decode(&bytes_of(bytes)?).or_raise()
}

/// The fork in bytes.
///
/// # Errors
/// `CorruptError` if the bytes are damaged.
pub(crate) fn fork_of(bytes: &Bound<'_, PyAny>) -> PyResult<Fork> {
    Fork::decode(&bytes_of(bytes)?).or_raise()
}

fn over() -> PyErr {
    exception("closed", "the task has ended; begin a new one".to_owned())
}

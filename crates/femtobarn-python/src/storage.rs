//! Databases in stores: migrated, staged, evicted, pinned; and staged by readers.

use femtobarn::{Applied, DatabaseRow, Federation, FilePin, ReplicaRow, Residence};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::durations::lock_wait_of;
use crate::error::OrRaise;
use crate::progress::{report_progress, watched};
use crate::text::Text;
use crate::upkeep::UpkeepHandle;

/// Copy a sealed database to a store.
#[pyfunction]
pub(crate) fn migrate<'py>(
    py: Python<'py>,
    of: &UpkeepHandle,
    database: Text,
    store: Text,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let federation = of.federation()?;
    let done =
        watched(py, progress, |watch| federation.migrate(&database, &store, watch).or_raise())?;
    replica(py, &done)
}

/// Bring a database's file back to the disk.
#[pyfunction]
pub(crate) fn stage(
    py: Python<'_>,
    of: &UpkeepHandle,
    database: Text,
    lock_wait: f64,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let (federation, wait) = (of.federation()?, lock_wait_of(lock_wait)?);
    watched(py, progress, |watch| federation.stage(&database, wait, watch).or_raise())
}

/// Remove a database's file from the disk.
#[pyfunction]
pub(crate) fn evict(py: Python<'_>, of: &UpkeepHandle, database: Text) -> PyResult<u64> {
    let federation = of.federation()?;
    watched(py, None, |watch| federation.evict(&database, watch).or_raise())
}

/// Give up the copy of a database in a store.
#[pyfunction]
pub(crate) fn discard_copy(
    py: Python<'_>,
    of: &UpkeepHandle,
    database: Text,
    store: Text,
) -> PyResult<()> {
    let federation = of.federation()?;
    watched(py, None, |watch| federation.discard_copy(&database, &store, watch).or_raise())
}

/// Pin a database's file to the disk.
#[pyfunction]
pub(crate) fn pin_file(
    py: Python<'_>,
    of: &UpkeepHandle,
    database: Text,
    holder: Text,
    until_us: Option<i64>,
) -> PyResult<()> {
    let federation = of.federation()?;
    py.detach(|| federation.pin_file(&database, &FilePin { holder: holder.into(), until_us }))
        .or_raise()
}

/// End a holder's pin; whether there was one.
#[pyfunction]
pub(crate) fn unpin_file(
    py: Python<'_>,
    of: &UpkeepHandle,
    database: Text,
    holder: Text,
) -> PyResult<bool> {
    let federation = of.federation()?;
    py.detach(|| federation.unpin_file(&database, &holder)).or_raise()
}

/// Where the files of all databases are.
#[pyfunction]
pub(crate) fn residences<'py>(py: Python<'py>, of: &UpkeepHandle) -> PyResult<Bound<'py, PyList>> {
    let federation = of.federation()?;
    let found = py.detach(|| federation.residences()).or_raise()?;
    let rows = PyList::empty(py);
    for (database, residence) in found {
        rows.append(residence_facts(py, federation, &database, &residence)?)?;
    }
    Ok(rows)
}

/// Apply the rules of `storage.toml` once.
#[pyfunction]
pub(crate) fn apply_storage_rules<'py>(
    py: Python<'py>,
    of: &UpkeepHandle,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let federation = of.federation()?;
    let done = watched(py, progress, |watch| federation.apply_storage_rules(watch).or_raise())?;
    let Applied { migrated, not_on_disk, evicted, removed, failed, .. } = done;
    let facts = PyDict::new(py);
    facts.set_item("migrated", migrated)?;
    facts.set_item("not_on_disk", not_on_disk)?;
    facts.set_item("evicted", evicted)?;
    facts.set_item("removed", removed)?;
    facts.set_item("failed", failed)?;
    Ok(facts)
}

/// Makes the readers of a federation bring back the databases that they need and that are in stores alone, with a bar
/// on a terminal. Ctrl-C stops them.
pub(crate) fn stage_for_readers(federation: &Federation) {
    federation.stage_for_readers(|stage| {
        // Readers are detached from the interpreter.
        let bar = Python::attach(|py| {
            let bar = py.import("femtobarn._storage")?.call_method0("staging_bar")?;
            PyResult::Ok(bar.unbind())
        });
        let (bar, mut was_stopped) = (bar.ok(), false);
        let staged = stage(&mut |progress| {
            let goes_on = Python::attach(|py| {
                // A terminal that is gone stops nobody; Ctrl-C and the end of the program do.
                let reported = report_progress(py, bar.as_ref(), progress);
                reported.map_or_else(|error| error.is_instance_of::<PyException>(py), |()| true)
            });
            was_stopped |= !goes_on;
            goes_on
        });
        if was_stopped {
            // The reader gets one of Femtobarn's exceptions; this raises Ctrl-C again as `KeyboardInterrupt`. SAFETY:
            // the interpreter is attached to this thread.
            Python::attach(|_| unsafe { pyo3::ffi::PyErr_SetInterrupt() });
        }
        staged
    });
}

fn residence_facts<'py>(
    py: Python<'py>,
    federation: &Federation,
    database: &DatabaseRow,
    residence: &Residence,
) -> PyResult<Bound<'py, PyDict>> {
    let replicas = PyList::empty(py);
    for row in &residence.replicas {
        replicas.append(replica(py, row)?)?;
    }
    let facts = PyDict::new(py);
    facts.set_item("database", &database.name)?;
    facts.set_item("state", residence.state().name())?;
    facts.set_item("sealed", database.state.to_string() == "sealed")?;
    facts.set_item("path", federation.folder().join(&database.path).display().to_string())?;
    facts.set_item("copies", replicas)?;
    let pins = residence.pins.iter().map(|pin| (pin.holder.clone(), pin.until_us));
    facts.set_item("pins", pins.collect::<Vec<_>>())?;
    Ok(facts)
}

fn replica<'py>(py: Python<'py>, row: &ReplicaRow) -> PyResult<Bound<'py, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("store", &row.store)?;
    facts.set_item("key", &row.key)?;
    facts.set_item("state", row.state.name())?;
    facts.set_item("size", row.size)?;
    facts.set_item("checksum", &row.checksum)?;
    facts.set_item("csn", row.as_of.0)?;
    facts.set_item("time_us", row.changed_us)?;
    Ok(facts)
}

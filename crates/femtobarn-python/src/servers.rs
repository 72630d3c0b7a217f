//! The servers of a federation that has several.

use femtobarn::{Csn, ServerRow};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::OrRaise;
use crate::text::Text;
use crate::upkeep::UpkeepHandle;

/// The servers, by name.
#[pyfunction]
pub(crate) fn site_servers<'py>(
    py: Python<'py>,
    of: &UpkeepHandle,
) -> PyResult<Bound<'py, PyList>> {
    let federation = of.federation()?;
    let found = py.detach(|| federation.catalog().servers()).or_raise()?;
    let rows = PyList::empty(py);
    for ServerRow { name, url, storage, state, is_alive, free_bytes, load, databases, .. } in found
    {
        let row = PyDict::new(py);
        row.set_item("name", name)?;
        row.set_item("url", url)?;
        row.set_item("storage", storage)?;
        row.set_item("state", state.name())?;
        row.set_item("alive", is_alive)?;
        row.set_item("free_bytes", free_bytes)?;
        row.set_item("load", load)?;
        row.set_item("databases", databases)?;
        rows.append(row)?;
    }
    Ok(rows)
}

/// The name of the server that has a database's file; none if there are not several.
#[pyfunction]
pub(crate) fn home_of(
    py: Python<'_>,
    of: &UpkeepHandle,
    database: Text,
) -> PyResult<Option<String>> {
    let catalog = of.federation()?.catalog();
    let home = py.detach(|| catalog.home(catalog.database(&database, Csn::MAX)?.id)).or_raise()?;
    Ok(home.map(|home| home.server))
}

/// Moves a database to another server; returns the bytes copied so far, or `None` once the move is complete.
#[pyfunction]
pub(crate) fn move_database(
    py: Python<'_>,
    of: &UpkeepHandle,
    database: Text,
    server: Text,
) -> PyResult<Option<u64>> {
    let catalog = of.federation()?.catalog();
    py.detach(|| catalog.move_database(catalog.database(&database, Csn::MAX)?.id, &server))
        .or_raise()
}

/// Lets a server get no new databases, or again.
#[pyfunction]
pub(crate) fn drain_server(
    py: Python<'_>,
    of: &UpkeepHandle,
    server: Text,
    undo: bool,
) -> PyResult<()> {
    let catalog = of.federation()?.catalog();
    py.detach(|| catalog.drain(&server, !undo)).or_raise()
}

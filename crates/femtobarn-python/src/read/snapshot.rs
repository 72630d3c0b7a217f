//! A federation as of a commit, as Python reads it.

use std::collections::HashMap;

use femtobarn::{ContainerId, DatabaseId, Snapshot};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::OrRaise;
use crate::handles::{ForkGuard, HandleGroup};
use crate::read::view::ViewHandle;
use crate::text::Text;

/// A federation as of a commit.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct SnapshotHandle {
    snapshot: ForkGuard<Snapshot>,
}

impl SnapshotHandle {
    /// A handle on a snapshot.
    pub fn new(snapshot: Snapshot, group: &HandleGroup) -> Self {
        Self { snapshot: ForkGuard::new(snapshot, group) }
    }

    /// The engine's snapshot, with its guard.
    pub(crate) fn guard(&self) -> &ForkGuard<Snapshot> {
        &self.snapshot
    }
}

#[pymethods]
impl SnapshotHandle {
    #[getter]
    fn csn(&self) -> PyResult<u64> {
        Ok(self.snapshot.get()?.csn().0)
    }

    fn databases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let snapshot = self.snapshot.get()?;
        let databases = py.detach(|| snapshot.databases()).or_raise()?;
        let folder = snapshot.federation().folder();
        let rows = PyList::empty(py);
        for database in databases {
            let row = PyDict::new(py);
            row.set_item("name", &database.name)?;
            row.set_item("id", database.id.0)?;
            row.set_item("uuid", database.uuid.to_string())?;
            row.set_item("state", database.state.to_string())?;
            row.set_item("path", folder.join(&database.path).display().to_string())?;
            row.set_item("created", database.created.0)?;
            rows.append(row)?;
        }
        Ok(rows)
    }

    fn containers<'py>(&self, py: Python<'py>, database: Text) -> PyResult<Bound<'py, PyList>> {
        let snapshot = self.snapshot.get()?;
        let found = py.detach(|| {
            snapshot.rows(|catalog| {
                let database = catalog.database(&database, snapshot.csn())?;
                let versions = catalog.newest_versions(database.id, snapshot.csn())?;
                let versions: HashMap<_, _> =
                    versions.into_iter().map(|it| (it.container, it)).collect();
                Ok((catalog.containers(database.id, snapshot.csn())?, versions))
            })
        });
        let (containers, versions) = found.or_raise()?;
        let rows = PyList::empty(py);
        for container in containers {
            let version = versions.get(&container.id);
            let row = PyDict::new(py);
            row.set_item("name", &container.name)?;
            row.set_item("id", container.id.0)?;
            row.set_item("class", &container.class)?;
            row.set_item("class_version", container.class_version)?;
            row.set_item("entries", version.map_or(0, |version| version.entries))?;
            row.set_item("bytes", version.map_or(0, |version| version.bytes))?;
            row.set_item("csn", version.map(|version| version.csn.0))?;
            rows.append(row)?;
        }
        Ok(rows)
    }

    /// Whether a container of this path exists.
    fn has(&self, py: Python<'_>, path: Text) -> PyResult<bool> {
        let snapshot = self.snapshot.get()?;
        py.detach(|| snapshot.has(&path)).or_raise()
    }

    fn view(&self, py: Python<'_>, path: Text) -> PyResult<ViewHandle> {
        let snapshot = self.snapshot.get()?;
        let view = py.detach(|| snapshot.view(&path)).or_raise()?;
        Ok(ViewHandle::new(view, self.snapshot.group()))
    }

    fn view_by_id(&self, py: Python<'_>, database: u32, container: u32) -> PyResult<ViewHandle> {
        let snapshot = self.snapshot.get()?;
        let ids = (DatabaseId(database), ContainerId(container));
        let view = py.detach(|| snapshot.view_by_id(ids.0, ids.1)).or_raise()?;
        Ok(ViewHandle::new(view, self.snapshot.group()))
    }
}

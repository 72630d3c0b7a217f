//! Exports to plain ROOT files.

use femtobarn::{Class, Export};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::columns::array_of;
use crate::error::{OrRaise, exception};
use crate::text::{FilePath, Text};

/// A ROOT file that objects are exported to.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct ExportHandle {
    export: Mutex<Option<Export>>,
}

#[pymethods]
impl ExportHandle {
    #[staticmethod]
    fn create(py: Python<'_>, path: FilePath, name: Text) -> PyResult<Self> {
        let export = py.detach(|| Export::create(&path, &name)).or_raise()?;
        Ok(Self { export: Mutex::new(Some(export)) })
    }

    /// Add an RNTuple for objects of a class, given as JSON; return its position.
    fn add(&self, py: Python<'_>, name: Text, definition: Text, typed: bool) -> PyResult<usize> {
        let class = Class::from_json(&definition).or_raise()?;
        let added =
            py.detach(|| self.export.lock().as_mut().map(|export| export.add(&name, class, typed)));
        added.ok_or_else(over)?.or_raise()
    }

    /// Append the objects of a tree of columns to the RNTuple at a position.
    fn append(&self, py: Python<'_>, position: usize, tree: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = array_of(tree)?;
        let appended =
            py.detach(|| self.export.lock().as_mut().map(|export| export.append(position, array)));
        appended.ok_or_else(over)?.or_raise()
    }

    /// Complete the ROOT file.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let export = self.export.lock().take().ok_or_else(over)?;
        py.detach(|| export.finish()).or_raise()
    }
}

fn over() -> PyErr {
    exception("closed", "the export has finished; begin a new one".to_owned())
}

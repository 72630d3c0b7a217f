//! Engine errors as the Python exceptions of their kinds.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// The exception class of each kind, from `femtobarn._exceptions`.
static BY_KIND: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// A Python exception of a kind, such as `not-found`.
pub(crate) fn exception(kind: &str, text: String) -> PyErr {
    Python::attach(|py| match class_of(py, kind) {
        Ok(class) => PyErr::from_type(class, text),
        Err(error) => error,
    })
}

/// The exception for an argument of the wrong type, a subclass of Python's `TypeError`.
pub(crate) fn wrong_type(text: String) -> PyErr {
    Python::attach(|py| {
        let class = py.import("femtobarn._exceptions").and_then(|it| it.getattr("WrongTypeError"));
        match class.and_then(|class| Ok(class.cast_into()?)) {
            Ok(class) => PyErr::from_type(class, text),
            Err(error) => error,
        }
    })
}

fn class_of<'py>(py: Python<'py>, kind: &str) -> PyResult<Bound<'py, pyo3::types::PyType>> {
    let classes = BY_KIND.get_or_try_init(py, || -> PyResult<Py<PyDict>> {
        let module = py.import("femtobarn._exceptions")?;
        Ok(module.getattr("BY_KIND")?.cast_into::<PyDict>()?.unbind())
    })?;
    let class = classes.bind(py).get_item(kind)?;
    let class =
        class.ok_or_else(|| PyRuntimeError::new_err(format!("no exception of kind {kind}")))?;
    Ok(class.cast_into()?)
}

/// Converts results of the engine to Python's.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception of the error's kind.
    ///
    /// # Errors
    /// The exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T, E: Into<femtobarn::Error>> OrRaise<T> for Result<T, E> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| {
            let error = error.into();
            exception(error.kind().name(), error.to_string())
        })
    }
}

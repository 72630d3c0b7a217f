//! Long operations of the engine, told to Python while they run and stopped by it.

use femtobarn::{Progress, Watch};
use pyo3::prelude::*;

use crate::error::wrong_type;

/// Runs `operation` without the interpreter's lock. `tell` is a Python function that is called with
/// what is done to what, and with the bytes done and in all; what it raises, and Ctrl-C, stop the
/// operation.
///
/// # Errors
/// `WrongTypeError` if `tell` cannot be called. What `tell` raised, `KeyboardInterrupt`, or what the operation failed of.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    tell: Option<Py<PyAny>>,
    operation: impl FnOnce(&mut Watch<'_>) -> PyResult<T> + Send,
) -> PyResult<T> {
    if let Some(tell) = tell.as_ref().map(|tell| tell.bind(py))
        && !tell.is_callable()
    {
        let text = "progress is a function that is called with what is done, to what, and the bytes done \
                    and in all, not";
        return Err(wrong_type(format!("{text} {}", tell.repr()?)));
    }
    let mut raised = None;
    let done = py.detach(|| {
        let mut watch = |progress: &Progress| {
            let heard = Python::attach(|py| {
                py.check_signals()?;
                if let Some(tell) = &tell {
                    let Progress { doing, of, done, total } = progress;
                    tell.call1(py, (*doing, of, *done, *total))?;
                }
                PyResult::Ok(())
            });
            heard.map_err(|error| raised = Some(error)).is_ok()
        };
        operation(&mut watch)
    });
    raised.map_or(done, Err)
}

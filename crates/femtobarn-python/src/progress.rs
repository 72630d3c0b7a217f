//! Long operations of the engine that Python can stop, and those that report progress to it.

use std::cell::RefCell;

use femtobarn::{Progress, Watch, interrupts};
use pyo3::prelude::*;

use crate::error::wrong_type;

thread_local! {
    /// The exception of a signal that ended a wait.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs an operation with the interpreter unlocked. Ctrl-C ends its waits for locks and for servers, but nothing else.
///
/// # Errors
/// `KeyboardInterrupt`, or another exception of a signal handler; the error of the operation.
pub(crate) fn stoppable<T: Send>(
    py: Python<'_>,
    operation: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    let done = py.detach(|| interrupts::heeding(has_raised, operation));
    RAISED.take().map_or(done, Err)
}

/// Whether the handler of a signal has raised an exception.
fn has_raised() -> bool {
    let handled = Python::attach(|py| py.check_signals());
    handled.map_err(|raised| RAISED.set(Some(raised))).is_err()
}

/// Runs `operation` with the interpreter unlocked. `on_progress` is a Python function, called with the activity, the
/// file or database, the bytes done and the total. An exception that it raises and Ctrl-C stop the operation.
///
/// # Errors
/// `WrongTypeError` if `on_progress` cannot be called; the exception that it raised; `KeyboardInterrupt`; or the error
/// of the operation.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    on_progress: Option<Py<PyAny>>,
    operation: impl FnOnce(&mut Watch<'_>) -> PyResult<T> + Send,
) -> PyResult<T> {
    if let Some(on_progress) = on_progress.as_ref().map(|on_progress| on_progress.bind(py))
        && !on_progress.is_callable()
    {
        let text = "progress must be a function of four arguments: activity, file or database, bytes done \
                    and total; got";
        return Err(wrong_type(format!("{text} {}", on_progress.repr()?)));
    }
    let mut raised = None;
    let done = stoppable(py, || {
        let mut watch = |progress: &Progress| {
            let heard = Python::attach(|py| report_progress(py, on_progress.as_ref(), progress));
            heard.map_err(|error| raised = Some(error)).is_ok()
        };
        operation(&mut watch)
    });
    raised.map_or(done, Err)
}

/// Reports progress to a Python function, if there is one.
///
/// # Errors
/// The exception that the function raises, or `KeyboardInterrupt`.
pub(crate) fn report_progress(
    py: Python<'_>,
    to: Option<&Py<PyAny>>,
    progress: &Progress,
) -> PyResult<()> {
    py.check_signals()?;
    if let Some(to) = to {
        let Progress { doing, of, done, total } = progress;
        to.call1(py, (*doing, of, *done, *total))?;
    }
    Ok(())
}

//! The group of handles on one opened federation, and whether they may be used in this process.
//!
//! A forked child inherits its parent's handles, locks and connections but must not touch them: unlocking or
//! trimming a file there would change it under the parent. So a handle works only in the process that opened
//! the federation, and a child never drops its engine objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::error::exception;
use crate::page_budget::PageBudget;

/// Forks between this process and the one that loaded the module.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Counts a fork; Python calls this in every child.
#[pyfunction]
pub(crate) fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The handles on one opened federation: closed together, valid in one process.
#[derive(Clone)]
pub struct HandleGroup {
    closed: Arc<AtomicBool>,
    forks: u32,
    page_budget: Arc<PageBudget>,
}

impl HandleGroup {
    /// A new group, of this process.
    pub fn new() -> Self {
        let forks = FORKS.load(Ordering::Relaxed);
        Self { closed: Arc::default(), forks, page_budget: Arc::default() }
    }

    /// Closes all handles of the group.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// The budget for pages that objects hold.
    pub fn page_budget(&self) -> &PageBudget {
        &self.page_budget
    }

    /// Whether this is the process that opened the federation.
    pub fn is_of_this_process(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// Whether one handle alone is left.
    fn is_last(&self) -> bool {
        Arc::strong_count(&self.closed) == 1
    }

    /// Checks that the federation is open in this process.
    ///
    /// # Errors
    /// `ClosedError` if not.
    pub fn check(&self) -> PyResult<()> {
        if !self.is_of_this_process() {
            let text = "the federation was opened before this process was forked from its parent; \
                        open it again here, or pass it as an argument, which does so";
            return Err(exception("closed", text.to_owned()));
        }
        if self.closed.load(Ordering::Relaxed) {
            Err(exception("closed", "the federation has been closed".to_owned()))
        } else {
            Ok(())
        }
    }
}

/// An engine object that is dropped only in the process that made it.
pub struct ForkGuard<T: Send> {
    value: Option<T>,
    group: HandleGroup,
}

impl<T: Send> ForkGuard<T> {
    /// Guards an object of a group.
    pub fn new(value: T, group: &HandleGroup) -> Self {
        Self { value: Some(value), group: group.clone() }
    }

    /// The group of handles.
    pub fn group(&self) -> &HandleGroup {
        &self.group
    }

    /// The object.
    ///
    /// # Errors
    /// `ClosedError` if the group is closed or the object was taken.
    pub fn get(&self) -> PyResult<&T> {
        self.group.check()?;
        self.value.as_ref().ok_or_else(over)
    }

    /// The object, mutable.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_mut(&mut self) -> PyResult<&mut T> {
        self.group.check()?;
        self.value.as_mut().ok_or_else(over)
    }

    /// Takes the object out.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn take(&mut self) -> PyResult<T> {
        self.group.check()?;
        self.value.take().ok_or_else(over)
    }

    /// Whether [`get`](Self::get) would succeed.
    pub fn is_open(&self) -> bool {
        self.value.is_some() && self.group.check().is_ok()
    }
}

impl<T: Send> Drop for ForkGuard<T> {
    fn drop(&mut self) {
        let mut value = self.value.take();
        if !self.group.is_of_this_process() {
            std::mem::forget(value);
        } else if self.group.is_last() {
            // This closes the federation, which may wait for a server: other threads go on meanwhile. Where Python
            // is ending, `value` is dropped below.
            Python::try_attach(|py| py.detach(|| drop(value.take())));
        }
    }
}

fn over() -> PyErr {
    exception("closed", "the transaction has ended; begin a new one".to_owned())
}

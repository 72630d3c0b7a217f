//! What all handles of one opened federation share, and whether they may be used here and now.
//!
//! A forked child has its parent's handles, locks and connections, but must touch none of them:
//! unlocking or trimming a file there would pull it from under the parent. So a handle answers only
//! in the process that opened it, and in a child its engine objects are never dropped.

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

/// Whether a federation is still open, and in which process it was opened.
#[derive(Clone)]
pub struct HandleGroup {
    closed: Arc<AtomicBool>,
    forks: u32,
    page_budget: Arc<PageBudget>,
}

impl HandleGroup {
    /// A session of this process.
    pub fn new() -> Self {
        let forks = FORKS.load(Ordering::Relaxed);
        Self { closed: Arc::default(), forks, page_budget: Arc::default() }
    }

    /// Ends the session for all handles.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// What objects hold of pages.
    pub fn page_budget(&self) -> &PageBudget {
        &self.page_budget
    }

    /// Whether this is the process that opened the federation.
    pub fn is_of_this_process(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// Refuses to go on where the federation is not open.
    ///
    /// # Errors
    /// `ClosedError`.
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
pub struct ForkGuard<T> {
    value: Option<T>,
    group: HandleGroup,
}

impl<T> ForkGuard<T> {
    /// Keeps an object for a session.
    pub fn new(value: T, group: &HandleGroup) -> Self {
        Self { value: Some(value), group: group.clone() }
    }

    /// The session.
    pub fn group(&self) -> &HandleGroup {
        &self.group
    }

    /// The object, if the session is open and the object has not been taken.
    ///
    /// # Errors
    /// `ClosedError`.
    pub fn get(&self) -> PyResult<&T> {
        self.group.check()?;
        self.value.as_ref().ok_or_else(over)
    }

    /// As [`get`](Self::get), to be changed.
    ///
    /// # Errors
    /// `ClosedError`.
    pub fn get_mut(&mut self) -> PyResult<&mut T> {
        self.group.check()?;
        self.value.as_mut().ok_or_else(over)
    }

    /// Takes the object out.
    ///
    /// # Errors
    /// `ClosedError`.
    pub fn take(&mut self) -> PyResult<T> {
        self.group.check()?;
        self.value.take().ok_or_else(over)
    }

    /// Whether there is an object to get.
    pub fn is_open(&self) -> bool {
        self.value.is_some() && self.group.check().is_ok()
    }
}

impl<T> Drop for ForkGuard<T> {
    fn drop(&mut self) {
        if !self.group.is_of_this_process() {
            std::mem::forget(self.value.take());
        }
    }
}

fn over() -> PyErr {
    exception("closed", "the transaction is over; begin another".to_owned())
}

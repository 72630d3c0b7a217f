//! Copies from other servers into files that clients have open.
//!
//! 1. A copy begins when its client requests that, and is made once.
//! 2. It ends at the latest when its file is closed. A copy that was cancelled before never begins.

use std::future::Future;
use std::pin::Pin;

use nix::errno::Errno;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::physical::{StorageError, StorageResult};

type CopyWork = Pin<Box<dyn Future<Output = StorageResult<()>> + Send>>;

/// A copy into an open file.
pub struct IncomingCopy {
    /// The work to do; `None` once it has begun.
    work: Mutex<Option<CopyWork>>,
    task: Mutex<Option<AbortHandle>>,
    outcome: watch::Sender<Option<StorageResult<()>>>,
}

impl IncomingCopy {
    /// A copy, made by `work`, that has not begun.
    pub fn new(work: impl Future<Output = StorageResult<()>> + Send + 'static) -> Self {
        let work: CopyWork = Box::pin(work);
        IncomingCopy {
            work: Mutex::new(Some(work)),
            task: Mutex::default(),
            outcome: watch::Sender::new(None),
        }
    }

    /// Begins the copy; false if it has begun before. Must be called within a tokio runtime.
    pub fn begin(&self) -> bool {
        // Held until the task is known, so that a cancellation finds either the work or the task.
        let mut waiting = self.work.lock();
        let Some(work) = waiting.take() else { return false };
        let outcome = self.outcome.clone();
        let task = tokio::spawn(async move {
            settle(&outcome, work.await);
        });
        *self.task.lock() = Some(task.abort_handle());
        true
    }

    /// Waits until the copy has ended.
    ///
    /// # Errors
    /// The errors of the copy; `ECANCELED` if it was cancelled.
    pub async fn outcome(&self) -> StorageResult<()> {
        let mut told = self.outcome.subscribe();
        let ended = told.wait_for(Option::is_some).await;
        ended.ok().and_then(|outcome| outcome.clone()).unwrap_or_else(|| Err(cancelled()))
    }

    /// Ends the copy, unless it has ended.
    pub fn cancel(&self) {
        let work = self.work.lock().take();
        drop(work);
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        settle(&self.outcome, Err(cancelled()));
    }
}

/// Sets the outcome, unless there is one.
fn settle(outcome: &watch::Sender<Option<StorageResult<()>>>, how: StorageResult<()>) {
    outcome.send_if_modified(|state| {
        let is_first = state.is_none();
        state.get_or_insert(how);
        is_first
    });
}

impl Drop for IncomingCopy {
    fn drop(&mut self) {
        self.cancel();
    }
}

fn cancelled() -> StorageError {
    StorageError::refused(Errno::ECANCELED, "the copy was cancelled")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_copy_begins_once_and_keeps_its_outcome() {
        let failure = StorageError::refused(Errno::EIO, "no");
        for outcome in [Ok(()), Err(failure)] {
            let expected = outcome.clone();
            let copy = IncomingCopy::new(async move { outcome });
            assert!(copy.begin() && !copy.begin());
            assert_eq!(copy.outcome().await, expected);
            copy.cancel();
            assert_eq!(copy.outcome().await, expected);
        }
    }

    #[tokio::test]
    async fn a_cancelled_copy_does_not_begin() {
        let copy = IncomingCopy::new(async { panic!("it has begun") });
        copy.cancel();
        assert!(!copy.begin());
        assert_eq!(copy.outcome().await, Err(cancelled()));
    }

    #[tokio::test]
    async fn a_dropped_copy_ends_its_work() {
        let work = Arc::new(());
        let held = Arc::clone(&work);
        let copy = IncomingCopy::new(async move {
            let _held = held;
            std::future::pending().await
        });
        copy.begin();
        copy.cancel();
        assert_eq!(copy.outcome().await, Err(cancelled()));
        drop(copy);
        while Arc::strong_count(&work) > 1 {
            tokio::task::yield_now().await;
        }
    }
}

//! Writes that were sent and not answered yet.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::attempt_error::AttemptError;
use super::connection::PendingAnswer;
use super::sink::CollectSink;

/// The unconfirmed writes of one file.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedWrites {
    /// Whether a write was ever added. Spares other files the lock.
    is_used: AtomicBool,
    sent: tokio::sync::Mutex<VecDeque<PendingAnswer>>,
    /// The error of the first write that failed.
    failed: OnceLock<AttemptError>,
}

impl UnconfirmedWrites {
    /// Whether a write is known to have failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Waits until all writes are answered.
    ///
    /// # Errors
    /// The error of the first write that failed, now or earlier.
    pub(super) async fn settle(&self) -> Result<(), AttemptError> {
        if self.is_used.load(Ordering::SeqCst) { self.settle_to(0).await } else { Ok(()) }
    }

    /// Waits until at most `count` writes are unanswered.
    ///
    /// # Errors
    /// The error of the first write that failed, now or earlier.
    pub(super) async fn settle_to(&self, count: usize) -> Result<(), AttemptError> {
        let mut sent = self.sent.lock().await;
        while sent.len() > count
            && let Some(oldest) = sent.pop_front()
        {
            if let Err(error) = oldest.receive(&mut CollectSink::default()).await {
                // The data were not kept, so the write cannot be repeated later or at another server.
                let failure = match error {
                    AttemptError::Wait(_)
                    | AttemptError::Redirect(_)
                    | AttemptError::Unreachable(_) => {
                        AttemptError::Lost("a write was not executed".to_owned())
                    }
                    other => other,
                };
                // `set` keeps the first error.
                drop(self.failed.set(failure));
            }
        }
        match self.failed.get() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    pub(super) async fn add(&self, sent: PendingAnswer) {
        self.is_used.store(true, Ordering::SeqCst);
        self.sent.lock().await.push_back(sent);
    }
}

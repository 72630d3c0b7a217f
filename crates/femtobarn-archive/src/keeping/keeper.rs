//! [`RuleKeeper`]: applies the rules repeatedly, as a server does while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use super::archive::Archive;
use super::rules::Applied;
use crate::error::{Error, Result};

/// A thread that applies the rules of an archive. Dropping it stops the current step, which the next application of the
/// rules tries again.
#[derive(Debug)]
pub struct RuleKeeper {
    is_stopped: Arc<AtomicBool>,
    thread: Thread,
}

impl RuleKeeper {
    /// Applies the rules at once, and then once per interval `every`. `report` is called with the result of each
    /// application.
    ///
    /// # Errors
    /// `Io` if no thread can be started.
    pub fn start(
        archive: Arc<Archive>,
        every: Duration,
        report: impl Fn(Result<Applied>) + Send + 'static,
    ) -> Result<Self> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let keep = move || {
            while !stopped.load(Ordering::Relaxed) {
                // A follower may be promoted later.
                if archive.leads().unwrap_or(true) {
                    match archive.apply_rules(&mut |_| !stopped.load(Ordering::Relaxed)) {
                        Err(Error::Stopped { .. }) => return,
                        applied => report(applied),
                    }
                }
                thread::park_timeout(every);
            }
        };
        let started = thread::Builder::new().name("femtobarn-rules".to_owned()).spawn(keep);
        let started = started.map_err(|source| Error::Io {
            what: "cannot start a thread for the rules of the storage".to_owned(),
            source,
        })?;
        Ok(RuleKeeper { is_stopped, thread: started.thread().clone() })
    }
}

impl Drop for RuleKeeper {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

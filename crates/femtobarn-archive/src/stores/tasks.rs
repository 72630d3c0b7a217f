//! [`StoreTasks`]: what carries the requests of a store whose client is asynchronous, for callers that are threads.

use std::sync::OnceLock;

use tokio::runtime::Runtime;

use crate::error::{Error, Result};

/// Threads that are started when they are first needed.
#[derive(Debug)]
pub(super) struct StoreTasks {
    name: &'static str,
    runtime: OnceLock<Runtime>,
}

impl StoreTasks {
    /// Threads with a name.
    pub(super) fn new(name: &'static str) -> Self {
        StoreTasks { name, runtime: OnceLock::new() }
    }

    /// The runtime of the threads.
    ///
    /// # Errors
    /// `Io` if they cannot be started.
    pub(super) fn runtime(&self) -> Result<&Runtime> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let made = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(self.name)
            .enable_all()
            .build();
        let made = made.map_err(|source| Error::Io {
            what: "cannot start threads for a store".to_owned(),
            source,
        })?;
        Ok(self.runtime.get_or_init(|| made))
    }
}

impl Drop for StoreTasks {
    fn drop(&mut self) {
        // The last one to use the store may be a task, which cannot wait for the end of others.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

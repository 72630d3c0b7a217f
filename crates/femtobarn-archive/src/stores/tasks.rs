//! [`StoreTasks`]: runs the requests of an asynchronous store client for callers that are threads. [`watched`] waits
//! for one request, as long as the caller's watch allows.

use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::store::ByteWatch;
use crate::error::{Error, Result};

/// The interval of calling the watch while nothing moves.
const WATCH_TIME: Duration = Duration::from_secs(1);
/// The time that a store gets to remove the remains of a failure.
pub(crate) const CLEAN_TIME: Duration = Duration::from_secs(10);

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
        // The last user of the store may be a task, which cannot wait for the end of others.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(super) fn stopped(what: &str, key: &str) -> Error {
    Error::Stopped { what: format!("{what} {key}") }
}

/// Waits for the result of a request about an object.
///
/// # Errors
/// `Stopped` if the watch ends it.
pub(super) async fn watched<T>(
    request: impl Future<Output = T>,
    (what, key): (&str, &str),
    done: u64,
    watch: &mut ByteWatch<'_>,
) -> Result<T> {
    let mut request = pin!(request);
    loop {
        match timeout(WATCH_TIME, &mut request).await {
            Ok(given) => return Ok(given),
            Err(_) if !watch(done) => return Err(stopped(what, key)),
            Err(_) => {}
        }
    }
}

//! A file's handle on one connection. It is closed when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::attempt_error::AttemptError;
use super::call_mode::{CallMode, block_on};
use super::connection::Connection;
use super::unconfirmed_writes::UnconfirmedWrites;
use crate::ids::FileHandle;
use crate::request::{Close, Request};

/// A file's handle, and the connection on which it is valid.
#[derive(Debug)]
pub(super) struct RemoteHandle {
    pub connection: Arc<Connection>,
    pub handle: FileHandle,
    call_mode: CallMode,
    /// Whether the handle was closed: the server may have given it to another file.
    is_closed: AtomicBool,
    pub unconfirmed: UnconfirmedWrites,
}

impl RemoteHandle {
    pub(super) fn new(
        connection: Arc<Connection>,
        handle: FileHandle,
        call_mode: CallMode,
    ) -> Self {
        let (is_closed, unconfirmed) = (AtomicBool::new(false), UnconfirmedWrites::default());
        RemoteHandle { connection, handle, call_mode, is_closed, unconfirmed }
    }

    /// Sends a request about the file, after its unconfirmed writes are answered.
    pub(super) async fn call(
        &self,
        request: impl Into<Request>,
    ) -> Result<bytes::Bytes, AttemptError> {
        self.unconfirmed.settle().await?;
        self.connection.call(&request.into(), &[]).await
    }

    /// Keeps `drop` from closing the handle.
    pub(super) fn mark_closed(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
}

impl Drop for RemoteHandle {
    /// Closes the file without waiting for the answer.
    fn drop(&mut self) {
        let (connection, handle) = (self.connection.clone(), self.handle);
        if self.is_closed.load(Ordering::SeqCst) || connection.is_lost() {
            return;
        }
        let closing = async move {
            // Callers that need the result use `File::close`.
            drop(connection.send(&Close { handle }.into(), &[], 0).await);
        };
        match (self.call_mode, tokio::runtime::Handle::try_current()) {
            (CallMode::Thread, _) => block_on(closing),
            (CallMode::Task, Ok(runtime)) => drop(runtime.spawn(closing)),
            (CallMode::Task, Err(_)) => {}
        }
    }
}

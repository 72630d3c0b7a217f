//! Open files.
//!
//! 1. A file is open on one connection at a time. After that is lost, the first caller reopens the file, and the
//!    others use the new handle.
//! 2. Writes are durable only after a sync. If the connection is lost before that, the file is not reopened:
//!    all later calls fail.
//! 3. Unconfirmed writes are answered before any other request about the file is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::attempt_error::AttemptError;
use super::error::Result;
use super::remote_handle::RemoteHandle;
use super::retry::RetryState;
use super::sink::ReadPiece;
use super::{Client, ClientError, reads, writes};
use crate::codes::{ErrorCode, QueryCode};
use crate::flags::{Mode, OpenOptions, OpenTemplateOptions, StatOptions, StatWants};
use crate::ids::FileHandle;
use crate::location::Location;
use crate::request::{Close, FileRef, Open, Query, Stat, Sync, Truncate};
use crate::response::{Answer, OpenAnswer, StatLine};

/// An open file. Callers may use it concurrently.
#[derive(Debug)]
pub struct File {
    client: Client,
    location: Location,
    options: OpenOptions,
    handle: Mutex<Arc<RemoteHandle>>,
    /// Held while the file is reopened.
    reopening: tokio::sync::Mutex<()>,
    times_reopened: AtomicU64,
    /// The number of writes, and the number of those that a sync covers.
    writes: AtomicU64,
    synced: AtomicU64,
}

impl Client {
    /// Opens a file.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the server does not open the file; [`ClientError::Unreachable`] or
    /// [`ClientError::TimedOut`] if it does not answer; [`ClientError::Lost`] if the connection was lost while
    /// a file was created with [`OpenOptions::NEW`].
    pub async fn open(&self, location: &Location, options: OpenOptions) -> Result<File> {
        let mode = Mode::OWNER_READ | Mode::OWNER_WRITE | Mode::GROUP_READ | Mode::OTHER_READ;
        let retry = self.retry(location);
        // A second attempt to create the file would find the first one's.
        let retry = if options.contains(OpenOptions::NEW) { retry.without_repeat() } else { retry };
        let handle = self.open_handle(retry, options, mode).await?;
        Ok(File {
            client: self.clone(),
            location: location.clone(),
            options,
            handle: Mutex::new(Arc::new(handle)),
            reopening: tokio::sync::Mutex::new(()),
            times_reopened: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            synced: AtomicU64::new(0),
        })
    }

    async fn open_handle(
        &self,
        retry: RetryState,
        options: OpenOptions,
        mode: Mode,
    ) -> Result<RemoteHandle> {
        let (template_options, template) = (OpenTemplateOptions::default(), FileHandle::default());
        let request =
            |location| Open { mode, options, template_options, template, location }.into();
        let (connection, body) = self.call(retry.clone(), request).await?;
        let answer = OpenAnswer::decode(&body).map_err(|error| retry.client_error(error.into()))?;
        Ok(RemoteHandle::new(connection, answer.handle, self.inner.call_mode))
    }
}

impl File {
    /// The file's path and opaque information.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// How often the file was opened again after its connection was lost. Its path may lead to other bytes by then.
    pub fn times_reopened(&self) -> u64 {
        self.times_reopened.load(Ordering::SeqCst)
    }

    /// The file's current metadata.
    ///
    /// # Errors
    /// The errors of [`File::read_at`].
    pub async fn stat(&self) -> Result<StatLine> {
        let mut retry = self.retry();
        loop {
            let opened = self.current_handle();
            let target = FileRef::Handle(opened.handle);
            let (options, wants) = (StatOptions::default(), StatWants::default());
            let answered = opened.call(Stat { options, wants, target }).await;
            match answered.and_then(|body| Ok(StatLine::decode(&body)?)) {
                Ok(line) => return Ok(line),
                Err(error) => self.recover(&mut retry, &opened, error).await?,
            }
        }
    }

    /// Whether the server is on this machine, judging by its address; it may still forward connections.
    pub fn is_on_this_machine(&self) -> bool {
        self.current_handle().connection.is_on_this_machine()
    }

    /// Sends a query about the open file, whose argument and answer the server defines (kXR_Qopaqug).
    ///
    /// # Errors
    /// The errors of [`File::read_at`]; [`ClientError::Refused`] if the server does not know the query.
    pub async fn query(&self, argument: Bytes) -> Result<Bytes> {
        let mut retry = self.retry();
        loop {
            let opened = self.current_handle();
            let (kind, handle) = (QueryCode::OPAQUE_OPEN, opened.handle);
            match opened.call(Query { kind, handle, argument: argument.clone() }).await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.recover(&mut retry, &opened, error).await?,
            }
        }
    }

    /// Reads into a buffer from `offset` on. Returns fewer bytes than fit only at the file's end.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the server cannot read the file; [`ClientError::Unreachable`] or
    /// [`ClientError::TimedOut`] if it does not answer; [`ClientError::Lost`] if the connection was lost after
    /// unsynced writes; [`ClientError::Protocol`] if the answer is malformed.
    pub async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut retry = self.retry();
        loop {
            let opened = self.current_handle();
            match reads::read(&opened, offset, buffer).await {
                Ok(count) => return Ok(count),
                Err(error) => self.recover(&mut retry, &opened, error).await?,
            }
        }
    }

    /// Like [`File::read_at`], and verifies the pages' checksums: a damaged page is read once more. If the server has
    /// no pgread, this is [`File::read_at`].
    ///
    /// # Errors
    /// [`ClientError::Damaged`] if a page arrives damaged twice, and those of [`File::read_at`].
    pub async fn read_checked(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut retry = self.retry();
        loop {
            let opened = self.current_handle();
            match reads::read_checked(&opened, offset, buffer).await {
                Ok((count, None)) => return Ok(count),
                Ok((_, Some(bad))) => {
                    return Err(ClientError::Damaged {
                        server: opened.connection.server().clone(),
                        path: self.location.path().escape_ascii().to_string(),
                        offset: bad.offset,
                        length: bad.length,
                    });
                }
                Err(error) => self.recover(&mut retry, &opened, error).await?,
            }
        }
    }

    /// Fills all pieces with few requests (vector read).
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the file ends within a piece, and those of [`File::read_at`].
    pub async fn read_many(&self, pieces: &mut [ReadPiece<'_>]) -> Result<()> {
        let mut retry = self.retry();
        loop {
            let opened = self.current_handle();
            match reads::read_many(&opened, pieces).await {
                Ok(()) => return Ok(()),
                Err(error) => self.recover(&mut retry, &opened, error).await?,
            }
        }
    }

    /// Writes all bytes from `offset` on.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if the connection was lost: any part of this write, and of the writes since the
    /// last sync, may be missing; [`ClientError::Refused`] if the server does not write, for example
    /// for lack of space.
    pub async fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut retry = self.retry();
        loop {
            let opened = self.current_handle();
            let writing = writes::write(&opened, offset, bytes);
            match self.count_write(&opened, writing).await {
                Ok(()) => return Ok(()),
                Err(error) => self.recover(&mut retry, &opened, error).await?,
            }
        }
    }

    /// Sends a write and does not wait for the answer. If the write fails, all later calls on the file fail.
    /// Only a successful sync guarantees that it was executed.
    ///
    /// # Errors
    /// The errors of [`File::write_at`], for this write or an earlier unconfirmed one.
    pub async fn write_later(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut retry = self.retry();
        loop {
            let opened = self.current_handle();
            let writing = writes::write_later(&opened, offset, bytes);
            match self.count_write(&opened, writing).await {
                Ok(()) => return Ok(()),
                Err(error) => self.recover(&mut retry, &opened, error).await?,
            }
        }
    }

    /// Like [`File::write_at`], with page checksums: a page that arrives damaged is sent once more. If the server has
    /// no pgwrite, this is [`File::write_at`].
    ///
    /// # Errors
    /// The errors of [`File::write_at`].
    pub async fn write_checked(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut retry = self.retry();
        loop {
            let opened = self.current_handle();
            let writing = writes::write_checked(&opened, offset, bytes);
            match self.count_write(&opened, writing).await {
                Ok(()) => return Ok(()),
                Err(error) => self.recover(&mut retry, &opened, error).await?,
            }
        }
    }

    /// Waits until the writes of [`File::write_later`] are executed. They may not be durable yet.
    ///
    /// # Errors
    /// The errors of [`File::write_at`]; the file is not reopened.
    pub async fn settle(&self) -> Result<()> {
        let settled = self.current_handle().unconfirmed.settle().await;
        settled.map_err(|error| self.retry().client_error(error))
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// The errors of [`File::write_at`].
    pub async fn sync(&self) -> Result<()> {
        let writes = self.writes.load(Ordering::SeqCst);
        let mut retry = self.retry();
        loop {
            let opened = self.current_handle();
            match opened.call(Sync { handle: opened.handle }).await {
                Ok(_) => {
                    self.synced.fetch_max(writes, Ordering::SeqCst);
                    return Ok(());
                }
                Err(error) => self.recover(&mut retry, &opened, error).await?,
            }
        }
    }

    /// Sets the file's size.
    ///
    /// # Errors
    /// The errors of [`File::write_at`].
    pub async fn truncate(&self, size: u64) -> Result<()> {
        let mut retry = self.retry();
        loop {
            let opened = self.current_handle();
            let target = FileRef::Handle(opened.handle);
            let cutting = opened.call(Truncate { target, size });
            match self.count_write(&opened, cutting).await {
                Ok(_) => return Ok(()),
                Err(error) => self.recover(&mut retry, &opened, error).await?,
            }
        }
    }

    /// Whether all further calls will fail: a write failed, or the connection was lost after unsynced writes.
    pub fn is_broken(&self) -> bool {
        let opened = self.current_handle();
        opened.unconfirmed.has_failed() || self.is_unsynced() && opened.connection.is_lost()
    }

    /// Closes the file. Dropping it closes it too, but discards errors.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if an unconfirmed write or the close itself failed; [`ClientError::Lost`] or
    /// [`ClientError::Unreachable`] if the connection was lost after unsynced writes.
    pub async fn close(self) -> Result<()> {
        let opened = self.current_handle();
        let settled = opened.unconfirmed.settle().await;
        opened.mark_closed();
        let closed = opened.connection.call(&Close { handle: opened.handle }.into(), &[]).await;
        match settled.and(closed.map(drop)) {
            Ok(()) => Ok(()),
            // The server closes a session's files when its connection is lost.
            Err(AttemptError::Lost(_) | AttemptError::Unreachable(_)) if !self.is_unsynced() => {
                Ok(())
            }
            Err(error) => Err(self.retry().client_error(error)),
        }
    }

    /// Runs a write, and counts it as unsynced unless it was not sent.
    async fn count_write<T>(
        &self,
        opened: &RemoteHandle,
        change: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        if opened.connection.is_lost() {
            return Err(AttemptError::Unreachable("the connection was lost".to_owned()));
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        let changed = change.await;
        if let Err(AttemptError::Unreachable(_)) = changed {
            self.writes.fetch_sub(1, Ordering::SeqCst);
        }
        changed
    }

    fn retry(&self) -> RetryState {
        self.client.retry(&self.location)
    }

    fn current_handle(&self) -> Arc<RemoteHandle> {
        self.handle.lock().clone()
    }

    fn is_unsynced(&self) -> bool {
        self.synced.load(Ordering::SeqCst) < self.writes.load(Ordering::SeqCst)
    }

    /// After a failed attempt: waits for the next one, and reopens the file if its handle was lost.
    ///
    /// # Errors
    /// `error` as a [`ClientError`] if no attempt may follow, or that of reopening.
    async fn recover(
        &self,
        retry: &mut RetryState,
        broken: &Arc<RemoteHandle>,
        error: AttemptError,
    ) -> Result<()> {
        let error = match error {
            // The server no longer has the session.
            AttemptError::Failure(failure) if failure.code == ErrorCode::FILE_NOT_OPEN => {
                broken.mark_closed();
                AttemptError::Lost("the server no longer has the file open".to_owned())
            }
            AttemptError::Wait(_) => return self.client.wait_to_retry(retry, error).await,
            AttemptError::Redirect(_) | AttemptError::Lost(_) | AttemptError::Unreachable(_) => {
                error
            }
            _ => return Err(retry.client_error(error)),
        };
        if self.is_unsynced() {
            return Err(retry.client_error(match error {
                AttemptError::Unreachable(reason) => AttemptError::Lost(reason),
                other => other,
            }));
        }
        self.client.wait_to_retry(retry, error).await?;
        let _reopening = self.reopening.lock().await;
        if !Arc::ptr_eq(broken, &self.current_handle()) {
            return Ok(());
        }
        // This caller waits for the server; the others wait for the lock.
        let options = self.options.difference(OpenOptions::NEW | OpenOptions::DELETE);
        let handle = self.client.open_handle(retry.clone(), options, Mode::default()).await?;
        let mut current = self.handle.lock();
        *current = Arc::new(handle);
        // Counted before anybody can read through the new handle.
        self.times_reopened.fetch_add(1, Ordering::SeqCst);
        drop(current);
        Ok(())
    }
}

//! Open files.
//!
//! 1. A file is open on one connection at a time. Where that is lost, the file is opened again by
//!    whoever comes first, and the others go on with it.
//! 2. What was written is not sure until it is synced. If the connection is lost before that, the
//!    file is not opened again: all that is done with it fails.
//! 3. Writes whose answers nobody waited for are answered before anything else is asked of the file.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::attempt::Attempt;
use super::connection::Connection;
use super::error::Result;
use super::failure::AttemptError;
use super::reading;
use super::sink::Piece;
use super::waiting::{Waiter, block_on};
use super::writing::{self, Unanswered};
use super::{Client, ClientError};
use crate::codes::ErrorCode;
use crate::flags::{Mode, OpenOptions, OpenTemplateOptions, StatOptions, StatWants};
use crate::ids::FileHandle;
use crate::location::Location;
use crate::request::{Close, Open, Request, Stat, Sync, Target, Truncate};
use crate::response::{Answer, OpenAnswer, StatLine};

/// An open file. All methods may be called by many at once.
#[derive(Debug)]
pub struct File {
    client: Client,
    location: Location,
    options: OpenOptions,
    opened: Mutex<Arc<Opened>>,
    opening: tokio::sync::Mutex<()>,
    /// How often something was written, and how often before the last sync began.
    writes: AtomicU64,
    synced: AtomicU64,
}

/// A file's handle and where it is one.
#[derive(Debug)]
pub(super) struct Opened {
    pub connection: Arc<Connection>,
    pub handle: FileHandle,
    waiter: Waiter,
    /// Whether the handle is the file's no more: it may be another one's by now.
    is_closed: AtomicBool,
    pub unanswered: Unanswered,
}

impl Opened {
    async fn ask(&self, request: impl Into<Request>) -> Result<bytes::Bytes, AttemptError> {
        self.unanswered.settle().await?;
        self.connection.call(&request.into(), &[]).await
    }
}

impl Drop for Opened {
    /// Closes the file without waiting for the answer.
    fn drop(&mut self) {
        let (connection, handle) = (self.connection.clone(), self.handle);
        if self.is_closed.load(Ordering::SeqCst) || connection.is_lost() {
            return;
        }
        let closing = async move {
            // Who closes by dropping does not want to know.
            drop(connection.send(&Close { handle }.into(), &[], 0).await);
        };
        match (self.waiter, tokio::runtime::Handle::try_current()) {
            (Waiter::Thread, _) => block_on(closing),
            (Waiter::Task, Ok(runtime)) => drop(runtime.spawn(closing)),
            (Waiter::Task, Err(_)) => {}
        }
    }
}

impl Client {
    /// Opens a file.
    ///
    /// # Errors
    /// [`ClientError`], as the server or the way to it has it.
    pub async fn open(&self, location: &Location, options: OpenOptions) -> Result<File> {
        let mode = Mode::OWNER_READ | Mode::OWNER_WRITE | Mode::GROUP_READ | Mode::OTHER_READ;
        let attempt = self.attempt(location);
        // One that is made anew cannot be made twice.
        let attempt = if options.contains(OpenOptions::NEW) { attempt.once() } else { attempt };
        let opened = self.open_once(attempt, options, mode).await?;
        Ok(File {
            client: self.clone(),
            location: location.clone(),
            options,
            opened: Mutex::new(Arc::new(opened)),
            opening: tokio::sync::Mutex::new(()),
            writes: AtomicU64::new(0),
            synced: AtomicU64::new(0),
        })
    }

    async fn open_once(
        &self,
        attempt: Attempt,
        options: OpenOptions,
        mode: Mode,
    ) -> Result<Opened> {
        let (template_options, template) = (OpenTemplateOptions::default(), FileHandle::default());
        let request =
            |location| Open { mode, options, template_options, template, location }.into();
        let (connection, body) = self.ask(attempt.clone(), request).await?;
        let answer = OpenAnswer::decode(&body).map_err(|error| attempt.error(error.into()))?;
        Ok(Opened {
            connection,
            handle: answer.handle,
            waiter: self.shared.waiter,
            is_closed: AtomicBool::new(false),
            unanswered: Unanswered::default(),
        })
    }
}

impl File {
    /// The file's path and opaque information.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// What the file is now.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stat(&self) -> Result<StatLine> {
        let mut attempt = self.attempt();
        loop {
            let opened = self.opened();
            let target = Target::Handle(opened.handle);
            let (options, wants) = (StatOptions::default(), StatWants::default());
            let answered = opened.ask(Stat { options, wants, target }).await;
            match answered.and_then(|body| Ok(StatLine::decode(&body)?)) {
                Ok(line) => return Ok(line),
                Err(trouble) => self.recover(&mut attempt, &opened, trouble).await?,
            }
        }
    }

    /// Reads into a buffer from `offset` on; fewer bytes than fit only at the file's end.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut attempt = self.attempt();
        loop {
            let opened = self.opened();
            match reading::read(&opened, offset, buffer).await {
                Ok(count) => return Ok(count),
                Err(trouble) => self.recover(&mut attempt, &opened, trouble).await?,
            }
        }
    }

    /// As [`File::read_at`], with the checksums of the pages looked at. Pages that come damaged are
    /// read once more. A server without them reads as [`File::read_at`] does.
    ///
    /// # Errors
    /// [`ClientError::Damaged`] if a page comes damaged twice, and others.
    pub async fn read_checked(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut attempt = self.attempt();
        loop {
            let opened = self.opened();
            match reading::read_checked(&opened, offset, buffer).await {
                Ok((count, None)) => return Ok(count),
                Ok((_, Some(bad))) => {
                    return Err(ClientError::Damaged {
                        server: opened.connection.server().clone(),
                        path: self.location.path().escape_ascii().to_string(),
                        offset: bad.offset,
                        length: bad.length,
                    });
                }
                Err(trouble) => self.recover(&mut attempt, &opened, trouble).await?,
            }
        }
    }

    /// Fills all pieces, by few requests.
    ///
    /// # Errors
    /// [`ClientError`], also if the file ends before one of them does.
    pub async fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<()> {
        let mut attempt = self.attempt();
        loop {
            let opened = self.opened();
            match reading::read_many(&opened, pieces).await {
                Ok(()) => return Ok(()),
                Err(trouble) => self.recover(&mut attempt, &opened, trouble).await?,
            }
        }
    }

    /// Writes all bytes from `offset` on.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if the connection was lost: it is not known what of it, and of what was
    /// written since the last sync, there is.
    pub async fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut attempt = self.attempt();
        loop {
            let opened = self.opened();
            let writing = writing::write(&opened, offset, bytes);
            match self.changing(&opened, writing).await {
                Ok(()) => return Ok(()),
                Err(trouble) => self.recover(&mut attempt, &opened, trouble).await?,
            }
        }
    }

    /// Sends bytes to be written from `offset` on, and does not wait for the answer: if it fails, what
    /// is done with the file next fails, and all that is done after that. Only after a sync is it sure
    /// that all was written.
    ///
    /// # Errors
    /// As [`File::write_at`], and those of what was sent before.
    pub async fn write_later(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut attempt = self.attempt();
        loop {
            let opened = self.opened();
            let writing = writing::write_later(&opened, offset, bytes);
            match self.changing(&opened, writing).await {
                Ok(()) => return Ok(()),
                Err(trouble) => self.recover(&mut attempt, &opened, trouble).await?,
            }
        }
    }

    /// As [`File::write_at`], with checksums of pages, and those that came damaged sent again.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_checked(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut attempt = self.attempt();
        loop {
            let opened = self.opened();
            let writing = writing::write_checked(&opened, offset, bytes);
            match self.changing(&opened, writing).await {
                Ok(()) => return Ok(()),
                Err(trouble) => self.recover(&mut attempt, &opened, trouble).await?,
            }
        }
    }

    /// Waits until what was sent by [`File::write_later`] is written; it may not be durable then.
    ///
    /// # Errors
    /// As [`File::write_at`]; the file is not opened again.
    pub async fn settle(&self) -> Result<()> {
        let settled = self.opened().unanswered.settle().await;
        settled.map_err(|trouble| self.attempt().error(trouble))
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn sync(&self) -> Result<()> {
        let writes = self.writes.load(Ordering::SeqCst);
        let mut attempt = self.attempt();
        loop {
            let opened = self.opened();
            match opened.ask(Sync { handle: opened.handle }).await {
                Ok(_) => {
                    self.synced.fetch_max(writes, Ordering::SeqCst);
                    return Ok(());
                }
                Err(trouble) => self.recover(&mut attempt, &opened, trouble).await?,
            }
        }
    }

    /// Cuts or lengthens the file.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn truncate(&self, size: u64) -> Result<()> {
        let mut attempt = self.attempt();
        loop {
            let opened = self.opened();
            let target = Target::Handle(opened.handle);
            let cutting = opened.ask(Truncate { target, size });
            match self.changing(&opened, cutting).await {
                Ok(_) => return Ok(()),
                Err(trouble) => self.recover(&mut attempt, &opened, trouble).await?,
            }
        }
    }

    /// Whether all that is done with it will fail: a write failed, or the connection was lost before
    /// what was written was synced.
    pub fn is_broken(&self) -> bool {
        let opened = self.opened();
        opened.unanswered.has_failed() || self.is_unsynced() && opened.connection.is_lost()
    }

    /// Closes the file; one that is dropped is closed, too, but its errors are not told.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn close(self) -> Result<()> {
        let opened = self.opened();
        let settled = opened.unanswered.settle().await;
        opened.is_closed.store(true, Ordering::SeqCst);
        let closed = opened.connection.call(&Close { handle: opened.handle }.into(), &[]).await;
        match settled.and(closed.map(drop)) {
            Ok(()) => Ok(()),
            // With its connection the file was closed.
            Err(AttemptError::Lost(_) | AttemptError::Unreachable(_)) if !self.is_unsynced() => {
                Ok(())
            }
            Err(trouble) => Err(self.attempt().error(trouble)),
        }
    }

    /// Changes the file, and remembers that it is not synced; not if nothing was sent.
    async fn changing<T>(
        &self,
        opened: &Opened,
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

    fn attempt(&self) -> Attempt {
        self.client.attempt(&self.location)
    }

    fn opened(&self) -> Arc<Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_unsynced(&self) -> bool {
        self.synced.load(Ordering::SeqCst) < self.writes.load(Ordering::SeqCst)
    }

    /// After trouble with the file: makes it usable again, if that can be.
    async fn recover(
        &self,
        attempt: &mut Attempt,
        broken: &Arc<Opened>,
        trouble: AttemptError,
    ) -> Result<()> {
        let trouble = match trouble {
            // The server forgot the session.
            AttemptError::Failure(failure) if failure.code == ErrorCode::FILE_NOT_OPEN => {
                broken.is_closed.store(true, Ordering::SeqCst);
                AttemptError::Lost("it forgot that the file is open".to_owned())
            }
            AttemptError::Wait(_) => return self.client.pause(attempt, trouble).await,
            AttemptError::Redirect(_) | AttemptError::Lost(_) | AttemptError::Unreachable(_) => {
                trouble
            }
            _ => return Err(attempt.error(trouble)),
        };
        if self.is_unsynced() {
            return Err(attempt.error(match trouble {
                AttemptError::Unreachable(reason) => AttemptError::Lost(reason),
                other => other,
            }));
        }
        self.client.pause(attempt, trouble).await?;
        let _opening = self.opening.lock().await;
        if !Arc::ptr_eq(broken, &self.opened()) {
            return Ok(());
        }
        // The first one to find that the server is away waits for it, for all.
        let options = self.options.without(OpenOptions::NEW | OpenOptions::DELETE);
        let reopening = attempt.clone();
        let opened = self.client.open_once(reopening, options, Mode::default()).await?;
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(opened);
        Ok(())
    }
}

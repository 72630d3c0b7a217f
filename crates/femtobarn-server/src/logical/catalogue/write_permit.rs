//! The right of a session to write to a database's file while it holds the database.
//!
//! A client that was suspended for longer than its lease does not know yet that its locks are lost when it resumes, and
//! continues to write to space that a vacuum may have given to another writer. So each write checks that its session
//! still holds the database, and the lock is not freed before the write has ended. No thread waits for that: the last
//! write frees the locks that were released meanwhile, and repeats their owners' requests.
//!
//! The epoch of the lock is a fencing token: it shows whether the session has held the database without interruption
//! since the file was opened.

use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{Csn, DatabaseId, Error, LockTarget, Result};
use nix::errno::Errno;
use parking_lot::Mutex;
use uuid::Uuid;

use super::service::FederationService;
use super::session::CatalogueSession;
use crate::logical::locks::OwnerId;
use crate::physical::{
    FilesElsewhere, Opaque, Permit, StorageError, StoragePath, StorageResult, Writers,
};

/// How long a client is asked to wait if its session may be resumed soon.
const PAUSE: Duration = Duration::from_secs(1);

/// The right of a session to write to one file of a database.
struct SessionPermit {
    service: Arc<FederationService>,
    /// The session at its last use: it may end, and a new one may begin under its id.
    session: Mutex<Arc<CatalogueSession>>,
    database: DatabaseId,
    /// The epoch in which the file was opened.
    epoch: u64,
}

impl Writers for Arc<FederationService> {
    fn admit(&self, session: Option<Uuid>, database: DatabaseId) -> StorageResult<Arc<dyn Permit>> {
        let known = session.and_then(|id| self.session(id));
        let held = known.and_then(|session| {
            let (epoch, site_epoch) =
                session.lock().may_write(database).map(|it| (it.epoch, it.site_epoch))?;
            self.is_valid(site_epoch).then_some((session, epoch))
        });
        match held {
            Some((session, epoch)) => Ok(Arc::new(SessionPermit {
                service: Arc::clone(self),
                session: Mutex::new(session),
                database,
                epoch,
            })),
            // After a restart, the writes of a client may arrive a little earlier than its session.
            None if session.is_some() && self.since.elapsed() < self.lease => {
                Err(StorageError::NotBefore(PAUSE, "sessions are still being resumed".to_owned()))
            }
            None => Err(lost(database)),
        }
    }

    fn file_created(&self, path: &StoragePath, database: DatabaseId) {
        self.uncommitted.insert(&relative(path), database);
    }

    fn file_removed(&self, path: &StoragePath) {
        self.uncommitted.remove(&relative(path));
    }

    fn has_others(&self) -> bool {
        self.site().is_some()
    }

    fn redirect(&self, database: DatabaseId, opaque: Opaque<'_>) -> StorageResult<()> {
        self.site().map_or(Ok(()), |site| site.redirect(database, opaque))
    }

    fn files_elsewhere(&self, at: Csn, are_asked: bool) -> StorageResult<FilesElsewhere> {
        let none = || Ok(FilesElsewhere::default());
        self.site().map_or_else(none, |site| site.files_elsewhere(at, are_asked))
    }

    fn uncommitted_database(&self, path: &StoragePath) -> Option<DatabaseId> {
        self.uncommitted.database(&relative(path))
    }
}

impl FederationService {
    /// Begins a write of a session that holds a database exclusively, and returns the epoch of this server in which it
    /// was locked.
    ///
    /// # Errors
    /// [`Error::Invalid`] if other sessions may hold the database, too; [`Error::Changed`] if the lock was lost.
    pub(super) fn begin_alone(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        database: DatabaseId,
    ) -> Result<(WriteInProgress, u64)> {
        let mut state = session.lock();
        if !state.holds_alone(LockTarget::Database(database)) {
            let what = format!("database {database} is not locked exclusively, so it stays");
            return Err(Error::Invalid { what });
        }
        let locked = state.may_write(database).map(|writes| writes.site_epoch);
        let Some(locked) = locked.filter(|epoch| self.is_valid(*epoch)) else {
            return Err(Error::Changed {
                what: format!("the lock on database {database} was lost"),
            });
        };
        state.begin_writes([&database]);
        drop(state);
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        Ok((WriteInProgress { service, session, database }, locked))
    }
}

/// A path as it is in the catalogue, relative to the federation's folder.
fn relative(path: &StoragePath) -> String {
    String::from_utf8_lossy(&path.as_bytes()[1..]).into_owned()
}

impl Permit for SessionPermit {
    fn during(&self, write: &mut dyn FnMut() -> StorageResult<()>) -> StorageResult<()> {
        let _writing = self.begin().ok_or_else(|| lost(self.database))?;
        write()
    }
}

impl SessionPermit {
    fn begin(&self) -> Option<WriteInProgress> {
        let session = self.session();
        let mut state = session.lock();
        let writes = state.may_write(self.database)?;
        if writes.epoch != self.epoch || !self.service.is_valid(writes.site_epoch) {
            return None;
        }
        state.begin_writes([&self.database]);
        drop(state);
        Some(WriteInProgress {
            service: Arc::clone(&self.service),
            session,
            database: self.database,
        })
    }

    fn session(&self) -> Arc<CatalogueSession> {
        let mut session = self.session.lock();
        // The state must be unlocked before the table of sessions is locked: see the lock order.
        let is_over = session.lock().is_over;
        let resumed = if is_over { self.service.session(session.id()) } else { None };
        if let Some(resumed) = resumed {
            *session = resumed;
        }
        Arc::clone(&session)
    }
}

/// A write in progress, which the session has counted. The session's lock on the database is not freed before the write
/// has ended.
pub(super) struct WriteInProgress {
    pub(super) service: Arc<FederationService>,
    pub(super) session: Arc<CatalogueSession>,
    pub(super) database: DatabaseId,
}

impl Drop for WriteInProgress {
    fn drop(&mut self) {
        let (service, session) = (&self.service, &self.session);
        let target = LockTarget::Database(self.database);
        let mut state = session.lock();
        let (mut granted, mut postponed) = (vec![], vec![]);
        let to_free = state.end_write(self.database);
        let is_freed = !to_free.is_empty();
        // With the state locked, so that no owner can request them in between.
        for (number, held) in to_free {
            let owner = OwnerId { session: session.number(), number };
            granted.extend(service.release(owner, target, held));
            postponed.push(state.postponed.remove(&(number, target)));
        }
        // No state may be locked while locks are granted.
        drop(state);
        service.grant(granted);
        if is_freed {
            service.sweep(target);
        }
        postponed.into_iter().for_each(|request| service.repeat(session, request));
    }
}

fn lost(database: DatabaseId) -> StorageError {
    let what = format!(
        "the lock on database {database} was lost, and its space may belong to another writer; run the \
         transaction again"
    );
    StorageError::refused(Errno::ENOLCK, what)
}

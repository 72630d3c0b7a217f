//! Locks at the home of their database, if the federation has several servers, and the fences that belong to them.
//!
//! 1. Only the home of a database locks it and its containers.
//! 2. The locks of a session whose client fell silent are not freed before its commits are refused at all servers.

use std::sync::Arc;

use femtobarn_catalog::{Commit, DatabaseId, Error, Fence, LockTarget, Result};
use tokio::task::spawn_blocking;

use super::service::FederationService;
use super::session::{CatalogueSession, OperationOutcome};
use super::state::{LockRequest, SessionState};

impl FederationService {
    /// Locks a target if its database is at this server, which may have to be looked up.
    pub(super) fn lock_here(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
    ) -> Option<OperationOutcome> {
        let database = request.target.database();
        let unknown = self.site().zip(database).filter(|(site, database)| !site.has(*database));
        let Some((site, database)) = unknown else { return self.lock(session, request) };
        let (service, session, site) = (Arc::clone(self), Arc::clone(session), Arc::clone(site));
        spawn_blocking(move || {
            let outcome = match site.check_here(database) {
                Ok(()) => service.lock(&session, request),
                Err(error) => Some(OperationOutcome { number: request.number, result: Err(error) }),
            };
            outcome.into_iter().for_each(|it| session.push_outcome(request.generation, it));
        });
        None
    }

    /// The fence of a database that is locked now, if the federation has several servers.
    pub(super) fn fence(&self, target: &LockTarget) -> Option<Fence> {
        let LockTarget::Database(database) = target else { return None };
        Some(self.site()?.fence(*database))
    }

    /// The epoch of this server, if it still is the home of a target; 0 if the federation has no other servers.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] if the database was handed over; [`Error::Unavailable`] if the lease of this server is
    /// over.
    pub(super) fn site_epoch_of(&self, target: &LockTarget) -> Result<u64> {
        if let Some((site, database)) = self.site().zip(target.database()) {
            site.check_kept(database)?;
        }
        self.site_epoch()
    }

    /// Checks that the home of a database is this server, if it has one.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] if its home is another server; [`Error::Unavailable`] if the lease of this server is over.
    pub fn check_here(&self, database: DatabaseId) -> Result<()> {
        self.site().map_or(Ok(()), |site| site.check_here(database))
    }

    /// The rights to write to the databases that a session holds.
    pub fn fences(&self, session: &CatalogueSession) -> Vec<Fence> {
        let held = session.lock().databases_unless(|_| false);
        let targets = held.into_iter().map(LockTarget::Database);
        targets.filter_map(|target| self.fence(&target)).collect()
    }

    /// Makes the catalogue refuse the commits of all present holders of these databases, if the federation has several
    /// servers.
    pub(super) async fn fence_off(&self, databases: Vec<DatabaseId>) {
        let Some(site) = self.site().filter(|_| !databases.is_empty()) else { return };
        site.fence_off(databases.into()).await;
    }

    /// Frees a lock of a session once the commits that it holds the database for are refused at all servers.
    pub(super) fn unlock_fenced(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        generation: u64,
        owner: u64,
        target: LockTarget,
    ) {
        let databases = target.database().into_iter().collect();
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            service.fence_off(databases).await;
            service.unlock(&session, generation, owner, target);
        });
    }

    /// Checks that a session holds a database that its commit writes to, or that the commit shows a fence from another
    /// server's lock. For a database of this server, the commit gets the newest fence.
    pub(super) fn check_written(
        &self,
        state: &SessionState,
        commit: &mut Commit,
        database: DatabaseId,
    ) -> Result<()> {
        let target = LockTarget::Database(database);
        let lost = || Error::Changed { what: format!("the lock on {target} was lost") };
        let held = state.may_write(database).map(|writes| writes.site_epoch);
        let Some(site) = self.site() else { return held.map(drop).ok_or_else(lost) };
        let is_shown = |fence: &Fence| fence.database == database && fence.server != site.name();
        if held.is_none() && commit.fences.iter().any(is_shown) {
            // Bytes are written by the server that has the file.
            let is_written = commit.writes.iter().any(|write| write.database == database);
            return if is_written { Err(lost()) } else { Ok(()) };
        }
        let is_held = held.is_some_and(|epoch| site.is_valid(epoch));
        if !is_held {
            return Err(lost());
        }
        commit.fences.retain(|fence| fence.database != database);
        commit.fences.push(site.fence(database));
        Ok(())
    }
}

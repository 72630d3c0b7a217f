//! Locks that a client claims when it opens its session again, as after a restart of the server: they are taken again if no
//! other session can have held them in between.

use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::LockTarget;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::service::FederationService;
use super::session::{CatalogueSession, session_over};
use super::state::{HeldBy, LockRequest, PendingLock};
use crate::logical::locks::{LockAnswer, OwnerId, ServerKernelLocks};

/// The pause before the next look whether the request of an earlier stream for the same lock has ended.
const LOOK_AFTER: Duration = Duration::from_millis(5);

impl FederationService {
    async fn still_exists(self: &Arc<Self>, target: LockTarget) -> bool {
        let here = Arc::clone(self);
        let exists = move || {
            let is_here =
                target.database().is_none_or(|database| here.check_here(database).is_ok());
            is_here && here.database_exists(&target)
        };
        spawn_blocking(exists).await.unwrap_or(false)
    }

    /// Takes a lock again that a session held before; fails if another session may have held it in between.
    pub(super) async fn reacquire(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        request: LockRequest,
        epoch: u64,
    ) -> bool {
        // The end of the file may have moved since.
        if matches!(request.target, LockTarget::Allocation(_)) {
            return false;
        }
        while has_to_wait(session, &request) {
            sleep(LOOK_AFTER).await;
        }
        if !self.is_granted_at_once(session, request) {
            return false;
        }
        let locked = if ServerKernelLocks::has(&request.target) {
            let now = Some(Duration::ZERO);
            self.kernel.lock(request.target, request.kind, now, || Ok(())).await
        } else {
            Ok(0)
        };
        let locked = locked.ok();
        let in_kernel = locked.is_some() && ServerKernelLocks::has(&request.target);
        let site_epoch = self.site_epoch().ok();
        let held =
            HeldBy { in_kernel, epoch, site_epoch: site_epoch.unwrap_or(0), kind: request.kind };
        let is_same = locked == Some(epoch)
            && site_epoch.is_some()
            && !self.is_being_vacuumed(&request.target)
            && self.still_exists(request.target).await;
        let same = is_same.then_some(()).ok_or_else(session_over);
        let mut granted = vec![];
        let settled = self.settle(session, request, held, same, &mut granted);
        self.grant(granted);
        settled.is_ok()
    }

    /// Whether the table grants a request without a wait; it is recorded then.
    fn is_granted_at_once(&self, session: &CatalogueSession, request: LockRequest) -> bool {
        let LockRequest { owner, target, kind, generation, .. } = request;
        let mut state = session.lock();
        let of = OwnerId { session: session.number(), number: owner };
        let is_granted = state.is_current(generation)
            && self.table.try_lock(of, target, kind) == LockAnswer::Granted;
        if is_granted {
            state.requests.insert(request.place(), PendingLock { request, timer: None });
        }
        is_granted
    }

    /// Whether a vacuum has freed space of a database and not begun a new epoch yet, perhaps because it was killed.
    fn is_being_vacuumed(&self, target: &LockTarget) -> bool {
        let LockTarget::Database(database) = target else { return false };
        let free = self.catalog.free_extents(*database);
        !free.is_ok_and(|free| free.iter().all(|extent| extent.is_released))
    }
}

/// Whether a request has to wait for one of an earlier stream. After its client has opened another stream it is refused.
fn has_to_wait(session: &CatalogueSession, request: &LockRequest) -> bool {
    let state = session.lock();
    state.is_current(request.generation) && state.has_earlier(request)
}

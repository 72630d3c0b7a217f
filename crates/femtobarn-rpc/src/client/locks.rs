//! The locks and pins of a session, as `femtobarn-catalog` uses them.

use std::time::Duration;

use femtobarn_catalog::{
    Csn, HeldLock, LeasedLocks, LeasedPins, LockKind, LockTarget, Result, Waiter,
};

use super::session::RemoteSession;
use crate::v1::Operation;
use crate::v1::operation::Kind;

impl RemoteSession {
    /// Requests a lock or a pin, and waits for the answer; returns the snapshot of a pin.
    pub(super) fn obtain(&self, operation: Operation) -> Result<Csn> {
        self.check_open()?;
        let answer = self.ledger().request(operation);
        self.wake();
        answer.blocking_recv().map_err(|_| self.closed())?
    }
}

impl LeasedLocks for RemoteSession {
    fn new_owner(&self) -> u64 {
        self.ledger().new_owner()
    }

    fn lock(
        &self,
        owner: u64,
        target: LockTarget,
        kind: LockKind,
        wait: Option<Duration>,
    ) -> Result<()> {
        let kind = match kind {
            LockKind::Shared => Kind::LockShared,
            LockKind::Exclusive => Kind::LockExclusive,
        };
        let wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self.obtain(Operation {
            kind: kind.into(),
            owner,
            target: Some(target.into()),
            wait_ms,
            ..Operation::default()
        })?;
        Ok(())
    }

    fn unlock(&self, owner: u64, target: LockTarget) {
        if self.ledger().unlock(owner, target) {
            self.wake();
        }
    }

    fn held(&self) -> Result<Vec<HeldLock>> {
        self.check_open()?;
        let listed = self.runtime.block_on(self.list_locks())?;
        listed.held.into_iter().map(TryInto::try_into).collect()
    }

    fn waiting(&self) -> Result<Vec<Waiter>> {
        self.check_open()?;
        let listed = self.runtime.block_on(self.list_locks())?;
        listed.waiting.into_iter().map(TryInto::try_into).collect()
    }
}

impl LeasedPins for RemoteSession {
    fn pin_again(&self, csn: Csn) {
        self.ledger().pin_again(csn);
    }

    fn unpin(&self, csn: Csn) {
        if self.ledger().unpin(csn) {
            self.wake();
        }
    }
}

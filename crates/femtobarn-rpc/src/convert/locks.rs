//! Locks, their holders and their waiters as messages, and back.

use femtobarn_catalog::{ContainerId, DatabaseId, Error, HeldLock, Holder, LockTarget, Waiter};

use super::{invalid, needed};
use crate::v1;
use crate::v1::target::Kind;

impl From<LockTarget> for v1::Target {
    fn from(target: LockTarget) -> Self {
        let kind = match target {
            LockTarget::Container(..) => Kind::Container,
            LockTarget::Database(_) => Kind::Database,
            LockTarget::Allocation(_) => Kind::Allocation,
            LockTarget::Maintenance => Kind::Maintenance,
        };
        v1::Target {
            kind: kind.into(),
            database: target.database().unwrap_or_default().0,
            container: target.container().unwrap_or_default().0,
        }
    }
}

impl TryFrom<v1::Target> for LockTarget {
    type Error = Error;

    fn try_from(target: v1::Target) -> Result<Self, Error> {
        let (database, container) = (DatabaseId(target.database), ContainerId(target.container));
        match target.kind() {
            Kind::Container => Ok(LockTarget::Container(database, container)),
            Kind::Database => Ok(LockTarget::Database(database)),
            Kind::Allocation => Ok(LockTarget::Allocation(database)),
            Kind::Maintenance => Ok(LockTarget::Maintenance),
            Kind::Unspecified => {
                Err(invalid("malformed message: no kind of a lock's target".to_owned()))
            }
        }
    }
}

impl From<Holder> for v1::Holder {
    fn from(Holder { host, pid, user, application, since_ms }: Holder) -> Self {
        v1::Holder { host, pid, user, since_ms, application }
    }
}

impl From<v1::Holder> for Holder {
    fn from(v1::Holder { host, pid, user, since_ms, application }: v1::Holder) -> Self {
        Holder { host, pid, user, application, since_ms }
    }
}

impl From<HeldLock> for v1::HeldLock {
    fn from(HeldLock { target, is_shared, holder }: HeldLock) -> Self {
        let holder = holder.map(Into::into);
        v1::HeldLock { target: Some(target.into()), shared: is_shared, holder }
    }
}

impl TryFrom<v1::HeldLock> for HeldLock {
    type Error = Error;

    fn try_from(held: v1::HeldLock) -> Result<Self, Error> {
        let target = needed(held.target, "target")?.try_into()?;
        Ok(HeldLock { target, is_shared: held.shared, holder: held.holder.map(Into::into) })
    }
}

impl From<Waiter> for v1::Waiter {
    fn from(Waiter { target, by, holder }: Waiter) -> Self {
        let holder = holder.map(Into::into);
        v1::Waiter { target: Some(target.into()), by: Some(by.into()), holder }
    }
}

impl TryFrom<v1::Waiter> for Waiter {
    type Error = Error;

    fn try_from(waiter: v1::Waiter) -> Result<Self, Error> {
        Ok(Waiter {
            target: needed(waiter.target, "target")?.try_into()?,
            by: needed(waiter.by, "waiter")?.into(),
            holder: waiter.holder.map(Into::into),
        })
    }
}

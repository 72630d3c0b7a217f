//! The held locks of the kernel, and their waiters: for tools and error texts.
//!
//! Every answer is a snapshot, which may be out of date when it is read.

use std::ops::Range;
use std::path::Path;

use super::file::{LockFile, LockKind, LockedRange, SLOT_BYTES, names_in};
use super::target::{FIRST_CONTAINER_SLOT, LockTarget, SLOTS_END, database_of_file};
use super::waiters::{self, Waiter};
use crate::error::Result;
use crate::holder::Holder;
use crate::ids::DatabaseId;

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// The locked target.
    pub target: LockTarget,
    /// Whether the lock is shared, not exclusive.
    pub is_shared: bool,
    /// The holder, or one of several that share the lock. Unknown for a lock that was just taken, a shared lock on
    /// maintenance, and a shared lock on a database in which its holder writes no container.
    pub holder: Option<Holder>,
}

/// All held locks of the federation, ordered by target.
pub(super) fn held(locks: &Path) -> Result<Vec<HeldLock>> {
    let mut held = Vec::new();
    for name in names_in(locks)? {
        let Some(database) = database_of_file(&name) else { continue };
        let Some(file) = LockFile::open_if_there(&locks.join(name))? else { continue };
        held.extend(held_in(&file, database)?);
    }
    held.sort_by_key(|lock| lock.target);
    Ok(held)
}

/// All waiters with the holders of their locks, the longest waiting first.
pub(super) fn waiting(locks: &Path) -> Result<Vec<Waiter>> {
    let mut waiters = waiters::list(locks)?;
    for waiter in &mut waiters {
        waiter.by = waiter.by.clone().with_application();
        waiter.holder = holder(locks, &waiter.target)?;
    }
    waiters.sort_by_key(|waiter| waiter.by.since_ms);
    Ok(waiters)
}

/// The holder of a lock; `None` if it is free.
pub(super) fn holder(locks: &Path, target: &LockTarget) -> Result<Option<Holder>> {
    let path = locks.join(target.file_name());
    let Some(file) = LockFile::open_if_there(&path)? else { return Ok(None) };
    let slot = target.slot();
    let first = slot * SLOT_BYTES;
    if !file.locked_between(first, first + SLOT_BYTES)?.iter().any(|one| held_slot(one).is_some()) {
        return Ok(None);
    }
    match file.read_holder(slot)? {
        Some(holder) => Ok(Some(holder)),
        None => Ok(Some(any_writer(&file, target)?.unwrap_or_else(Holder::unknown))),
    }
}

/// A holder of a container in the database `target`. A shared lock on a database has no record, but the exclusive
/// locks on its containers have one.
pub(super) fn any_writer(file: &LockFile, target: &LockTarget) -> Result<Option<Holder>> {
    let LockTarget::Database(_) = target else { return Ok(None) };
    let containers =
        file.locked_between(FIRST_CONTAINER_SLOT * SLOT_BYTES, SLOTS_END * SLOT_BYTES)?;
    let mut holders = containers.iter().filter_map(held_slot).map(|slot| file.read_holder(slot));
    holders.find_map(Result::transpose).transpose()
}

fn held_in(file: &LockFile, database: Option<DatabaseId>) -> Result<Vec<HeldLock>> {
    let locked = file.locked_between(0, SLOTS_END * SLOT_BYTES)?;
    let mut held = Vec::new();
    for (slot, kind) in locked.iter().filter_map(|one| Some((held_slot(one)?, one.kind))) {
        let Some(target) = LockTarget::of_slot(database, slot) else { continue };
        let is_shared = kind == LockKind::Shared;
        let holder = if is_shared { any_writer(file, &target)? } else { file.read_holder(slot)? };
        held.push(HeldLock { target, is_shared, holder });
    }
    Ok(held)
}

/// The slot that a locked range holds; `None` if the range is the stair of a waiter, or the whole file, which a vacuum
/// is about to remove.
fn held_slot(locked: &LockedRange) -> Option<u64> {
    let Range { start: first, end } = locked.bytes;
    (first.is_multiple_of(SLOT_BYTES) && end - first < SLOT_BYTES).then_some(first / SLOT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ContainerId;
    use crate::locks::file::Span;

    #[test]
    fn file_that_is_being_removed_has_no_held_locks() {
        let folder = tempfile::tempdir().unwrap();
        let vacuum = LockFile::open(&folder.path().join("7")).unwrap();
        let container = LockTarget::Container(DatabaseId(7), ContainerId(2));
        assert!(vacuum.try_lock(LockKind::Exclusive, Span::all()).unwrap());
        assert_eq!(held(folder.path()).unwrap(), []);
        assert_eq!(holder(folder.path(), &container).unwrap(), None);
        vacuum.unlock(Span::all());
        assert!(vacuum.try_lock(LockKind::Exclusive, Span::hold(container.slot())).unwrap());
        assert_eq!(held(folder.path()).unwrap().len(), 1);
        assert!(holder(folder.path(), &container).unwrap().is_some());
    }
}

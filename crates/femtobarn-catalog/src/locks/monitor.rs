//! Who holds which locks, and who waits for them: for tools, and for the text of errors.
//!
//! What is told is as of the moment of looking, and may be over by the time it is read.

use std::fs;
use std::path::Path;

use super::file::{Kind, LockFile, Locked, SPAN_BYTES, Span};
use super::holder::Holder;
use super::target::LockTarget;
use super::{FIRST_CONTAINER_SLOT, MAINTENANCE_FILE, SLOT_BYTES, SLOTS_END, WAITS_FOLDER};
use crate::error::{Error, Result};
use crate::ids::DatabaseId;

/// A lock that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// What is locked.
    pub target: LockTarget,
    /// Whether others can share it.
    pub is_shared: bool,
    /// Its holder, or one of several that share it. Unknown for a lock that was just taken, a shared lock on
    /// maintenance, and a shared lock on a database in which its holder writes no container.
    pub holder: Option<Holder>,
}

/// Somebody who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// What it waits for.
    pub target: LockTarget,
    /// Who waits, and since when.
    pub by: Holder,
    /// Who holds it, if it could be found out.
    pub holder: Option<Holder>,
}

impl Waiter {
    /// What its file says.
    pub(super) fn to_text(&self) -> String {
        let Holder { host, pid, user, since_ms, .. } = &self.by;
        let (host, user) = (host.replace('\n', " "), user.replace('\n', " "));
        let (name, slot) = (self.target.file_name(), self.target.slot());
        format!("{name}\n{slot}\n{pid}\n{since_ms}\n{host}\n{user}\nend\n")
    }

    /// None if it is not whole.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let [name, slot, pid, since_ms, host, user, "end"] = lines[..] else { return None };
        let by = Holder {
            host: host.to_owned(),
            pid: pid.parse().ok()?,
            user: user.to_owned(),
            application: String::new(),
            since_ms: since_ms.parse().ok()?,
        };
        let target = LockTarget::of_slot(database_of(name)?, slot.parse().ok()?)?;
        Some(Waiter { target, by, holder: None })
    }
}

/// All locks that are held in the federation, in order.
pub(super) fn held(locks: &Path) -> Result<Vec<HeldLock>> {
    let mut held = Vec::new();
    for name in names_in(locks)? {
        let Some(database) = database_of(&name) else { continue };
        let Some(file) = open_if_there(&locks.join(name))? else { continue };
        held.extend(held_in(&file, database)?);
    }
    held.sort_by_key(|lock| lock.target);
    Ok(held)
}

/// All who wait, the longest first; files of those that are gone are removed.
pub(super) fn waiting(locks: &Path) -> Result<Vec<Waiter>> {
    let folder = locks.join(WAITS_FOLDER);
    let mut waiters = Vec::new();
    for name in names_in(&folder)? {
        let path = folder.join(name);
        let Some(file) = open_if_there(&path)? else { continue };
        if file.try_lock(Kind::Shared, Span::byte(0))? {
            drop(fs::remove_file(&path));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        if let Some(Waiter { target, by, .. }) = Waiter::from_text(&text) {
            let holder = holder(locks, &target)?;
            waiters.push(Waiter { target, by: by.with_application(), holder });
        }
    }
    waiters.sort_by_key(|waiter| waiter.by.since_ms);
    Ok(waiters)
}

/// Who holds something at the moment.
pub(super) fn holder(locks: &Path, target: &LockTarget) -> Result<Option<Holder>> {
    let Some(file) = open_if_there(&locks.join(target.file_name()))? else { return Ok(None) };
    let slot = target.slot();
    let first = slot * SLOT_BYTES;
    match file.locked_between(first, first + SPAN_BYTES)?.is_empty() {
        true => Ok(None),
        false => match file.read_holder(slot)? {
            Some(holder) => Ok(Some(holder)),
            None => Ok(Some(any_writer(&file, target)?.unwrap_or_else(Holder::unknown))),
        },
    }
}

/// Those who share a database do not sign, but who writes to a container of it does.
pub(super) fn any_writer(file: &LockFile, target: &LockTarget) -> Result<Option<Holder>> {
    let LockTarget::Database(_) = target else { return Ok(None) };
    let containers =
        file.locked_between(FIRST_CONTAINER_SLOT * SLOT_BYTES, SLOTS_END * SLOT_BYTES)?;
    let mut holders = containers.iter().filter_map(slot_of).map(|slot| file.read_holder(slot));
    holders.find_map(Result::transpose).transpose()
}

fn held_in(file: &LockFile, database: Option<DatabaseId>) -> Result<Vec<HeldLock>> {
    let locked = file.locked_between(0, SLOTS_END * SLOT_BYTES)?;
    let mut held = Vec::new();
    for (slot, kind) in locked.iter().filter_map(|one| Some((slot_of(one)?, one.kind))) {
        let Some(target) = LockTarget::of_slot(database, slot) else { continue };
        let is_shared = kind == Kind::Shared;
        let holder = match is_shared {
            true => any_writer(file, &target)?,
            false => file.read_holder(slot)?,
        };
        held.push(HeldLock { target, is_shared, holder });
    }
    Ok(held)
}

/// The slot whose holder has locked this; none for one who waits.
fn slot_of(locked: &Locked) -> Option<u64> {
    let first = locked.bytes.start;
    first.is_multiple_of(SLOT_BYTES).then_some(first / SLOT_BYTES)
}

/// The database that a lock file is of: `None` inside for maintenance, outside for other files.
fn database_of(name: &str) -> Option<Option<DatabaseId>> {
    match name {
        MAINTENANCE_FILE => Some(None),
        _ => Some(Some(DatabaseId(name.parse().ok()?))),
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(Error::io("cannot list the folder", folder, error)),
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.collect())
}

fn open_if_there(path: &Path) -> Result<Option<LockFile>> {
    match path.is_file() {
        true => LockFile::open_to_look(path).map(Some),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ContainerId;

    #[test]
    fn a_waiter_is_read_back_and_half_a_one_is_not() {
        let by = Holder {
            host: "tau".into(),
            pid: 7,
            user: "anna".into(),
            application: "".into(),
            since_ms: 9,
        };
        for target in [
            LockTarget::Container(DatabaseId(3), ContainerId(u32::MAX)),
            LockTarget::Database(DatabaseId(3)),
            LockTarget::Maintenance,
        ] {
            let waiter = Waiter { target, by: by.clone(), holder: None };
            let text = waiter.to_text();
            assert_eq!(Waiter::from_text(&text), Some(waiter));
            assert_eq!(Waiter::from_text(&text[..text.len() - 3]), None);
        }
    }
}

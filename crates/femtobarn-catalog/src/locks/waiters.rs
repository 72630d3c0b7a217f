//! The waiters of a federation: one file in `locks/waits` for each process that has waited for some time.
//!
//! The waiter holds a lock on its file, so an unlocked file is recognised as one that a killed process has left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file::{LockFile, LockKind, Span, names_in};
use super::target::{LockTarget, database_of_file};
use crate::error::Result;
use crate::holder::Holder;
use crate::host;

/// The folder of the files, in that of the locks.
const WAITS_FOLDER: &str = "waits";

/// A process, or a session of a server, that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The lock that the process waits for.
    pub target: LockTarget,
    /// The process that waits, and since when.
    pub by: Holder,
    /// The lock's holder, if known.
    pub holder: Option<Holder>,
}

impl Waiter {
    /// The contents of the waiter's file.
    fn to_text(&self) -> String {
        let Holder { host, pid, user, since_ms, .. } = &self.by;
        let (host, user) = (host.replace('\n', " "), user.replace('\n', " "));
        let (name, slot) = (self.target.file_name(), self.target.slot());
        format!("{name}\n{slot}\n{pid}\n{since_ms}\n{host}\n{user}\nend\n")
    }

    /// The waiter of a file; `None` unless the text is whole.
    fn from_text(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let [name, slot, pid, since_ms, host, user, "end"] = lines[..] else { return None };
        let by = Holder {
            host: host.to_owned(),
            pid: pid.parse().ok()?,
            user: user.to_owned(),
            application: String::new(),
            since_ms: since_ms.parse().ok()?,
        };
        let target = LockTarget::of_slot(database_of_file(name)?, slot.parse().ok()?)?;
        Some(Waiter { target, by, holder: None })
    }
}

/// All waiters, in no particular order and without the holders of their locks. Files of dead processes are
/// removed.
pub(super) fn list(locks: &Path) -> Result<Vec<Waiter>> {
    let folder = locks.join(WAITS_FOLDER);
    let mut waiters = Vec::new();
    for name in names_in(&folder)? {
        let path = folder.join(name);
        let Some(file) = LockFile::open_if_there(&path)? else { continue };
        if fs::metadata(&path).map_or(0, |metadata| metadata.len()) == 0 {
            // Its waiter has created the file and is about to lock it.
            continue;
        }
        if file.try_lock(LockKind::Shared, Span::byte(0))? {
            drop(fs::remove_file(&path));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        waiters.extend(Waiter::from_text(&text));
    }
    Ok(waiters)
}

/// This process's entry among the waiters, until this is dropped. It has no file if the file could not be written: the
/// entry is only information, so the wait continues.
#[derive(Debug)]
pub(super) struct Registration {
    entry: Option<(PathBuf, LockFile)>,
    pid: u32,
}

impl Registration {
    pub(super) fn new(locks: &Path, target: &LockTarget, waited: Duration) -> Self {
        Registration { entry: Self::write(locks, target, waited).ok(), pid: host::process_id() }
    }

    fn write(locks: &Path, target: &LockTarget, waited: Duration) -> Result<(PathBuf, LockFile)> {
        let folder = locks.join(WAITS_FOLDER);
        drop(fs::create_dir(&folder));
        let path = folder.join(uuid::Uuid::new_v4().simple().to_string());
        let file = LockFile::open(&path)?;
        file.lock(LockKind::Exclusive, Span::byte(0))?;
        let mut by = Holder::this_process();
        by.since_ms = by.since_ms.saturating_sub(waited.as_millis() as u64);
        file.write_text(&Waiter { target: *target, by, holder: None }.to_text())?;
        Ok((path, file))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let (Some((path, _)), true) = (&self.entry, self.pid == host::process_id()) {
            // If this fails, the next process that lists the waiters removes the file.
            drop(fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ContainerId, DatabaseId};

    #[test]
    fn waiter_is_read_back_unless_its_text_is_cut() {
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

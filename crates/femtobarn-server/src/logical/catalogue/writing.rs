//! Who may write to databases' files: sessions, for as long as they hold the database.
//!
//! A client that was stopped for longer than its lease does not know yet that its locks are gone when it
//! wakes up, and goes on writing to space that a vacuum may have given to others. So each write looks whether
//! its session still holds the database, and what it holds stays its own until the write has ended. Nobody
//! waits for that: who writes last frees what was let go of meanwhile. An owner that asks for it again before
//! that gets it after that.
//!
//! The epoch tells whether a database that is held was held all the time since its file was opened, or
//! somebody else may have got its space in between.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use femtobarn_catalog::{DatabaseId, LockTarget};
use nix::errno::Errno;
use uuid::Uuid;

use super::FederationService;
use super::session::{Asked, HeldBy, Session, State, lock};
use crate::logical::locks::Owner;
use crate::physical::{Permit, StorageError, StoragePath, StorageResult, Writers};

/// How long a client waits whose session may be on its way.
const PAUSE: Duration = Duration::from_secs(1);

/// What is written of a database that a session holds.
#[derive(Debug, Default)]
pub(super) struct Writes {
    epoch: u64,
    /// Transactions of the session that hold the database.
    owners: usize,
    /// Writes that go on.
    running: usize,
    /// Locks on the database that were let go of while something was written.
    to_free: Vec<(u64, HeldBy)>,
    /// What their owners asked for again since then.
    to_lock: Vec<Asked>,
}

impl State {
    /// Notes that a lock is held.
    pub fn hold(&mut self, owner: u64, target: LockTarget, held: HeldBy) {
        self.held.insert((owner, target), held);
        if let LockTarget::Database(database) = target {
            let writes = self.writes.entry(database).or_default();
            writes.owners += 1;
            writes.epoch = held.epoch;
        }
    }

    /// Notes that a lock is not held any more. It is to be freed now, unless it is not returned.
    pub fn release(&mut self, owner: u64, target: LockTarget) -> Option<HeldBy> {
        let held = self.held.remove(&(owner, target))?;
        let LockTarget::Database(database) = target else { return Some(held) };
        let Some(writes) = self.writes.get_mut(&database) else { return Some(held) };
        writes.owners -= 1;
        if writes.running > 0 {
            writes.to_free.push((owner, held));
            return None;
        }
        if writes.owners == 0 {
            self.writes.remove(&database);
        }
        Some(held)
    }

    /// Whether an owner asks for what it let go of and what is not free yet: it is asked again then.
    pub fn postpone(&mut self, asked: Asked) -> bool {
        let LockTarget::Database(database) = asked.target else { return false };
        let Some(writes) = self.writes.get_mut(&database) else { return false };
        let is_postponed = writes.to_free.iter().any(|&(owner, _)| owner == asked.owner);
        if is_postponed {
            // An owner asks for one thing at a time: an earlier one is from before its client came again.
            writes.to_lock.retain(|earlier| earlier.owner != asked.owner);
            writes.to_lock.push(asked);
        }
        is_postponed
    }

    /// Lets go of all but some locks, and returns those that are to be freed now.
    pub fn let_go_unless(
        &mut self,
        is_kept: impl Fn(&(u64, LockTarget)) -> bool,
    ) -> Vec<((u64, LockTarget), HeldBy)> {
        let gone: Vec<_> = self.held.keys().filter(|key| !is_kept(key)).copied().collect();
        let free = gone.into_iter().filter_map(|(owner, target)| {
            self.release(owner, target).map(|held| ((owner, target), held))
        });
        free.collect()
    }

    fn may_write(&self, database: DatabaseId) -> Option<&Writes> {
        let writes = self.writes.get(&database)?;
        (!self.is_over && writes.owners > 0).then_some(writes)
    }
}

/// The right of a session to write to a database.
struct SessionPermit {
    served: Arc<FederationService>,
    /// The session as it was last known: it may end and begin anew under its name.
    session: Mutex<Arc<Session>>,
    database: DatabaseId,
    /// In which the file was opened.
    epoch: u64,
}

impl Writers for Arc<FederationService> {
    fn admit(&self, session: Option<Uuid>, database: DatabaseId) -> StorageResult<Arc<dyn Permit>> {
        let known = session.and_then(|id| self.session(id));
        let held = known.and_then(|session| {
            let epoch = session.lock().may_write(database)?.epoch;
            Some((session, epoch))
        });
        match held {
            Some((session, epoch)) => Ok(Arc::new(SessionPermit {
                served: Arc::clone(self),
                session: Mutex::new(session),
                database,
                epoch,
            })),
            // After a restart, the session may come a little later than its writers.
            None if session.is_some() && self.since.elapsed() < self.lease => {
                Err(StorageError::NotBefore(PAUSE, "sessions are still coming back".to_owned()))
            }
            None => Err(lost(database)),
        }
    }

    fn file_created(&self, path: &StoragePath, database: DatabaseId) {
        self.unborn.insert(&below(path), database);
    }

    fn file_removed(&self, path: &StoragePath) {
        self.unborn.remove(&below(path));
    }

    fn uncommitted_database(&self, path: &StoragePath) -> Option<DatabaseId> {
        self.unborn.database(&below(path))
    }
}

/// A path as the catalogue has it: below the federation's folder.
fn below(path: &StoragePath) -> String {
    String::from_utf8_lossy(&path.as_bytes()[1..]).into_owned()
}

impl Permit for SessionPermit {
    fn during(&self, write: &mut dyn FnMut() -> StorageResult<()>) -> StorageResult<()> {
        let _writing = self.begin().ok_or_else(|| lost(self.database))?;
        write()
    }
}

impl SessionPermit {
    fn begin(&self) -> Option<Writing<'_>> {
        let session = self.session();
        let mut state = session.lock();
        if state.may_write(self.database)?.epoch != self.epoch {
            return None;
        }
        state.writes.get_mut(&self.database)?.running += 1;
        drop(state);
        Some(Writing { permit: self, session })
    }

    fn session(&self) -> Arc<Session> {
        let mut session = lock(&self.session);
        // Not while it is locked: all sessions come before what one of them holds.
        let is_over = session.lock().is_over;
        let anew = if is_over { self.served.session(session.id()) } else { None };
        if let Some(anew) = anew {
            *session = anew;
        }
        Arc::clone(&session)
    }
}

/// A write that goes on.
struct Writing<'a> {
    permit: &'a SessionPermit,
    session: Arc<Session>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let (served, session) = (&self.permit.served, &self.session);
        let target = LockTarget::Database(self.permit.database);
        let mut state = session.lock();
        let (to_free, to_lock) = state.end_write(self.permit.database);
        let mut granted = vec![];
        let is_freed = !to_free.is_empty();
        // While nobody can ask for them again.
        for (number, held) in to_free {
            let owner = Owner { session: session.number(), number };
            granted.extend(served.release(owner, target, held));
        }
        // Who grants locks has nothing locked.
        drop(state);
        served.grant(granted);
        if is_freed {
            served.sweep(target);
        }
        let answers = to_lock.into_iter().filter_map(|asked| served.lock(session, asked));
        answers.for_each(|outcome| session.tell(outcome));
    }
}

impl State {
    /// Notes that a write has ended; what is to be freed then, and what to be locked after that.
    fn end_write(&mut self, database: DatabaseId) -> (Vec<(u64, HeldBy)>, Vec<Asked>) {
        let Some(writes) = self.writes.get_mut(&database) else { return (vec![], vec![]) };
        writes.running -= 1;
        if writes.running > 0 {
            return (vec![], vec![]);
        }
        let due = (std::mem::take(&mut writes.to_free), std::mem::take(&mut writes.to_lock));
        if writes.owners == 0 {
            self.writes.remove(&database);
        }
        due
    }
}

fn lost(database: DatabaseId) -> StorageError {
    let what = format!(
        "the lock on database {database} was lost, so its space may be somebody else's; run the \
         transaction again"
    );
    StorageError::refused(Errno::ENOLCK, what)
}

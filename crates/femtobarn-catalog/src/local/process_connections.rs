//! The connections of the current process to the catalogue of a folder. They are opened again after a fork, and at the
//! new place after the catalogue has moved.
//!
//! 1. A change is made in the catalogue that the federation uses, or not at all: each checks in its own transaction
//!    whether the catalogue is about to be left. If so, it waits until the move has happened, and is made at the new
//!    place; if the mover has died before that, the catalogue stays in use.
//! 2. A look-up that begins after the catalogue has moved sees the new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use uuid::Uuid;

use super::catalogue_place::CataloguePlace;
use super::connections::Connections;
use super::role::{self, MovePhase};
use crate::commit::Commit;
use crate::error::{Error, Result};
use crate::host;
use crate::ids::Csn;
use crate::locks::{FileTurn, TurnKind};
use crate::paths::LOCKS_FOLDER;
use crate::schema::FederationIdentity;
use crate::sql::{SqlConnection, SqlResult, Work, once};

/// The pause before a waiting change checks again whether the catalogue has moved.
const PAUSE: Duration = Duration::from_millis(2);

/// The connections of the current process, opened again after a fork or a move.
pub(super) struct ProcessConnections {
    folder: PathBuf,
    federation: Uuid,
    current: Mutex<Opened>,
}

/// Connections, and how they were opened.
struct Opened {
    connections: Arc<Connections>,
    read_only: bool,
}

impl Opened {
    fn new(folder: &Path) -> Result<(Self, FederationIdentity)> {
        let connections = Connections::new(CataloguePlace::find(folder)?)?;
        let (reader, identity) = connections.open_reader()?;
        let read_only = reader.is_read_only();
        connections.keep(reader);
        Ok((Opened { connections: Arc::new(connections), read_only }, identity))
    }
}

impl ProcessConnections {
    pub(super) fn open(folder: &Path) -> Result<(Self, FederationIdentity)> {
        let (opened, identity) = Opened::new(folder)?;
        let (federation, current) = (identity.uuid, Mutex::new(opened));
        Ok((ProcessConnections { folder: folder.to_owned(), federation, current }, identity))
    }

    /// Whether the catalogue cannot be changed here. PostgreSQL may accept changes later.
    pub(super) fn is_read_only(&self) -> bool {
        let connections = self.current();
        let opened = self.current.lock().read_only;
        connections.ok().and_then(|them| them.is_read_only()).unwrap_or(opened)
    }

    /// Whether the catalogue is in PostgreSQL.
    pub(super) fn is_postgres(&self) -> bool {
        // If the new place cannot be opened, the answer is about the old one.
        drop(self.current());
        self.was_postgres()
    }

    /// Whether the catalogue was in PostgreSQL when this process last used it. Asks the file system for nothing.
    pub(super) fn was_postgres(&self) -> bool {
        self.current.lock().connections.is_postgres()
    }

    pub(super) fn current(&self) -> Result<Arc<Connections>> {
        let mut current = self.current.lock();
        if current.connections.pid() != host::process_id() {
            let own = Connections::new(CataloguePlace::find(&self.folder)?)?;
            let inherited = std::mem::replace(&mut current.connections, Arc::new(own));
            inherited.leave_to_parent();
        } else if current.connections.has_moved() {
            let (opened, identity) = Opened::new(&self.folder)?;
            if identity.uuid != self.federation {
                let folder = self.folder.display();
                let what = format!("the catalogue of {folder} is another federation's now");
                return Err(Error::closed(format!("{what}; open the federation again")));
            }
            // Threads may still use the old ones.
            *current = opened;
        }
        Ok(Arc::clone(&current.connections))
    }

    /// Runs a change of the catalogue's users in a transaction of its own; it is durable when this returns.
    pub(super) fn write<T>(
        &self,
        change: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> Result<T> {
        self.write_after(Connections::change, role::check_leader, change)
    }

    /// As [`write`](Self::write), for rows that no process keeps in memory.
    pub(super) fn write_aside<T>(
        &self,
        change: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> Result<T> {
        self.write_after(Connections::write_aside, role::check_leader, change)
    }

    /// Runs a change as [`write`](Self::write) does, for rows that a follower gets from its leader.
    pub(super) fn write_as_follower<T>(
        &self,
        change: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> Result<T> {
        self.write_after(Connections::change, role::check_follower, change)
    }

    /// Runs a change as [`write`](Self::write) does, whatever the catalogue's role.
    pub(super) fn write_as_anyone<T>(
        &self,
        change: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> Result<T> {
        self.write_after(Connections::change, role::check_in_use, change)
    }

    /// As [`write_as_anyone`](Self::write_as_anyone), for rows that no process keeps in memory.
    pub(super) fn write_aside_as_anyone<T>(
        &self,
        change: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> Result<T> {
        self.write_after(Connections::write_aside, role::check_in_use, change)
    }

    fn write_after<T>(
        &self,
        run: fn(&Connections, Work<'_>) -> Result<()>,
        check: fn(&SqlConnection) -> SqlResult<()>,
        change: impl FnOnce(&SqlConnection) -> SqlResult<T>,
    ) -> Result<T> {
        once(change, |change| self.change_after(run, check, change))
    }

    fn change_after(
        &self,
        run: fn(&Connections, Work<'_>) -> Result<()>,
        check: fn(&SqlConnection) -> SqlResult<()>,
        change: Work<'_>,
    ) -> Result<()> {
        let mut has_begun = false;
        loop {
            let connections = self.current()?;
            let mut checked = |sql: &SqlConnection| {
                check(sql)?;
                has_begun = true;
                change(sql)
            };
            let written = run(&connections, &mut checked);
            match written {
                Err(Error::Moving) if !has_begun => self.wait_for_move()?,
                // The catalogue has moved since the current connections were looked up.
                Err(Error::Closed { .. }) if !has_begun && connections.has_moved() => {}
                other => return other,
            }
        }
    }

    /// Publishes a commit together with those of other threads that are waiting.
    pub(super) fn commit(&self, commit: Commit) -> Result<Csn> {
        let connections = self.current()?;
        connections.queue().submit(commit, |group| self.publish(&connections, group))
    }

    /// Publishes several commits in one durable write. Invalid ones are refused first.
    pub(super) fn commit_all(&self, commits: Vec<Commit>) -> Vec<Result<Csn>> {
        let checked: Vec<Result<()>> = commits.iter().map(Commit::validate).collect();
        let valid = commits.into_iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
        let valid: Vec<Commit> = valid.map(|(commit, _)| commit).collect();
        let published = match self.current() {
            _ if valid.is_empty() => vec![],
            Ok(connections) => self.publish(&connections, &valid),
            Err(error) => vec![Err(error); valid.len()],
        };
        let mut published = published.into_iter();
        let lost = || Err(Error::internal("a commit of a group has no result"));
        let result =
            |checked: Result<()>| checked.and_then(|()| published.next().unwrap_or_else(lost));
        checked.into_iter().map(result).collect()
    }

    /// Publishes a group to connections that were current when its commits came, and to later ones if the catalogue has
    /// moved since.
    fn publish(&self, connections: &Arc<Connections>, group: &[Commit]) -> Vec<Result<Csn>> {
        let mut connections = Arc::clone(connections);
        loop {
            let published = connections.publish(group);
            // The whole group is published, or waits.
            match published.first() {
                Some(Err(Error::Moving)) => {
                    if let Err(error) = self.wait_for_move() {
                        return vec![Err(error); group.len()];
                    }
                }
                // The catalogue has moved since the current connections were looked up.
                Some(Err(Error::Closed { .. })) if connections.has_moved() => {}
                _ => return published,
            }
            connections = match self.current() {
                Ok(connections) => connections,
                Err(error) => return vec![Err(error); group.len()],
            };
        }
    }

    /// Waits until a catalogue that was about to be left has been left, or is to stay.
    fn wait_for_move(&self) -> Result<()> {
        let is_leaving = |connections: &Connections| match connections.read(role::phase) {
            // It was left since the current connections were looked up.
            Err(Error::Closed { .. }) if connections.has_moved() => Ok(false),
            phase => phase.map(|phase| phase == Some(MovePhase::Leaving)),
        };
        while is_leaving(&*self.current()?)? {
            let turn = FileTurn::take_if_free(&self.folder.join(LOCKS_FOLDER), TurnKind::Move)?;
            if turn.is_none() {
                thread::sleep(PAUSE);
                continue;
            }
            // The turn was free, so the mover is done, or has died.
            let connections = self.current()?;
            if is_leaving(&connections)? {
                connections.write_unchecked(|sql| role::set_phase(sql, None, ""))?;
            }
        }
        Ok(())
    }

    pub(super) fn disconnect(&self) {
        let current = self.current.lock();
        if current.connections.pid() == host::process_id() {
            current.connections.disconnect();
        }
    }
}

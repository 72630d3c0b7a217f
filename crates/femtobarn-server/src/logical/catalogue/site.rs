//! This server's part in a federation with several servers: its lease, and the databases whose home it is.
//!
//! 1. It admits locks and writes only while its lease lasts by its own monotonic clock. The lease begins there before
//!    it begins on PostgreSQL's clock, and ends a quarter earlier. No other server has its databases before that.
//! 2. While the lease lasts no other server changes the homes that this one has, so it knows them without asking.
//! 3. Locks that were granted in an earlier epoch of the server are lost, and their fences are refused.
//! 4. A server that has left does not join again, even if a renewal was in progress.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::{
    Csn, DatabaseId, DatabaseRow, Error, ErrorKind, Fence, Home, JoiningServer, LocalCatalogue,
    ResidenceState, Result, ServerRow, clock,
};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::new_databases::place;
use super::reached_servers::ReachedServers;

/// The pause before a catalogue that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// A server's part in a federation.
#[derive(Debug)]
pub struct Site {
    pub(super) catalog: Arc<LocalCatalogue>,
    own: JoiningServer,
    lease: Duration,
    pub(super) state: Mutex<SiteState>,
    /// The turn to fence databases off.
    fencing: Arc<tokio::sync::Mutex<()>>,
    pub(super) reached: ReachedServers,
}

#[derive(Debug)]
pub(super) struct SiteState {
    epoch: u64,
    /// When the lease is over by this server's clock.
    until: Instant,
    has_left: bool,
    /// The epochs of the homes that this server has, as far as known.
    pub(super) homes: HashMap<DatabaseId, u64>,
    /// The number of changes of `homes`. If it changes during a look-up, the result of the look-up is not kept.
    changes: u64,
    /// The servers that got databases of this one.
    pub(super) handed_over: HashMap<DatabaseId, String>,
    /// How many of both were kept when those of dropped databases were forgotten last.
    pub(super) homes_kept: usize,
    /// The servers of the federation, as of the last renewal, or the last beginning of a session.
    servers: Vec<ServerRow>,
}

/// The place of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabasePlace {
    /// The home is this server, or the database has no home yet.
    Here,
    /// The home is another server.
    There(Home),
}

impl Site {
    /// Joins the federation.
    ///
    /// # Errors
    /// As [`LocalCatalogue::join`].
    pub fn join(catalog: Arc<LocalCatalogue>, own: JoiningServer, lease: Duration) -> Result<Self> {
        let began = clock::now();
        let epoch = catalog.join(&own, lease)?;
        let servers = catalog.servers()?;
        let until = began + lease * 3 / 4;
        let state = Mutex::new(SiteState {
            epoch,
            until,
            has_left: false,
            homes: HashMap::new(),
            changes: 0,
            handed_over: HashMap::new(),
            homes_kept: 0,
            servers,
        });
        let (fencing, reached) = (Arc::default(), ReachedServers::default());
        Ok(Site { catalog, own, lease, state, fencing, reached })
    }

    /// The name of this server.
    pub fn name(&self) -> &str {
        &self.own.name
    }

    /// The duration of a lease.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The epoch of this server.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if its lease is over.
    pub fn epoch(&self) -> Result<u64> {
        let state = self.state.lock();
        if clock::now() < state.until {
            return Ok(state.epoch);
        }
        Err(Error::Unavailable {
            what: format!(
                "server {:?} has lost its lease, because it does not reach the catalogue; try again later",
                self.own.name
            ),
        })
    }

    /// Whether locks that were granted in an epoch of this server are still valid.
    pub fn is_valid(&self, epoch: u64) -> bool {
        self.epoch().is_ok_and(|current| current == epoch)
    }

    /// Whether this server is known to be the home of a database, without asking the catalogue.
    pub fn has(&self, database: DatabaseId) -> bool {
        self.epoch().is_ok() && self.state.lock().homes.contains_key(&database)
    }

    /// The place of a database. Asks the catalogue unless this server is known to have it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the lease of this server is over; [`Error::Unsupported`] if the database has no home,
    /// and its file is not here; those of the catalogue.
    pub fn place_of(&self, database: DatabaseId) -> Result<DatabasePlace> {
        loop {
            self.epoch()?;
            let changes = {
                let state = self.state.lock();
                if state.homes.contains_key(&database) {
                    return Ok(DatabasePlace::Here);
                }
                state.changes
            };
            let home = self.known_home(database)?;
            let mut state = self.state.lock();
            if state.changes != changes {
                continue;
            }
            return Ok(match home {
                None => DatabasePlace::Here,
                Some(home) if home.server == self.own.name => {
                    state.homes.insert(database, home.epoch);
                    state.handed_over.remove(&database);
                    DatabasePlace::Here
                }
                Some(home) => DatabasePlace::There(home),
            });
        }
    }

    /// The home of a database; `None` if the database is not committed yet. A database that was committed without a
    /// home, such as one attached by a program in a folder without a server, gets this server as its home if the file
    /// is here, or only in a store.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the file is not here; those of the catalogue.
    fn known_home(&self, database: DatabaseId) -> Result<Option<Home>> {
        if let Some(home) = self.catalog.home(database)? {
            return Ok(Some(home));
        }
        let row = match self.catalog.database_by_id(database, Csn::MAX) {
            Err(Error::NotFound { .. }) => return Ok(None),
            row => row?,
        };
        let in_store = [ResidenceState::Nearline, ResidenceState::Staging];
        let is_here = self.catalog.folder().join(&row.path).exists()
            || in_store.contains(&self.catalog.residence(database)?.state());
        if !is_here {
            let DatabaseRow { name, path, .. } = row;
            let what = format!(
                "database {name:?} has no home yet, and its file {path} is not at server {:?}: open it at the server \
                 that has the file, which then is its home",
                self.own.name
            );
            return Err(Error::Unsupported { what });
        }
        self.catalog.claim_home(database, &self.own.name)?;
        self.catalog.home(database)
    }

    /// Checks that a database is written at this server.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] if its home is another server; those of [`place_of`](Self::place_of).
    pub fn check_here(&self, database: DatabaseId) -> Result<()> {
        match self.place_of(database)? {
            DatabasePlace::Here => Ok(()),
            DatabasePlace::There(home) => Err(elsewhere(database, home)),
        }
    }

    /// The fence for a database whose lock is granted now.
    pub fn fence(&self, database: DatabaseId) -> Fence {
        let state = self.state.lock();
        Fence {
            database,
            server: self.own.name.clone(),
            server_epoch: state.epoch,
            home_epoch: state.homes.get(&database).copied().unwrap_or(0),
        }
    }

    /// Makes the catalogue refuse the commits of all present holders of databases here, because the client of one fell
    /// silent. Returns when that is done, or the server has another epoch, in which they are refused anyway. While the
    /// catalogue does not answer, one thread asks it for all callers.
    pub async fn fence_off(self: &Arc<Self>, databases: Arc<[DatabaseId]>) {
        let epoch = self.state.lock().epoch;
        loop {
            let turn = Arc::clone(&self.fencing).lock_owned().await;
            let (site, databases) = (Arc::clone(self), Arc::clone(&databases));
            let fenced = spawn_blocking(move || {
                let fenced = site.try_fence_off(epoch, &databases);
                // The turn is held until here, even if the future is dropped.
                drop(turn);
                fenced
            });
            match fenced.await {
                Ok(Err(error)) => {
                    tracing::warn!(%error, "locks of a lost session are not freed yet");
                    tokio::time::sleep(AGAIN).await;
                }
                // It fails only while the server is shutting down.
                Ok(Ok(())) | Err(_) => return,
            }
        }
    }

    /// Fences databases off once, unless the server has another epoch than `epoch`.
    fn try_fence_off(&self, epoch: u64, databases: &[DatabaseId]) -> Result<()> {
        if self.state.lock().epoch != epoch {
            return Ok(());
        }
        match self.catalog.fence_off((&self.own.name, epoch), databases) {
            Ok(raised) => {
                let mut state = self.state.lock();
                if state.epoch == epoch {
                    state.homes.extend(raised);
                    state.changes += 1;
                }
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Renews the lease. If it was lost, the server joins again, under a new epoch.
    ///
    /// # Errors
    /// The errors of the catalogue. Then the lease lasts until its end.
    pub fn renew(&self, free_bytes: u64, load: u64) -> Result<()> {
        let began = clock::now();
        let Some(epoch) = self.epoch_unless_left() else { return Ok(()) };
        let renewed = self.catalog.renew((&self.own.name, epoch), self.lease, (free_bytes, load));
        match renewed {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Conflict => {
                if self.epoch_unless_left().is_none() {
                    return Ok(());
                }
                tracing::error!(server = self.own.name, %error, "joining again");
                let joined = self.catalog.join(&self.own, self.lease)?;
                let mut state = self.state.lock();
                (state.epoch, state.homes) = (joined, HashMap::new());
                state.changes += 1;
            }
            Err(error) => return Err(error),
        }
        {
            let mut state = self.state.lock();
            if state.has_left {
                let epoch = state.epoch;
                drop(state);
                return self.catalog.leave(&self.own.name, epoch);
            }
            state.until = began + self.lease * 3 / 4;
        }
        let servers = self.catalog.servers()?;
        let is_dead = |row: &ServerRow| {
            row.storage == self.own.storage
                && row.name != self.own.name
                && !row.is_alive
                && row.databases > 0
        };
        let has_dead = servers.iter().any(is_dead);
        let mut state = self.state.lock();
        state.servers = servers;
        let epoch = state.epoch;
        drop(state);
        if has_dead {
            for (server, databases) in self.catalog.take_over(&self.own.name, epoch)? {
                tracing::warn!(server, databases, "took over databases of an offline server");
            }
        }
        self.forget_dropped();
        Ok(())
    }

    /// The epoch of this server, unless it has left.
    fn epoch_unless_left(&self) -> Option<u64> {
        let state = self.state.lock();
        (!state.has_left).then_some(state.epoch)
    }

    /// Ends the lease. If the lease is over by this server's clock, because the catalogue does not answer, there is
    /// nothing to end.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        state.has_left = true;
        if clock::now() >= state.until {
            return;
        }
        state.until = clock::now();
        let epoch = state.epoch;
        drop(state);
        if let Err(error) = self.catalog.leave(&self.own.name, epoch) {
            tracing::warn!(server = self.own.name, %error, "the lease cannot be ended early; it runs out by itself");
        }
    }

    /// Whether another server sees the files of this one.
    pub fn shares_disk(&self, server: &ServerRow) -> bool {
        server.storage == self.own.storage
    }

    /// The error for a request about a database that another server must carry out.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such server; those of the catalogue.
    pub fn at_server(&self, database: DatabaseId, name: &str) -> Result<Error> {
        let row = self.catalog.server(name)?;
        let what =
            format!("database {database} moves to server {name:?} if that is asked ({})", row.url);
        Ok(Error::Elsewhere { what, server: row.name, url: row.url })
    }

    /// Makes another server the home of a database of this one, which was locked in the epoch `locked` of this server.
    ///
    /// # Errors
    /// The errors of [`LocalCatalogue::set_home`]; [`Error::Unavailable`] if the lease of this server is over.
    pub(super) fn hand_over(&self, database: DatabaseId, locked: u64, to: &str) -> Result<()> {
        self.check_here(database)?;
        let from = Fence { server_epoch: locked, ..self.fence(database) };
        let set = self.catalog.set_home(&from, to);
        // From here on the catalogue is asked for the home, whether or not this succeeded.
        let mut state = self.state.lock();
        state.homes.remove(&database);
        state.changes += 1;
        if set.is_ok() {
            state.handed_over.insert(database, to.to_owned());
        }
        set.map(drop)
    }

    /// Looks up the homes of databases again, after a commit was refused that showed outdated fences.
    pub fn look_again(&self, databases: &[DatabaseId]) {
        for database in databases {
            let changes = self.state.lock().changes;
            let Ok(home) = self.catalog.home(*database) else { continue };
            let mut state = self.state.lock();
            if state.changes != changes {
                continue;
            }
            match home.filter(|home| home.server == self.own.name) {
                Some(home) => state.homes.insert(*database, home.epoch),
                None => state.homes.remove(database),
            };
        }
    }

    /// Checks that a database was not handed over to another server, while a lock on it was waited for.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] with that server.
    pub fn check_kept(&self, database: DatabaseId) -> Result<()> {
        let to = self.state.lock().handed_over.get(&database).cloned();
        let home = to.and_then(|to| self.named(&to));
        home.map_or(Ok(()), |home| Err(elsewhere(database, home)))
    }

    /// The databases whose files are on disks of other servers.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub(super) fn databases_elsewhere(&self) -> Result<HashSet<DatabaseId>> {
        self.catalog.databases_elsewhere()
    }

    /// Looks up the federation's servers, for a client that must know which others it can use. If the catalogue does
    /// not answer, the servers of the last look-up are used.
    pub(super) fn look_for_servers(&self) {
        if let Ok(servers) = self.catalog.servers() {
            self.state.lock().servers = servers;
        }
    }

    /// The servers of the federation, as of the last look.
    pub fn servers(&self) -> Vec<ServerRow> {
        self.state.lock().servers.clone()
    }

    /// The home of a database; for a database without one, the server that will get it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the database was committed without a home, and its file is not here;
    /// [`Error::Unavailable`] if no server accepts new databases; those of the catalogue.
    pub fn home_or_placement(&self, database: DatabaseId) -> Result<Home> {
        if let Some(home) = self.known_home(database)? {
            return Ok(home);
        }
        let servers = self.catalog.servers()?;
        let chosen = place(&servers, &self.own.name).cloned();
        self.state.lock().servers = servers;
        let row = chosen.ok_or_else(|| Error::Unavailable {
            what: "no server of the federation takes new databases; start one, or end a drain"
                .to_owned(),
        })?;
        Ok(row.into())
    }

    /// A server by its name: as of the last renewal, or, if it has joined since, from the catalogue.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none; those of the catalogue.
    pub(super) fn server(&self, name: &str) -> Result<Home> {
        self.named(name).map_or_else(|| Ok(self.catalog.server(name)?.into()), Ok)
    }

    /// A server by its name, as of the last renewal.
    fn named(&self, name: &str) -> Option<Home> {
        let state = self.state.lock();
        Some(state.servers.iter().find(|row| row.name == name)?.clone().into())
    }
}

fn elsewhere(database: DatabaseId, home: Home) -> Error {
    let Home { server, url, .. } = home;
    Error::Elsewhere {
        what: format!("database {database} is at server {server:?} ({url})"),
        server,
        url,
    }
}

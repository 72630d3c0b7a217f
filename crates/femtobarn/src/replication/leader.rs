//! The leader of a federation, as its follower uses it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use femtobarn_catalog::{
    Catalogue, Csn, DatabaseId, ErrorKind, LeaderDatabase, LeaderRows, LocalCatalogue, PinGuard,
    Successor,
};
use femtobarn_rpc::client::RemoteCatalogue;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::storage::file::DatabaseFile;
use crate::storage::remote::connect::connect_options;
use crate::storage::remote::folder::{RemoteFolder, ServerPatience};

/// A connection to the leader.
pub(super) struct Leader {
    catalog: RemoteCatalogue,
    files: RemoteFolder,
    url: String,
    /// Snapshots that the leader keeps for this follower.
    pins: BTreeMap<Csn, PinGuard>,
    /// The opening of the session in which the history was compared.
    compared_in: u64,
}

impl Leader {
    /// Connects to the server of `root://host:port//federation`.
    pub(super) fn connect(url: &str, patience: Duration) -> Result<Self> {
        let catalog = RemoteCatalogue::connect(url, &connect_options(patience))?;
        let patience = ServerPatience::with_the_only_one(patience);
        let files = RemoteFolder::connect(url, catalog.session(), 0, patience)?;
        let url = url.to_owned();
        Ok(Leader { catalog, files, url, pins: BTreeMap::new(), compared_in: 0 })
    }

    pub(super) fn uuid(&self) -> Uuid {
        self.catalog.uuid()
    }

    pub(super) fn name(&self) -> &str {
        self.catalog.name()
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Checks, once in each session, that the leader has the newest commit of this copy. A server that was restarted may
    /// have another history.
    ///
    /// # Errors
    /// `Conflict` if it does not have that commit.
    pub(super) fn check_history(&mut self, here: &LocalCatalogue) -> Result<()> {
        let opening = self.catalog.openings();
        if opening != self.compared_in {
            // A new session may have lost the pins of the one before.
            self.pins.clear();
        }
        let head = here.head()?;
        if opening == self.compared_in || head == Csn::ZERO {
            self.compared_in = opening;
            return Ok(());
        }
        let own = here.commit_by_csn(head)?.transaction;
        let theirs = match self.catalog.commit_by_csn(head) {
            Ok(commit) => Some(commit.transaction),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        if theirs != Some(own) {
            return Err(Error::Conflict {
                what: format!(
                    "commit {head} of this copy is not in the history of {}: the two have diverged; make a new copy, \
                     in an empty folder",
                    self.url
                ),
            });
        }
        self.compared_in = opening;
        Ok(())
    }

    /// How often the session was opened until now.
    pub(super) fn openings(&self) -> u64 {
        self.catalog.openings()
    }

    /// The rows of commits after `since`; returns after `wait` at the latest. `follower` is the name under which this
    /// copy reports itself to the leader, and whether it has no snapshot yet.
    pub(super) fn rows_since(
        &self,
        since: Csn,
        mark: Option<u64>,
        wait: Duration,
        follower: (&str, bool),
    ) -> Result<LeaderRows> {
        Ok(self.catalog.rows_since(since, mark, wait, follower)?)
    }

    pub(super) fn rows_of_database(&self, database: DatabaseId, at: Csn) -> Result<LeaderRows> {
        Ok(self.catalog.rows_of_database(database, at)?)
    }

    /// Makes the leader keep a snapshot; false if it no longer exists.
    pub(super) fn pin(&mut self, at: Csn) -> Result<bool> {
        if self.pins.contains_key(&at) {
            return Ok(true);
        }
        match self.catalog.pin(at) {
            Ok(pin) => {
                self.pins.insert(at, pin);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the leader keep these snapshots, as far as they exist, and releases its pins of all other ones.
    pub(super) fn pin_only(&mut self, wanted: &[Csn]) -> Result<()> {
        for csn in wanted {
            self.pin(*csn)?;
        }
        self.pins.retain(|csn, _| wanted.contains(csn));
        Ok(())
    }

    /// Opens the file of a database as it is on the leader's disk.
    pub(super) fn open(&self, database: &LeaderDatabase) -> Result<DatabaseFile> {
        if Path::new(&database.path).is_absolute() {
            // A file outside of the folder has the name of its database there, even of one that was dropped.
            let at = database.dropped.map_or(Csn::MAX, |dropped| Csn(dropped.0.saturating_sub(1)));
            let name = self.catalog.database_by_id(database.id, at)?.name;
            return Ok(self.files.open_as_of(&format!("{name}.root"), at)?.into());
        }
        Ok(self.files.open(&database.path)?.into())
    }

    /// The epoch of a database now.
    pub(super) fn epoch(&self, database: &LeaderDatabase) -> Result<u64> {
        let at = database.dropped.map_or(Csn::MAX, |dropped| Csn(dropped.0.saturating_sub(1)));
        Ok(self.catalog.database_by_id(database.id, at)?.epoch)
    }

    /// Informs the leader of its successor; returns the leader's newest commit, after which it takes no other.
    pub(super) fn yield_to(&self, successor: &Successor) -> Result<Csn> {
        Ok(self.catalog.yield_to(successor)?)
    }
}

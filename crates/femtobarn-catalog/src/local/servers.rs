//! Servers of a federation in PostgreSQL: they join, renew their leases, leave, and are the homes of databases.
//!
//! Times are those of PostgreSQL's clock alone.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::LocalCatalogue;
use super::decode::number;
use crate::error::{Error, Result};
use crate::ids::DatabaseId;
use crate::locks::ServerPresence;
use crate::names;
use crate::numbers::{signed, unsigned};
use crate::paths::{DATABASES_FOLDER, LOCKS_FOLDER, STORAGE_FILE};
use crate::servers::{Fence, Home, JoiningServer, ServerRow, ServerStanding};
use crate::sql::{OptionalExtension, Row, RowResult, SqlResult, params};

/// The microseconds since 1970, in a statement.
macro_rules! now_us {
    () => {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
    };
}

const SERVERS: &str = concat!(
    "SELECT s.name, s.url, s.storage, s.state, s.epoch, s.lease_until_us > ",
    now_us!(),
    ", s.free_bytes, s.load, (SELECT count(*) FROM homes h JOIN databases d ON d.id = h.database \
     WHERE h.server = s.name AND d.dropped IS NULL) FROM servers s ORDER BY s.name"
);
const HOME: &str = concat!(
    "SELECT s.name, s.url, s.lease_until_us > ",
    now_us!(),
    ", h.epoch, s.epoch, ",
    now_us!(),
    " - s.lease_until_us, EXISTS (SELECT 1 FROM servers o WHERE o.storage = s.storage AND o.name <> s.name \
     AND o.state = 'active' AND o.lease_until_us > ",
    now_us!(),
    ") FROM homes h JOIN servers s ON s.name = h.server WHERE h.database = ?1"
);
/// Refuses a name that is alive at another URL, or has databases on another storage.
const JOIN: &str = concat!(
    "INSERT INTO servers AS s (name, url, storage, epoch, state, lease_until_us, free_bytes, load) \
     VALUES (?1, ?2, ?3, 1, 'active', ",
    now_us!(),
    " + ?4, 0, 0) ON CONFLICT (name) DO UPDATE SET url = excluded.url, storage = excluded.storage, \
     epoch = s.epoch + 1, lease_until_us = excluded.lease_until_us, \
     state = CASE s.state WHEN 'draining' THEN s.state ELSE 'active' END \
     WHERE (s.url = excluded.url OR s.lease_until_us < ",
    now_us!(),
    ") AND (s.storage = excluded.storage OR NOT EXISTS (SELECT 1 FROM homes h WHERE h.server = s.name)) \
     RETURNING epoch"
);
const RENEW: &str = concat!(
    "UPDATE servers SET lease_until_us = ",
    now_us!(),
    " + ?3, free_bytes = ?4, load = ?5 WHERE name = ?1 AND epoch = ?2 AND state <> 'left'"
);
const LEAVE: &str = concat!(
    "UPDATE servers SET lease_until_us = ",
    now_us!(),
    ", epoch = epoch + 1, state = CASE state WHEN 'draining' THEN state ELSE 'left' END \
     WHERE name = ?1 AND epoch = ?2"
);
const HOMELESS: &str = "SELECT d.id, d.path FROM databases d \
    LEFT JOIN homes h ON h.database = d.id WHERE h.database IS NULL";
const SET_NEW_HOME: &str = "INSERT INTO homes (database, server, epoch) VALUES (?1, ?2, 1) \
    ON CONFLICT (database) DO NOTHING";
/// The servers whose leases are over, which have the same storage as an active one and are still homes of databases.
const DEAD: &str = concat!(
    "SELECT o.name FROM servers o JOIN servers s ON s.storage = o.storage AND o.name <> s.name \
     WHERE s.name = ?1 AND s.epoch = ?2 AND s.state = 'active' AND o.lease_until_us < ",
    now_us!(),
    " AND EXISTS (SELECT 1 FROM homes h WHERE h.server = o.name) ORDER BY o.name"
);
const TAKE_HOMES: &str = "UPDATE homes SET server = ?2, epoch = epoch + 1 WHERE server = ?1";
const SET_HOME: &str = "UPDATE homes SET server = ?4, epoch = epoch + 1 \
    WHERE database = ?1 AND server = ?2 AND epoch = ?3 \
    AND EXISTS (SELECT 1 FROM servers s WHERE s.name = ?2 AND s.epoch = ?5) \
    AND EXISTS (SELECT 1 FROM servers s WHERE s.name = ?4 AND s.state = 'active') RETURNING epoch";
const SET_STATE: &str = "UPDATE servers SET state = ?2 WHERE name = ?1 AND state <> 'left'";
const RAISE_HOME: &str = "INSERT INTO homes AS h (database, server, epoch) \
    VALUES (?1, ?2, 1) ON CONFLICT (database) DO UPDATE SET epoch = h.epoch + 1 WHERE h.server = excluded.server RETURNING epoch";

impl LocalCatalogue {
    /// The servers of the federation, ordered by name; empty if none ever joined.
    pub fn servers(&self) -> Result<Vec<ServerRow>> {
        if !self.has_servers() {
            return Ok(vec![]);
        }
        self.all(SERVERS, [], server_row)
    }

    /// The server with a name.
    ///
    /// # Errors
    /// [`Error::NotFound`] with similar names.
    pub fn server(&self, name: &str) -> Result<ServerRow> {
        let servers = self.servers()?;
        let all = || servers.iter().map(|row| row.name.clone()).collect();
        let found = servers.iter().find(|row| row.name == name);
        found.cloned().ok_or_else(|| names::not_found("server", name, all()))
    }

    /// The home of a database; `None` if it has no home, or no row yet.
    pub fn home(&self, database: DatabaseId) -> Result<Option<Home>> {
        if !self.has_servers() {
            return Ok(None);
        }
        self.one(HOME, [database.0], home)
    }

    /// Makes a server the home of a database, unless it has one.
    pub fn claim_home(&self, database: DatabaseId, server: &str) -> Result<()> {
        let row = params![database.0, server];
        self.connections.write(|sql| sql.execute(SET_NEW_HOME, row)).map(drop)
    }

    /// Joins the federation as a server, for the time of a lease, or joins it again; returns the new epoch. Databases
    /// without a home whose files are in this folder get this server as their home.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is alive at another URL, or has databases on another storage; [`Error::Invalid`]
    /// for an invalid name or URL, or if the federation's folder has the name of another storage;
    /// [`Error::Unsupported`] if the catalogue is not in PostgreSQL.
    pub fn join(&self, server: &JoiningServer, lease: Duration) -> Result<u64> {
        names::check_server_name(&server.name)?;
        names::check("storage", &server.storage)?;
        if !self.is_in_postgres() {
            return Err(Error::Unsupported {
                what: "several servers take a catalogue in PostgreSQL; create the federation with one, or \
                       serve it without [site]"
                    .to_owned(),
            });
        }
        for folder in [LOCKS_FOLDER, DATABASES_FOLDER] {
            // The folder of a joining server may have only the file with the address of the catalogue.
            let path = self.folder().join(folder);
            fs::create_dir_all(&path)
                .map_err(|error| Error::io("cannot create the folder", &path, error))?;
        }
        let is_named = self.name_storage(&server.storage)?;
        let joined = self.connections.write(|sql| {
            let row = params![server.name, server.url, server.storage, micros(lease)];
            let joined = sql.prepare_cached(JOIN)?.query_row(row, |row| number(row, 0));
            let Some(epoch) = joined.optional()? else {
                let advice = "it is alive at another URL, or has databases on another storage; take another name".to_owned();
                return Err(
                    Error::Exists { what: "server", name: server.name.clone(), advice }.into()
                );
            };
            let mut homeless = sql.prepare_cached(HOMELESS)?;
            let rows = homeless.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let rows: Vec<(u32, String)> = rows.collect::<RowResult<_>>()?;
            for (id, path) in rows {
                if self.folder().join(path).exists() {
                    sql.prepare_cached(SET_NEW_HOME)?.execute(params![id, server.name])?;
                }
            }
            Ok(epoch)
        });
        if joined.is_err() && is_named {
            drop(fs::remove_file(storage_file(self)));
        }
        let epoch = joined?;
        // Until the presence begins, local programs fence off holders of fences of earlier epochs, which this server
        // does not know yet.
        let present = ServerPresence::begin(&self.folder().join(LOCKS_FOLDER), &server.name);
        match present {
            Ok(present) => *self.presence.lock() = Some(present),
            Err(error) => {
                drop(self.leave(&server.name, epoch));
                return Err(error);
            }
        }
        Ok(epoch)
    }

    /// Renews the lease of a server, which lasts for `lease` from now on.
    ///
    /// # Errors
    /// [`Error::Changed`] if the server has another epoch: it joined again elsewhere, or its databases were taken over.
    pub fn renew(
        &self,
        (name, epoch): (&str, u64),
        lease: Duration,
        (free_bytes, load): (u64, u64),
    ) -> Result<()> {
        let row = params![name, signed(epoch), micros(lease), signed(free_bytes), signed(load)];
        let renewed = self.connections.write_aside(|sql| sql.execute(RENEW, row))?;
        if renewed == 1 { Ok(()) } else { Err(lost_lease(name)) }
    }

    /// Ends the lease of a server that stops. Does nothing if the server has another epoch.
    pub fn leave(&self, name: &str, epoch: u64) -> Result<()> {
        let row = params![name, signed(epoch)];
        self.connections.write(|sql| sql.execute(LEAVE, row))?;
        drop(self.presence.lock().take());
        Ok(())
    }

    /// Makes the catalogue refuse the commits of all clients that now hold databases of a server, and returns the new
    /// epochs of the homes. A database that is not committed yet gets its home by this; a database whose home is
    /// another server stays as it is.
    ///
    /// # Errors
    /// [`Error::Changed`] if the server has another epoch, so that all of these commits are refused anyway.
    pub fn fence_off(
        &self,
        (name, epoch): (&str, u64),
        databases: &[DatabaseId],
    ) -> Result<Vec<(DatabaseId, u64)>> {
        self.connections.write(|sql| {
            let current = "SELECT 1 FROM servers WHERE name = ?1 AND epoch = ?2";
            if !sql.prepare_cached(current)?.exists(params![name, signed(epoch)])? {
                return Err(lost_lease(name).into());
            }
            let raise = |database: &DatabaseId| -> SqlResult<Option<(DatabaseId, u64)>> {
                let row = params![database.0, name];
                let raised = sql.prepare_cached(RAISE_HOME)?.query_row(row, |row| number(row, 0));
                Ok(raised.optional()?.map(|epoch| (*database, epoch)))
            };
            databases.iter().filter_map(|database| raise(database).transpose()).collect()
        })
    }

    /// Makes a server the home of the databases of servers with the same storage whose leases are over, in new epochs
    /// of these servers. Returns their names, with the number of databases.
    ///
    /// # Errors
    /// The errors of [`LocalCatalogue::join`]. If the server has another epoch, no database is taken over.
    pub fn take_over(&self, name: &str, epoch: u64) -> Result<Vec<(String, usize)>> {
        self.connections.write(|sql| {
            let mut find = sql.prepare_cached(DEAD)?;
            let dead = find.query_map(params![name, signed(epoch)], |row| row.get(0))?;
            let dead: Vec<String> = dead.collect::<RowResult<_>>()?;
            let take = |dead: String| -> SqlResult<(String, usize)> {
                let raise = "UPDATE servers SET epoch = epoch + 1 WHERE name = ?1";
                sql.prepare_cached(raise)?.execute([&dead])?;
                let taken = sql.prepare_cached(TAKE_HOMES)?.execute(params![dead, name])?;
                Ok((dead, taken))
            };
            dead.into_iter().map(take).collect()
        })
    }

    /// Makes another server the home of a database, if the home and the epochs are still those of `from`; returns the
    /// new epoch.
    ///
    /// # Errors
    /// [`Error::Changed`] if they are not, or the other server accepts no databases.
    pub fn set_home(&self, from: &Fence, to: &str) -> Result<u64> {
        let Fence { database, server, server_epoch, home_epoch } = from;
        let row = params![database.0, server, signed(*home_epoch), to, signed(*server_epoch)];
        let set = self.connections.write(|sql| {
            sql.prepare_cached(SET_HOME)?.query_row(row, |row| number(row, 0)).optional()
        })?;
        set.ok_or_else(|| {
            let what = format!(
                "database {database} cannot move to server {to:?}: it was moved in the meantime, server {server:?} \
                 lost its lease, or that server is not active"
            );
            Error::changed(what)
        })
    }

    /// Sets whether a server stops getting databases.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such server, or it has left.
    pub fn drain(&self, name: &str, is_draining: bool) -> Result<()> {
        let state = if is_draining { ServerStanding::Draining } else { ServerStanding::Active };
        let row = params![name, state.name()];
        match self.connections.write(|sql| sql.execute(SET_STATE, row))? {
            0 => self.server(name).map(drop),
            _ => Ok(()),
        }
    }

    /// The databases whose homes have another storage than this folder.
    pub fn databases_elsewhere(&self) -> Result<HashSet<DatabaseId>> {
        if !self.has_servers() {
            return Ok(HashSet::new());
        }
        let own = fs::read_to_string(storage_file(self)).unwrap_or_default();
        let find = "SELECT h.database FROM homes h JOIN servers s ON s.name = h.server WHERE s.storage <> ?1";
        let found = self.all(find, [own.trim()], |row| Ok(DatabaseId(row.get(0)?)))?;
        Ok(found.into_iter().collect())
    }

    /// Fails if no server has named the storage of this folder, so that it is unknown which databases are here.
    ///
    /// # Errors
    /// [`Error::Unsupported`] then.
    pub fn check_storage_is_named(&self) -> Result<()> {
        if storage_file(self).exists() {
            return Ok(());
        }
        let folder = self.folder().display();
        let what = format!(
            "which databases are in {folder} is not known, because no server has named its storage; start the server \
             of this folder once"
        );
        Err(Error::Unsupported { what })
    }

    /// Writes the name of the folder's storage into it, by which local processes know which databases are here. Returns
    /// whether the folder had no name before.
    fn name_storage(&self, storage: &str) -> Result<bool> {
        let path = storage_file(self);
        if let Ok(known) = fs::read_to_string(&path) {
            if known.trim() == storage {
                return Ok(false);
            }
            let (known, folder) = (known.trim().to_owned(), self.folder().display());
            return Err(Error::invalid(format!(
                "{folder} is the storage {known:?}, but the server is set up for {storage:?}: correct site.storage \
                 there, or, if the folder was moved, remove {}",
                path.display()
            )));
        }
        fs::write(&path, storage).map_err(|error| Error::io("cannot write", &path, error))?;
        Ok(true)
    }
}

fn storage_file(catalogue: &LocalCatalogue) -> PathBuf {
    catalogue.folder().join(LOCKS_FOLDER).join(STORAGE_FILE)
}

fn lost_lease(name: &str) -> Error {
    Error::changed(format!(
        "server {name:?} lost its lease: another one took its databases over, or it joined again"
    ))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4)
}

fn server_row(row: &Row<'_>) -> RowResult<ServerRow> {
    Ok(ServerRow {
        name: row.get(0)?,
        url: row.get(1)?,
        storage: row.get(2)?,
        state: match &*row.get::<String>(3)? {
            "draining" => ServerStanding::Draining,
            "left" => ServerStanding::Left,
            _ => ServerStanding::Active,
        },
        epoch: number(row, 4)?,
        is_alive: row.get(5)?,
        free_bytes: number(row, 6)?,
        load: number(row, 7)?,
        databases: number(row, 8)?,
    })
}

fn home(row: &Row<'_>) -> RowResult<Home> {
    Ok(Home {
        server: row.get(0)?,
        url: row.get(1)?,
        is_alive: row.get(2)?,
        epoch: number(row, 3)?,
        server_epoch: number(row, 4)?,
        away_ms: unsigned(row.get::<i64>(5)?.max(0)) / 1000,
        has_stand_in: row.get(6)?,
    })
}

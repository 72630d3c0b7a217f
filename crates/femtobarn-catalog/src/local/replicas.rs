//! Copies of databases in stores, such as tape, and whether the file is on the disk.
//!
//! 1. The tables are made when the first copy is recorded, which raises the format of the catalogue: a release that
//!    does not know them would take an evicted file for a lost one.
//! 2. A database is evicted only in a transaction that finds enough complete copies and no pin.
//! 3. The key of a copy is used once. An object that the catalogue no longer refers to is in `discarded_objects` until
//!    it is removed from its store.
//! 4. Keys begin with an id that differs between a restored catalogue and the one that was backed up: objects that they
//!    discard are removed only by the catalogue that wrote them. A leader and its followers share the id, since only
//!    one of them leads and removes.
//!
//! Every transition is one SQL transaction, and can be repeated.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::LocalCatalogue;
use super::decode::number;
use crate::clock;
use crate::error::{Error, Result};
use crate::ids::{Csn, DatabaseId};
use crate::names;
use crate::numbers::signed;
use crate::residence::{DiskState, FilePin, ReplicaRow, ReplicaState, Residence, StoredObject};
use crate::rows::DatabaseRow;
use crate::schema::{
    ARCHIVE_SETTING, FORMAT_WITH_REPLICAS, REPLICA_TABLES, has_table, raise_format,
};
use crate::sql::{Row, RowResult, SqlConnection, SqlResult, params};

const REPLICA: &str = "SELECT database, store, key, state, size, checksum, as_of, changed_us, \
    tape, position FROM replicas";

impl LocalCatalogue {
    /// The residence of a database's file.
    pub fn residence(&self, database: DatabaseId) -> Result<Residence> {
        let found = self.read(|sql| sql.in_one_state(|sql| residences(sql, Some(database))));
        Ok(found?.into_values().next().unwrap_or_default())
    }

    /// The residences of database files, except those that are only on the disk and not pinned.
    pub fn residences(&self) -> Result<BTreeMap<DatabaseId, Residence>> {
        self.read(|sql| sql.in_one_state(|sql| residences(sql, None)))
    }

    /// Records a copy, or its new state. The object of an earlier copy in the same store is discarded.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the database no longer exists.
    pub fn record_replica(&self, replica: &ReplicaRow) -> Result<()> {
        self.change(|sql| {
            check_exists(sql, replica.database)?;
            let of = params![replica.database.0, replica.store, replica.key];
            sql.execute(
                "INSERT INTO discarded_objects (store, key) SELECT store, key FROM replicas \
                 WHERE database = ?1 AND store = ?2 AND key <> ?3 ON CONFLICT DO NOTHING",
                of,
            )?;
            sql.execute(
                "INSERT INTO replicas (database, store, key, state, size, checksum, as_of, \
                 changed_us, tape, position) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
                 ON CONFLICT (database, store) DO UPDATE SET key = excluded.key, state = excluded.state, \
                 size = excluded.size, checksum = excluded.checksum, as_of = excluded.as_of, \
                 changed_us = excluded.changed_us, tape = excluded.tape, position = excluded.position",
                params![
                    replica.database.0,
                    replica.store,
                    replica.key,
                    replica.state.name(),
                    signed(replica.size),
                    replica.checksum,
                    signed(replica.as_of.0),
                    replica.changed_us,
                    replica.tape.as_ref().map(|(tape, _)| tape),
                    signed(replica.tape.as_ref().map_or(0, |(_, position)| *position)),
                ],
            )?;
            Ok(())
        })
    }

    /// Discards a copy and its object.
    ///
    /// # Errors
    /// [`Error::Denied`] if the file is not on the disk, as the caller has checked, and no other copy is complete.
    pub fn discard_replica(&self, row: &DatabaseRow, store: &str, is_on_disk: bool) -> Result<()> {
        self.change(|sql| {
            let database = row.id;
            let found = residences(sql, Some(database))?.remove(&database).unwrap_or_default();
            let mut others = found.replicas.iter().filter(|replica| replica.store != store);
            let is_here = is_on_disk && found.disk == DiskState::Online;
            if !is_here && !others.any(ReplicaRow::is_complete) {
                let what = format!(
                    "the copy of database {:?} in store {store:?} is the only one; stage the database \
                     first",
                    row.name
                );
                return Err(Error::denied(what).into());
            }
            sql.execute(
                "INSERT INTO discarded_objects (store, key) SELECT store, key FROM replicas \
                 WHERE database = ?1 AND store = ?2 ON CONFLICT DO NOTHING",
                params![database.0, store],
            )?;
            let gone = params![database.0, store];
            sql.execute("DELETE FROM replicas WHERE database = ?1 AND store = ?2", gone)?;
            Ok(())
        })
    }

    /// Records that a file is being brought back to the disk, is on the disk, or could not be brought back.
    pub fn record_disk_state(&self, database: DatabaseId, state: DiskState) -> Result<()> {
        self.change_own(|sql| {
            match state {
                DiskState::Online => {
                    sql.execute("DELETE FROM disk_states WHERE database = ?1", [database.0])?;
                }
                DiskState::Staging => set_disk_state(sql, database, state)?,
                // A file on the disk becomes evicted by `record_eviction` only.
                DiskState::Evicted => {
                    let failed = "UPDATE disk_states SET state = 'evicted' WHERE database = ?1";
                    sql.execute(failed, [database.0])?;
                }
            }
            Ok(())
        })
    }

    /// Records that a file is about to be removed from the disk.
    ///
    /// # Errors
    /// [`Error::Denied`] if the file is pinned, or the database has fewer than `copies` complete copies, or none.
    pub fn record_eviction(&self, row: &DatabaseRow, copies: usize) -> Result<()> {
        self.change(|sql| {
            let database = row.id;
            let found = residences(sql, Some(database))?.remove(&database).unwrap_or_default();
            let complete = found.replicas.iter().filter(|replica| replica.is_complete()).count();
            let wanted = copies.max(1);
            if complete < wanted {
                let what = format!(
                    "database {:?} has {complete} complete copies in stores, and {wanted} are wanted \
                     before it leaves the disk; migrate it first",
                    row.name
                );
                return Err(Error::denied(what).into());
            }
            if let Some(pin) = found.pins.iter().find(|pin| pin.holds_at(clock::utc_us())) {
                let what = format!(
                    "database {:?} is pinned by {}; unpin it first",
                    row.name, pin.holder
                );
                return Err(Error::denied(what).into());
            }
            set_disk_state(sql, database, DiskState::Evicted)
        })
    }

    /// Pins a file to the disk, until a time or without an end, whether it is on the disk yet or not. A holder has one
    /// pin of a database.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the database no longer exists.
    pub fn pin_file(&self, database: DatabaseId, pin: &FilePin) -> Result<()> {
        self.change_own(|sql| {
            check_exists(sql, database)?;
            sql.execute(
                "INSERT INTO file_pins (database, holder, until_us) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (database, holder) DO UPDATE SET until_us = excluded.until_us",
                params![database.0, pin.holder, pin.until_us],
            )?;
            Ok(())
        })
    }

    /// Pins many files, as [`pin_file`](Self::pin_file) does. Databases that no longer exist are skipped. Expired pins
    /// of these files are removed, whoever held them.
    pub fn pin_files(&self, databases: &[DatabaseId], pin: &FilePin) -> Result<()> {
        self.change_own(|sql| {
            let now = clock::utc_us();
            let ended = "DELETE FROM file_pins WHERE database = ?1 AND until_us <= ?2";
            let mut ended = sql.prepare_cached(ended)?;
            let mut insert = sql.prepare_cached(
                "INSERT INTO file_pins (database, holder, until_us) \
                 SELECT id, ?2, CAST(?3 AS INTEGER) FROM databases WHERE id = ?1 \
                 ON CONFLICT (database, holder) DO UPDATE SET until_us = excluded.until_us",
            )?;
            for database in databases {
                ended.execute(params![database.0, now])?;
                insert.execute(params![database.0, pin.holder, pin.until_us])?;
            }
            Ok(())
        })
    }

    /// Removes a holder's pins of many files.
    pub fn unpin_files(&self, databases: &[DatabaseId], holder: &str) -> Result<()> {
        if !self.read(has_tables)? {
            return Ok(());
        }
        self.change_own(|sql| {
            let delete = "DELETE FROM file_pins WHERE database = ?1 AND holder = ?2";
            let mut delete = sql.prepare_cached(delete)?;
            for database in databases {
                delete.execute(params![database.0, holder])?;
            }
            Ok(())
        })
    }

    /// Removes a holder's pin; returns whether there was one.
    pub fn unpin_file(&self, database: DatabaseId, holder: &str) -> Result<bool> {
        if !self.read(has_tables)? {
            return Ok(false);
        }
        self.change_own(|sql| {
            let of = params![database.0, holder];
            let gone =
                sql.execute("DELETE FROM file_pins WHERE database = ?1 AND holder = ?2", of)?;
            Ok(gone > 0)
        })
    }

    /// Whether the catalogue has objects in a store, discarded or not.
    pub fn knows_objects_in(&self, store: &str) -> Result<bool> {
        self.read(|sql| {
            if !has_tables(sql)? {
                return Ok(false);
            }
            let known = "SELECT 1 FROM replicas WHERE store = ?1 \
                         UNION ALL SELECT 1 FROM discarded_objects WHERE store = ?1";
            sql.prepare_cached(known)?.exists([store])
        })
    }

    /// The stores in which the catalogue has objects, discarded or not.
    pub fn stores_with_objects(&self) -> Result<Vec<String>> {
        self.read(|sql| {
            if !has_tables(sql)? {
                return Ok(vec![]);
            }
            let mut rows = sql.prepare_cached(
                "SELECT store FROM replicas UNION SELECT store FROM discarded_objects ORDER BY store",
            )?;
            let rows = rows.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<RowResult<_>>()?)
        })
    }

    /// Objects in stores that no copy refers to any more.
    pub fn discarded_objects(&self) -> Result<Vec<StoredObject>> {
        self.read(|sql| {
            if !has_tables(sql)? {
                return Ok(vec![]);
            }
            let mut rows = sql.prepare_cached("SELECT store, key FROM discarded_objects")?;
            let rows = rows
                .query_map([], |row| Ok(StoredObject { store: row.get(0)?, key: row.get(1)? }))?;
            Ok(rows.collect::<RowResult<_>>()?)
        })
    }

    /// Removes the record of a discarded object, which was removed from its store.
    pub fn forget_discarded(&self, object: &StoredObject) -> Result<()> {
        self.change(|sql| {
            let of = params![object.store, object.key];
            sql.execute("DELETE FROM discarded_objects WHERE store = ?1 AND key = ?2", of)?;
            Ok(())
        })
    }

    /// The prefix of the names of this catalogue's objects; `None` before the first copy.
    pub fn archive_id(&self) -> Result<Option<String>> {
        let sql = "SELECT value FROM federation WHERE key = ?1";
        self.one(sql, [ARCHIVE_SETTING], |row| row.get(0))
    }

    /// Returns the [`archive_id`](LocalCatalogue::archive_id); makes one first if necessary.
    pub fn make_archive_id(&self) -> Result<String> {
        self.change(|_| Ok(()))?;
        Ok(self.archive_id()?.unwrap_or_default())
    }

    /// Runs a change of the tables of copies, which are made first if necessary.
    fn change<T>(&self, change: impl FnOnce(&SqlConnection) -> SqlResult<T>) -> Result<T> {
        self.connections.write(|sql| {
            make_tables(sql)?;
            change(sql)
        })
    }

    /// Runs a change of rows that each copy of the catalogue has for itself: whether a file is on its disk.
    fn change_own<T>(&self, change: impl FnOnce(&SqlConnection) -> SqlResult<T>) -> Result<T> {
        self.connections.write_as_anyone(|sql| {
            make_tables(sql)?;
            change(sql)
        })
    }
}

/// Makes the tables unless they exist.
pub(super) fn make_tables(sql: &SqlConnection) -> SqlResult<()> {
    if has_tables(sql)? {
        return Ok(());
    }
    sql.execute_batch(REPLICA_TABLES)?;
    raise_format(sql, FORMAT_WITH_REPLICAS)?;
    // A follower has the id of its leader.
    let known = "SELECT 1 FROM federation WHERE key = ?1";
    if sql.prepare_cached(known)?.exists([ARCHIVE_SETTING])? { Ok(()) } else { begin_archive(sql) }
}

/// Deletes the copies and the discarded objects; the leader's rows replace them.
pub(super) fn forget_copies(sql: &SqlConnection) -> SqlResult<()> {
    if has_tables(sql)? {
        sql.execute("DELETE FROM replicas", [])?;
        sql.execute("DELETE FROM discarded_objects", [])?;
    }
    Ok(())
}

/// Records whether the file of a database is on the disk of a follower.
pub(super) fn set_on_disk(
    sql: &SqlConnection,
    database: DatabaseId,
    is_here: bool,
) -> SqlResult<()> {
    if !is_here {
        make_tables(sql)?;
        return set_disk_state(sql, database, DiskState::Evicted);
    }
    if has_tables(sql)? {
        sql.execute("DELETE FROM disk_states WHERE database = ?1", [database.0])?;
    }
    Ok(())
}

/// Gives the catalogue a new id, with which the names of new objects begin.
pub(super) fn begin_archive(sql: &SqlConnection) -> SqlResult<()> {
    let id = Uuid::new_v4().to_string();
    let set = "INSERT INTO federation (key, value) VALUES (?1, ?2) \
               ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    sql.execute(set, [ARCHIVE_SETTING, &id])?;
    Ok(())
}

/// Calls [`begin_archive`] if the catalogue has copies: it was restored, and shares them with the lost one.
pub(super) fn begin_archive_anew(sql: &SqlConnection) -> SqlResult<()> {
    if has_tables(sql)? { begin_archive(sql) } else { Ok(()) }
}

/// Discards all copies of a database, whose file has changed.
pub(super) fn discard_all(sql: &SqlConnection, database: DatabaseId) -> SqlResult<()> {
    if !has_tables(sql)? {
        return Ok(());
    }
    sql.execute(
        "INSERT INTO discarded_objects (store, key) SELECT store, key FROM replicas \
         WHERE database = ?1 ON CONFLICT DO NOTHING",
        [database.0],
    )?;
    sql.execute("DELETE FROM replicas WHERE database = ?1", [database.0])?;
    Ok(())
}

/// Removes the rows of a purged database; its objects are discarded.
pub(super) fn purge(sql: &SqlConnection, database: DatabaseId) -> SqlResult<()> {
    if !has_tables(sql)? {
        return Ok(());
    }
    discard_all(sql, database)?;
    for table in ["disk_states", "file_pins"] {
        sql.execute(&format!("DELETE FROM {table} WHERE database = ?1"), [database.0])?;
    }
    Ok(())
}

pub(super) fn has_tables(sql: &SqlConnection) -> SqlResult<bool> {
    has_table(sql, "replicas")
}

fn check_exists(sql: &SqlConnection, database: DatabaseId) -> SqlResult<()> {
    if sql.prepare_cached("SELECT 1 FROM databases WHERE id = ?1")?.exists([database.0])? {
        return Ok(());
    }
    Err(names::not_found("database", &database.to_string(), vec![]).into())
}

fn set_disk_state(sql: &SqlConnection, database: DatabaseId, state: DiskState) -> SqlResult<()> {
    sql.execute(
        "INSERT INTO disk_states (database, state, changed_us) VALUES (?1, ?2, ?3) \
         ON CONFLICT (database) DO UPDATE SET state = excluded.state, changed_us = excluded.changed_us",
        params![database.0, state.name(), clock::utc_us()],
    )?;
    Ok(())
}

/// The residences of all databases, or of one.
fn residences(
    sql: &SqlConnection,
    database: Option<DatabaseId>,
) -> SqlResult<BTreeMap<DatabaseId, Residence>> {
    let mut found: BTreeMap<DatabaseId, Residence> = BTreeMap::new();
    if !has_tables(sql)? {
        return Ok(found);
    }
    let chosen = if database.is_some() {
        "WHERE database = ?1"
    } else {
        "WHERE CAST(?1 AS INTEGER) IS NULL"
    };
    let of = params![database.map(|id| id.0)];
    let mut rows = sql.prepare_cached(&format!("{REPLICA} {chosen} ORDER BY database, store"))?;
    for replica in rows.query_map(of, replica_row)? {
        let replica = replica?;
        found.entry(replica.database).or_default().replicas.push(replica);
    }
    let states = format!("SELECT database, state FROM disk_states {chosen}");
    let mut rows = sql.prepare_cached(&states)?;
    let mut rows = rows.query(of)?;
    while let Some(row) = rows.next()? {
        let state: String = row.get(1)?;
        found.entry(DatabaseId(row.get(0)?)).or_default().disk = DiskState::of_name(&state);
    }
    let pins = format!("SELECT database, holder, until_us FROM file_pins {chosen} ORDER BY holder");
    let mut rows = sql.prepare_cached(&pins)?;
    let mut rows = rows.query(of)?;
    while let Some(row) = rows.next()? {
        let pin = FilePin { holder: row.get(1)?, until_us: row.get(2)? };
        found.entry(DatabaseId(row.get(0)?)).or_default().pins.push(pin);
    }
    Ok(found)
}

fn replica_row(row: &Row<'_>) -> RowResult<ReplicaRow> {
    let state: String = row.get(3)?;
    let (tape, position): (Option<String>, _) = (row.get(8)?, number(row, 9)?);
    Ok(ReplicaRow {
        database: DatabaseId(row.get(0)?),
        store: row.get(1)?,
        key: row.get(2)?,
        state: ReplicaState::of_name(&state),
        size: number(row, 4)?,
        checksum: row.get(5)?,
        as_of: Csn(number(row, 6)?),
        tape: tape.map(|tape| (tape, position)),
        changed_us: row.get(7)?,
    })
}

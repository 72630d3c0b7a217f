//! The catalogue of a follower: a copy that only rows of its leader change, until it is promoted.
//!
//! 1. A follower has the leader's state as of one commit, which is its head. New rows arrive in one SQL transaction,
//!    after the bytes that they refer to.
//! 2. Either the catalogue's own users change it, or rows of a leader do, never both: each transaction first checks
//!    which.
//! 3. Rows that a snapshot pinned here needs are kept, whether the leader still has them or not.

use std::collections::BTreeMap;

use std::path::Path;
use uuid::Uuid;

use super::LocalCatalogue;
use super::leading::{GENERATION, SUCCESSOR_GENERATION, SUCCESSOR_PROMOTION, head};
use super::lookup::all;
use super::role::{LEADER, Role, SUCCESSOR, check_follower, role};
use super::row_copy::ValueParameter;
use super::settings::{set, set_text, setting, text};
use super::{replicas, vacuum};
use crate::clock;
use crate::copied_tables::{COPIED_SETTINGS, CopiedTable};
use crate::error::{Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::numbers::signed;
use crate::paths::{is_database_path, is_federation};
use crate::replication::{LeaderRows, SqlValue, Successor, path_of_copy};
use crate::schema::{FORMAT_WITH_ROLES, raise_format};
use crate::sql::{OptionalExtension, SqlConnection, SqlResult, ToSql, params};

/// The setting that has the mark of the undated rows that the leader sent last.
const MARK: &str = "leader_mark";
/// The setting for the URL of a former leader that does not know its successor yet.
const UNTOLD: &str = "untold_leader";
/// The settings for the promotion that the former leader must be informed of.
const UNTOLD_PROMOTION: &str = "untold_promotion";
const OWN_URL: &str = "own_url";
/// The setting that distinguishes a promotion of this follower from those of other followers.
const PROMOTION: &str = "promotion";
/// The setting that exists while bytes of versions here may be those of a later commit.
const INCOMPLETE: &str = "incomplete";

/// The changes that a follower makes in addition to the rows of its leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnChanges {
    /// Versions that the leader does not have any more.
    pub versions: Vec<(DatabaseId, ContainerId, Csn)>,
    /// Dropped containers that the leader does not have any more.
    pub containers: Vec<(DatabaseId, ContainerId)>,
    /// Databases that the leader does not have any more.
    pub databases: Vec<DatabaseId>,
    /// Databases whose files were left in the leader's stores.
    pub evicted: Vec<DatabaseId>,
    /// Databases whose files are here now.
    pub present: Vec<DatabaseId>,
    /// The paths of new databases in this copy.
    pub paths: BTreeMap<DatabaseId, String>,
}

impl LocalCatalogue {
    /// Opens the catalogue in `folder` for a follower of a federation, or creates an empty one if the folder is empty
    /// or does not exist. Returns also whether it was created; [`LocalCatalogue::follow`] makes it a follower.
    ///
    /// # Errors
    /// The errors of [`LocalCatalogue::create`]; [`Error::Exists`] if the folder has another federation, or one that
    /// does not follow.
    pub fn prepare_follower(folder: &Path, name: &str, uuid: Uuid) -> Result<(Self, bool)> {
        let is_new = !is_federation(folder);
        if is_new {
            Self::create_empty(folder, name, uuid)?;
        }
        let catalog = Self::open(folder)?;
        let refused = |advice: &str| Error::Exists {
            what: "federation",
            name: folder.display().to_string(),
            advice: advice.to_owned(),
        };
        if catalog.uuid() != uuid {
            return Err(refused("it holds another federation; choose another folder"));
        }
        if !is_new && !matches!(catalog.role()?, Role::Follower { .. }) {
            return Err(refused(
                "it does not follow a leader; choose another folder, or empty this one",
            ));
        }
        Ok((catalog, is_new))
    }

    /// Makes this catalogue follow the one at the URL `leader`. `is_new` means that the caller has just created it.
    ///
    /// # Errors
    /// [`Error::Denied`] if its own users change it, or it was succeeded.
    pub fn follow(&self, leader: &str, is_new: bool) -> Result<()> {
        if self.is_in_postgres() {
            let what = "a catalogue in PostgreSQL does not follow another one; make the copy in a new folder";
            return Err(Error::Unsupported { what: what.to_owned() });
        }
        // From now on, the leader's bytes are written to the files.
        self.write_back()?;
        self.connections.write_as_anyone(|sql| {
            if !is_new {
                check_follower(sql)?;
            }
            raise_format(sql, FORMAT_WITH_ROLES)?;
            set_text(sql, LEADER, Some(leader))
        })
    }

    /// The role of this catalogue: who may change it.
    pub fn role(&self) -> Result<Role> {
        self.read(role)
    }

    /// The mark of the undated rows that the leader sent last.
    pub fn leader_mark(&self) -> Result<Option<u64>> {
        self.read(|sql| setting(sql, MARK))
    }

    /// Raises the horizon of a follower to that of its leader, but not beyond its newest commit; removes the tags and
    /// kept snapshots that the leader has removed; and returns the horizon. From then on no reader can pin a snapshot
    /// that the leader has given up.
    pub fn begin_giving_up(&self, rows: &LeaderRows) -> Result<Csn> {
        let to = rows.horizon()?.unwrap_or(Csn::ZERO);
        let (tags, kept) = (rows.tags()?, rows.kept_snapshots()?);
        self.connections.write_as_follower(|sql| {
            let to = to.0.min(head(sql)?.0);
            let horizon = setting(sql, "horizon")?.unwrap_or(0).max(to);
            set(sql, "horizon", Some(horizon))?;
            let own: Vec<(String, i64)> =
                all(sql, "SELECT name, csn FROM tags", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            for (name, _) in own.iter().filter(|tag| !tags.contains(tag)) {
                sql.execute("DELETE FROM tags WHERE name = ?1", [name])?;
            }
            let own: Vec<i64> = all(sql, "SELECT csn FROM kept_snapshots", [], |row| row.get(0))?;
            for csn in own.iter().filter(|csn| !kept.contains(csn)) {
                sql.execute("DELETE FROM kept_snapshots WHERE csn = ?1", [csn])?;
            }
            Ok(Csn(horizon))
        })
    }

    /// Records that bytes of versions in this catalogue are about to be overwritten, as the leader overwrote its own
    /// while the two were not connected. The record ends when rows are applied.
    pub fn begin_overwriting(&self) -> Result<()> {
        self.connections.write_as_follower(|sql| set_text(sql, INCOMPLETE, Some("1")))
    }

    /// Whether bytes of versions in this catalogue may have been overwritten by those of a commit that is not applied
    /// yet.
    pub fn is_incomplete(&self) -> Result<bool> {
        self.read(|sql| Ok(text(sql, INCOMPLETE)?.is_some()))
    }

    /// Whether the copy is not complete enough for a snapshot yet: the leader's first commits are still being copied,
    /// whose snapshots the leader has given up. Until then only tagged snapshots can be read here.
    pub fn is_beginning(&self) -> Result<bool> {
        self.read(|sql| {
            let head = head(sql)?;
            Ok(head == Csn::ZERO || head.0 < setting(sql, "horizon")?.unwrap_or(0))
        })
    }

    /// Applies the leader's rows after commit `since`, and the follower's own changes, all or nothing. The caller has
    /// made the bytes durable that the rows refer to.
    ///
    /// # Errors
    /// [`Error::Changed`] if the head is not `since`; [`Error::Denied`] if this catalogue does not follow any more;
    /// [`Error::Invalid`] if the rows are malformed, or refer to missing rows.
    pub fn apply_leader_rows(
        &self,
        since: Csn,
        rows: &[&LeaderRows],
        own: &OwnChanges,
    ) -> Result<()> {
        let applied = self.connections.write_as_follower(|sql| {
            let head = head(sql)?;
            if head != since {
                let what = format!("the head is {head}, not {since}: another process follows here");
                return Err(Error::changed(what).into());
            }
            remove(sql, own)?;
            set_text(sql, INCOMPLETE, None)?;
            for rows in rows {
                apply(sql, rows, own)?;
            }
            own.evicted.iter().try_for_each(|id| replicas::set_on_disk(sql, *id, false))?;
            own.present.iter().try_for_each(|id| replicas::set_on_disk(sql, *id, true))
        });
        applied.map_err(|error| match error {
            Error::Internal { what } if what.contains("constraint") => {
                Error::invalid(format!("rows of the leader contradict each other: {what}"))
            }
            other => other,
        })
    }

    /// The promotion of this follower that has begun, or a new one, which is recorded before the leader is informed.
    ///
    /// # Errors
    /// [`Error::Denied`] if this catalogue does not follow; [`Error::Invalid`] if there is no later generation.
    pub fn begin_promotion(&self, url: &str) -> Result<Successor> {
        self.connections.write_as_follower(|sql| {
            let generation = setting(sql, GENERATION)?.unwrap_or(0).checked_add(1);
            let generation =
                generation.ok_or_else(|| Error::invalid("there is no later generation"))?;
            let promotion = text(sql, PROMOTION)?.unwrap_or_else(|| Uuid::new_v4().to_string());
            set_text(sql, PROMOTION, Some(&promotion))?;
            Ok(Successor { generation, promotion, url: url.to_owned() })
        })
    }

    /// Makes a follower the leader of its federation, in a new generation and new epochs. `untold` is the URL of the
    /// former leader if it could not be informed.
    ///
    /// # Errors
    /// [`Error::Denied`] if this catalogue does not follow.
    pub fn promote(&self, successor: &Successor, untold: Option<&str>) -> Result<()> {
        self.connections.write_as_follower(|sql| {
            for key in [LEADER, MARK, INCOMPLETE, PROMOTION] {
                set_text(sql, key, None)?;
            }
            set_text(sql, UNTOLD, untold)?;
            set_text(sql, UNTOLD_PROMOTION, untold.map(|_| successor.promotion.as_str()))?;
            set_text(sql, OWN_URL, untold.map(|_| successor.url.as_str()))?;
            self.retain(sql)?;
            set(sql, GENERATION, Some(successor.generation))?;
            // The other databases get no new bytes, so their epochs stay.
            sql.execute(
                "UPDATE databases SET epoch = CASE WHEN epoch < ?1 THEN ?1 ELSE epoch + 1 END \
                 WHERE state = 'open' AND sealed IS NULL",
                [clock::utc_us() / 1_000_000],
            )?;
            Ok(())
        })
    }

    /// Makes a leader that was succeeded accept changes again, in a generation after its successor's, which is
    /// returned. For operators whose promotion failed: the caller knows that no other leader accepts changes.
    ///
    /// # Errors
    /// [`Error::Denied`] if it was not succeeded.
    pub fn lead_again(&self) -> Result<u64> {
        self.connections.write_as_anyone(|sql| {
            if !matches!(role(sql)?, Role::Succeeded { .. }) {
                return Err(Error::denied("this federation has no successor").into());
            }
            let generation = setting(sql, SUCCESSOR_GENERATION)?.unwrap_or(0).saturating_add(1);
            // The successor may have completed its promotion, and remove objects.
            replicas::begin_archive_anew(sql)?;
            for key in [SUCCESSOR, SUCCESSOR_GENERATION, SUCCESSOR_PROMOTION] {
                set_text(sql, key, None)?;
            }
            set(sql, GENERATION, Some(generation))?;
            Ok(generation)
        })
    }

    /// The URL of a former leader that has not been informed yet that this catalogue leads, and the promotion to
    /// report.
    pub fn uninformed_leader(&self) -> Result<Option<(String, Successor)>> {
        self.read(|sql| {
            let Some(untold) = text(sql, UNTOLD)? else { return Ok(None) };
            let successor = Successor {
                generation: setting(sql, GENERATION)?.unwrap_or(0),
                promotion: text(sql, UNTOLD_PROMOTION)?.unwrap_or_default(),
                url: text(sql, OWN_URL)?.unwrap_or_default(),
            };
            Ok(Some((untold, successor)))
        })
    }

    /// Records that the former leader was informed that this catalogue leads.
    pub fn leader_is_informed(&self) -> Result<()> {
        self.connections.write(|sql| set_text(sql, UNTOLD, None))
    }
}

/// Makes a restored catalogue a leader, whatever its role was before.
pub(super) fn begin_anew(sql: &SqlConnection) -> SqlResult<()> {
    for key in [
        LEADER,
        MARK,
        INCOMPLETE,
        PROMOTION,
        UNTOLD,
        UNTOLD_PROMOTION,
        OWN_URL,
        SUCCESSOR,
        SUCCESSOR_GENERATION,
        SUCCESSOR_PROMOTION,
    ] {
        set_text(sql, key, None)?;
    }
    Ok(())
}

fn remove(sql: &SqlConnection, own: &OwnChanges) -> SqlResult<()> {
    for (database, container, csn) in &own.versions {
        sql.prepare_cached(
            "DELETE FROM versions WHERE database = ?1 AND container = ?2 AND csn = ?3",
        )?
        .execute(params![database.0, container.0, signed(csn.0)])?;
    }
    for (database, container) in &own.containers {
        vacuum::delete_container(sql, *database, *container)?;
    }
    own.databases.iter().try_for_each(|database| vacuum::delete_database(sql, *database))
}

fn apply(sql: &SqlConnection, rows: &LeaderRows, own: &OwnChanges) -> SqlResult<()> {
    if rows.has_undated {
        sql.execute("DELETE FROM tags", [])?;
        sql.execute("DELETE FROM kept_snapshots", [])?;
        sql.execute("DELETE FROM federation WHERE key IN ('keep_commits', 'keep_days')", [])?;
        replicas::forget_copies(sql)?;
        // Without a mark, these rows are requested from a leader that has a successor each time, so that the succession
        // is noticed.
        if rows.successor()?.is_none() {
            set(sql, MARK, Some(rows.mark))?;
        }
    }
    for rows in &rows.tables {
        let table = CopiedTable::of(&rows.table)?;
        match table.name {
            // Each copy has its own disk.
            "disk_states" => continue,
            "replicas" | "discarded_objects" => replicas::make_tables(sql)?,
            _ => {}
        }
        let places = vec!["?"; table.columns.len()].join(", ");
        let names = table.names().collect::<Vec<_>>().join(", ");
        let insert = format!("INSERT OR REPLACE INTO {} ({names}) VALUES ({places})", table.name);
        let mut insert = sql.prepare_cached(&insert)?;
        for row in table.rows(&rows.cells)? {
            let Some(row) = checked(sql, table.name, row, own)? else { continue };
            let values: Vec<_> = row.iter().map(ValueParameter).collect();
            let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
            insert.execute(&*values)?;
        }
    }
    Ok(())
}

/// A row as it is stored here; `None` if it is not stored. A database keeps the path that this copy has given to it.
///
/// # Errors
/// [`Error::Invalid`] if a follower does not accept this row from its leader.
fn checked(
    sql: &SqlConnection,
    table: &str,
    row: &[SqlValue],
    own: &OwnChanges,
) -> SqlResult<Option<Vec<SqlValue>>> {
    let mut row = row.to_vec();
    match (table, &mut row[..]) {
        ("federation", [SqlValue::Text(key), SqlValue::Text(_)])
            if COPIED_SETTINGS.contains(&&**key) => {}
        ("federation", [SqlValue::Text(key), SqlValue::Text(_)]) if key == SUCCESSOR => {
            return Ok(None);
        }
        ("federation", _) => {
            return Err(Error::invalid("a setting that followers do not copy").into());
        }
        ("databases", [SqlValue::Integer(id), _, SqlValue::Text(path), ..]) => {
            let known = "SELECT path FROM databases WHERE id = ?1";
            let known: Option<String> =
                sql.prepare_cached(known)?.query_row([*id], |row| row.get(0)).optional()?;
            let id = DatabaseId(u32::try_from(*id).unwrap_or(0));
            *path = known
                .or_else(|| own.paths.get(&id).cloned())
                .unwrap_or_else(|| path_of_copy(id, path));
            if !is_database_path(path) {
                return Err(Error::invalid(format!("path {path:?} of a database")).into());
            }
        }
        _ => {}
    }
    Ok(Some(row))
}

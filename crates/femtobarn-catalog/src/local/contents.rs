//! All rows of a catalogue at once, for dumps, and for rebuilding a catalogue with the numbers that its rows had.
//!
//! Free ranges are left out: a rebuild cannot know whether the files have changed since, and the next vacuum finds
//! the ranges again.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::LocalCatalogue;
use super::decode::{commit_row, number, version_row};
use super::lookup::{COMMIT, VERSION, all};
use super::retention::{TAG, retention, tag_row};
use super::settings::{set, setting};
use super::survey;
use crate::commit::insert_version_row;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::names;
use crate::numbers::signed;
use crate::rows::{
    ClassRow, CommitRow, ContainerRecord, DatabaseRecord, DatabaseState, NameRow, Retention,
    TagRow, VersionRow,
};
use crate::sql::{SqlConnection, SqlFailure, SqlResult, params};

/// All rows of a catalogue but the free ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Commits, in ascending order.
    pub commits: Vec<CommitRow>,
    /// Classes, each with the commit that declared it.
    pub classes: Vec<(ClassRow, Csn)>,
    /// Databases, dropped or not. Without a list of names, a database has had the name in its row since its creation.
    pub databases: Vec<DatabaseRecord>,
    /// Containers, dropped or not. Without a list of names, a container has had the name in its row since its creation.
    pub containers: Vec<ContainerRecord>,
    /// Versions of containers.
    pub versions: Vec<VersionRow>,
    /// Databases that containers link to.
    pub link_targets: Vec<LinkTargets>,
    /// Tags.
    pub tags: Vec<TagRow>,
    /// The snapshots that vacuum keeps.
    pub retention: Retention,
    /// The commit from which on all snapshots exist.
    pub horizon: Csn,
    /// Snapshots before the horizon that the last vacuum kept.
    pub kept: Vec<Csn>,
}

/// The databases that a container links to, each with the commit that added it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTargets {
    /// The database that holds the container.
    pub database: DatabaseId,
    /// The container.
    pub container: ContainerId,
    /// The targets in the order of their positions.
    pub targets: Vec<(Uuid, Csn)>,
}

impl LocalCatalogue {
    /// All rows, as of one moment.
    pub fn contents(&self) -> Result<Contents> {
        self.read(|sql| sql.in_one_state(read))
    }

    /// Inserts rows with the numbers that they have, all or none. Later ids follow the largest of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a name is invalid, or rows refer to missing rows or have numbers that are taken.
    pub fn restore(&self, contents: &Contents) -> Result<()> {
        for record in &contents.databases {
            let names = record.names.iter().map(|row| &row.name).chain([&record.row.name]);
            names.into_iter().try_for_each(|name| names::check("database", name))?;
        }
        for record in &contents.containers {
            let names = record.names.iter().map(|row| &row.name).chain([&record.row.name]);
            names.into_iter().try_for_each(|name| names::check_existing_container_name(name))?;
        }
        contents.tags.iter().try_for_each(|tag| names::check("tag", &tag.name))?;
        self.connections.write(|sql| write(sql, contents).map_err(inconsistent))
    }
}

/// A violated constraint is a mistake in the rows, not a bug.
fn inconsistent(failure: SqlFailure) -> SqlFailure {
    if !failure.is_constraint() {
        return failure;
    }
    let why = match &failure {
        SqlFailure::Sqlite(error) => format!(": {error}"),
        _ => String::new(),
    };
    let what = format!("these rows contradict each other, or rows of the catalogue{why}");
    SqlFailure::Refused(Error::invalid(what))
}

fn read(sql: &SqlConnection) -> SqlResult<Contents> {
    let databases = survey::databases(sql)?;
    let mut containers = Vec::new();
    for record in &databases {
        containers.extend(survey::containers(sql, record.row.id)?);
    }
    let mut link_targets = Vec::new();
    for ContainerRecord { row, .. } in &containers {
        let targets = survey::link_targets(sql, row.database, row.id)?;
        if !targets.is_empty() {
            link_targets.push(LinkTargets { database: row.database, container: row.id, targets });
        }
    }
    let versions = format!("{VERSION} ORDER BY v.database, v.container, v.csn");
    let kept = "SELECT csn FROM kept_snapshots ORDER BY csn";
    Ok(Contents {
        commits: all(sql, &format!("{COMMIT} ORDER BY csn"), [], commit_row)?,
        classes: survey::classes(sql)?,
        databases,
        containers,
        versions: all(sql, &versions, [], version_row)?,
        link_targets,
        tags: all(sql, &format!("{TAG} ORDER BY csn, name"), [], tag_row)?,
        retention: retention(sql)?,
        horizon: Csn(setting(sql, "horizon")?.unwrap_or(0)),
        kept: all(sql, kept, [], |row| Ok(Csn(number(row, 0)?)))?,
    })
}

fn write(sql: &SqlConnection, contents: &Contents) -> SqlResult<()> {
    write_commits(sql, &contents.commits)?;
    for (class, created) in &contents.classes {
        sql.prepare_cached(
            "INSERT INTO classes (name, version, definition, created) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            class.name,
            class.version,
            class.definition,
            signed(created.0)
        ])?;
    }
    contents.databases.iter().try_for_each(|record| write_database(sql, record))?;
    contents.containers.iter().try_for_each(|record| write_container(sql, record))?;
    contents.versions.iter().try_for_each(|row| insert_version_row(sql, row, None))?;
    contents.link_targets.iter().try_for_each(|list| write_link_targets(sql, list))?;
    for tag in &contents.tags {
        sql.prepare_cached(
            "INSERT INTO tags (name, csn, created_us, message, user_name) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            tag.name,
            signed(tag.csn.0),
            tag.created_us,
            tag.message,
            tag.user
        ])?;
    }
    for csn in &contents.kept {
        sql.prepare_cached("INSERT INTO kept_snapshots (csn) VALUES (?1)")?
            .execute([signed(csn.0)])?;
    }
    set(sql, "keep_commits", contents.retention.keep_commits)?;
    set(sql, "keep_days", contents.retention.keep_days)?;
    let horizon = setting(sql, "horizon")?.unwrap_or(0).max(contents.horizon.0);
    set(sql, "horizon", Some(horizon))?;
    continue_sequences(sql, contents)
}

/// Inserts commits whose times never decrease, because snapshots are found by time.
fn write_commits(sql: &SqlConnection, commits: &[CommitRow]) -> SqlResult<()> {
    let mut commits: Vec<_> = commits.iter().collect();
    commits.sort_by_key(|row| row.csn);
    let mut time_us = i64::MIN;
    for row in commits {
        time_us = time_us.max(row.time_us);
        sql.prepare_cached(
            "INSERT INTO commits (csn, transaction_uuid, time_us, message, user_name, host, pid) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            signed(row.csn.0),
            row.transaction.as_bytes(),
            time_us,
            row.message,
            row.user,
            row.host,
            row.pid,
        ])?;
    }
    Ok(())
}

fn write_database(sql: &SqlConnection, record: &DatabaseRecord) -> SqlResult<()> {
    let row = &record.row;
    // The table stores the sealing commit instead of the state `sealed`.
    let state = match row.state {
        DatabaseState::Attached => DatabaseState::Attached,
        _ => DatabaseState::Open,
    };
    if row.state == DatabaseState::Sealed && record.sealed.is_none() {
        let what = format!("database {:?} is sealed, but its row has no sealing commit", row.name);
        return Err(Error::invalid(what).into());
    }
    sql.prepare_cached(
        "INSERT INTO databases \
         (id, uuid, path, state, created, sealed, dropped, keeps_file, epoch) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        row.id.0,
        row.uuid.as_bytes(),
        row.path,
        state.to_string(),
        signed(row.created.0),
        record.sealed.map(|csn| signed(csn.0)),
        record.dropped.map(|csn| signed(csn.0)),
        record.keeps_file,
        signed(row.epoch),
    ])?;
    for name in names_of(&record.names, &row.name, row.created, record.dropped) {
        sql.prepare_cached(
            "INSERT INTO database_names (database, name, since, until) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            row.id.0,
            name.name,
            signed(name.since.0),
            name.until.map(|csn| signed(csn.0)),
        ])?;
    }
    Ok(())
}

fn write_container(sql: &SqlConnection, record: &ContainerRecord) -> SqlResult<()> {
    let row = &record.row;
    sql.prepare_cached(
        "INSERT INTO containers (database, id, class, class_version, options, created, dropped) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        row.database.0,
        row.id.0,
        row.class,
        row.class_version,
        row.options,
        signed(row.created.0),
        record.dropped.map(|csn| signed(csn.0)),
    ])?;
    for name in names_of(&record.names, &row.name, row.created, record.dropped) {
        sql.prepare_cached(
            "INSERT INTO container_names (database, container, name, since, until) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            row.database.0,
            row.id.0,
            name.name,
            signed(name.since.0),
            name.until.map(|csn| signed(csn.0)),
        ])?;
    }
    Ok(())
}

/// The names in `names`; if there are none, the name `only`, from creation to drop.
fn names_of(names: &[NameRow], only: &str, created: Csn, dropped: Option<Csn>) -> Vec<NameRow> {
    match names {
        [] => vec![NameRow { name: only.to_owned(), since: created, until: dropped }],
        names => names.to_vec(),
    }
}

fn write_link_targets(sql: &SqlConnection, list: &LinkTargets) -> SqlResult<()> {
    for (position, (target, csn)) in (0_i64..).zip(&list.targets) {
        sql.prepare_cached(
            "INSERT INTO link_targets (database, container, position, target, csn) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            list.database.0,
            list.container.0,
            position,
            target.as_bytes(),
            signed(csn.0)
        ])?;
    }
    Ok(())
}

/// Containers of attached files keep the ids of the federation that made them, so these ids do not count.
fn continue_sequences(sql: &SqlConnection, contents: &Contents) -> SqlResult<()> {
    let attached: HashMap<DatabaseId, bool> = contents
        .databases
        .iter()
        .map(|record| (record.row.id, record.row.state == DatabaseState::Attached))
        .collect();
    let own = contents.containers.iter().map(|record| &record.row);
    let own = own.filter(|row| attached.get(&row.database) == Some(&false));
    let database = contents.databases.iter().map(|record| record.row.id.0).max();
    for (name, last) in [("database", database), ("container", own.map(|row| row.id.0).max())] {
        sql.prepare_cached("UPDATE sequences SET last = ?2 WHERE name = ?1 AND last < ?2")?
            .execute(params![name, last.unwrap_or(0)])?;
    }
    Ok(())
}

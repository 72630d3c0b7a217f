//! The rows of tables that a *follower*, a copy of a federation, gets from its *leader*.
//!
//! Rows travel as cells, without types of their own, so that each column is named in one place, `copied_tables`. Most
//! rows are found by the commit that added them; the few that change in other ways are sent as a whole whenever their
//! *mark* differs.

use std::path::Path;

use crate::copied_tables::CopiedTable;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::numbers::unsigned;
use crate::paths::{DATABASES_FOLDER, is_database_path};
use crate::rows::{BlobRange, EnvelopeRange, VersionRow};
use uuid::Uuid;

/// A value in a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SqlValue {
    /// No value.
    Null,
    /// A number.
    Integer(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// Rows of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TableRows {
    /// The table.
    pub table: String,
    /// The cells, row by row.
    pub cells: Vec<SqlValue>,
}

/// The rows that a follower with all commits up to one commit needs to reach a later one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderRows {
    /// The last commit of the rows.
    pub at: Csn,
    /// The leader's newest commit.
    pub head: Csn,
    /// The state of all rows that no commit dates: tags, settings, the paths and epochs of databases.
    pub mark: u64,
    /// Whether the undated rows are among `tables`, because the follower named another mark.
    pub has_undated: bool,
    /// New rows, and rows that replace those with the same key.
    pub tables: Vec<TableRows>,
}

/// A database, with the columns that a follower needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderDatabase {
    /// The number of the database.
    pub id: DatabaseId,
    /// The database's identity in all federations.
    pub uuid: Uuid,
    /// The path at the leader.
    pub path: String,
    /// Whether the file was attached, not made in this federation.
    pub is_attached: bool,
    /// Whether the file never changes any more.
    pub is_complete: bool,
    /// The commit that dropped it, if one did.
    pub dropped: Option<Csn>,
    /// The epoch of its space.
    pub epoch: u64,
}

/// A follower that leads the federation from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The generation that begins with this promotion.
    pub generation: u64,
    /// The id of the promotion, which differs from those of other followers.
    pub promotion: String,
    /// The URL at which the new leader is served.
    pub url: String,
}

impl LeaderRows {
    /// The databases among the rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a row is malformed.
    pub fn databases(&self) -> Result<Vec<LeaderDatabase>> {
        self.decoded("databases", database)
    }

    /// The versions among the rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a row is malformed.
    pub fn versions(&self) -> Result<Vec<VersionRow>> {
        self.decoded("versions", version)
    }

    /// The containers among the rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a row is malformed.
    pub fn containers(&self) -> Result<Vec<(DatabaseId, ContainerId)>> {
        self.decoded("containers", |row| {
            Some((DatabaseId(id(&row[0])?), ContainerId(id(&row[1])?)))
        })
    }

    /// The names and commits of tags among the rows.
    pub(crate) fn tags(&self) -> Result<Vec<(String, i64)>> {
        self.decoded("tags", |row| match row {
            [SqlValue::Text(name), SqlValue::Integer(csn), ..] => Some((name.clone(), *csn)),
            _ => None,
        })
    }

    /// The snapshots that the leader's vacuum has kept.
    pub(crate) fn kept_snapshots(&self) -> Result<Vec<i64>> {
        self.decoded("kept_snapshots", |row| match row {
            [SqlValue::Integer(csn)] => Some(*csn),
            _ => None,
        })
    }

    /// The databases whose files are in the leader's stores, and not on its disk.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a row is malformed.
    pub fn nearline(&self) -> Result<Vec<DatabaseId>> {
        self.decoded("disk_states", |row| id(&row[0]).map(DatabaseId))
    }

    /// The commit from which on the leader has all snapshots, if the settings are among the rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a row is malformed.
    pub fn horizon(&self) -> Result<Option<Csn>> {
        Ok(self.setting("horizon")?.map(Csn))
    }

    /// How many times a follower became the leader before this leader, if the settings are among the rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a row is malformed.
    pub fn generation(&self) -> Result<Option<u64>> {
        self.setting("generation")
    }

    /// The URL of another leader to which this one has yielded, if the settings are among the rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a row is malformed.
    pub fn successor(&self) -> Result<Option<String>> {
        self.text("successor")
    }

    fn setting(&self, key: &str) -> Result<Option<u64>> {
        Ok(self.text(key)?.and_then(|value| value.parse().ok()))
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        let settings = self.decoded("federation", |row| match row {
            [SqlValue::Text(key), SqlValue::Text(value)] => Some((key.clone(), value.clone())),
            _ => None,
        })?;
        Ok(settings.into_iter().find(|(name, _)| name == key).map(|(_, value)| value))
    }

    fn decoded<T>(&self, name: &str, decode: impl Fn(&[SqlValue]) -> Option<T>) -> Result<Vec<T>> {
        let table = CopiedTable::of(name)?;
        let malformed = || Error::invalid(format!("a malformed row of table {name:?}"));
        let mut decoded = vec![];
        for rows in self.tables.iter().filter(|rows| rows.table == name) {
            for row in table.rows(&rows.cells)? {
                decoded.push(decode(row).ok_or_else(malformed)?);
            }
        }
        Ok(decoded)
    }
}

fn database(row: &[SqlValue]) -> Option<LeaderDatabase> {
    let [
        _,
        SqlValue::Blob(uuid),
        SqlValue::Text(path),
        SqlValue::Text(state),
        _,
        sealed,
        dropped,
        ..,
    ] = row
    else {
        return None;
    };
    let is_attached = state == "attached";
    let number_of_it = DatabaseId(id(&row[0])?);
    if !is_database_path(&path_of_copy(number_of_it, path)) {
        return None;
    }
    Some(LeaderDatabase {
        id: number_of_it,
        uuid: Uuid::from_slice(uuid).ok()?,
        path: path.clone(),
        is_attached,
        is_complete: is_attached || *sealed != SqlValue::Null,
        dropped: number(dropped).map(Csn),
        epoch: number(&row[8])?,
    })
}

/// The path of a database's file at a follower, unless another database has that path: the same path below its folder;
/// or beside the other files, if the leader has the file outside of its own folder.
pub fn path_of_copy(database: DatabaseId, path: &str) -> String {
    if Path::new(path).is_absolute() {
        format!("{DATABASES_FOLDER}/attached-{database}.root")
    } else {
        path.to_owned()
    }
}

fn version(row: &[SqlValue]) -> Option<VersionRow> {
    let envelope = |first: usize| {
        Some(EnvelopeRange {
            offset: number(&row[first])?,
            size: number(&row[first + 1])?,
            length: number(&row[first + 2])?,
        })
    };
    let blob = |first: usize| {
        Some(BlobRange { offset: number(&row[first])?, size: number(&row[first + 1])? })
    };
    Some(VersionRow {
        database: DatabaseId(id(&row[0])?),
        container: ContainerId(id(&row[1])?),
        csn: Csn(number(&row[2])?),
        header: envelope(3)?,
        footer: envelope(6)?,
        annex: blob(9)?,
        record: blob(11)?,
        class_version: id(&row[13])?,
        entries: number(&row[14])?,
        deleted: number(&row[15])?,
        bytes: number(&row[16])?,
    })
}

fn number(cell: &SqlValue) -> Option<u64> {
    match cell {
        SqlValue::Integer(value) => Some(unsigned(*value)),
        _ => None,
    }
}

fn id(cell: &SqlValue) -> Option<u32> {
    number(cell).and_then(|value| u32::try_from(value).ok())
}

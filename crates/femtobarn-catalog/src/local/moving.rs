//! Moves the catalogue between SQLite and PostgreSQL while it is in use.
//!
//! The rows are copied and compared: first all of them, then, round by round, those of the commits since. The last ones
//! are copied within a transaction of the old catalogue, which excludes all other changes; its commit records that the
//! catalogue is about to be left. Then one file is renamed, `catalogue.toml`: that is the move.
//!
//! 1. Before the file is renamed, the federation uses the old catalogue, and after it the new one. A process that finds
//!    its catalogue about to be left waits for either ([`super::process_connections`]).
//! 2. The new catalogue has all rows, durably, before the old one refuses changes, and the refusal is durable before
//!    the file is renamed.
//! 3. The mover has the turn to move, which the kernel frees if the process dies. Another mover may begin again then:
//!    the remains of the first are marked as unused.
//!
//! The caller excludes vacuum and repairs, which change rows of earlier commits.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LocalCatalogue;
use super::catalogue_place::{CataloguePlace, schema_of};
use super::connections::Connections;
use super::creation::{create_beside, draft_in, remove_draft, sync_folder, write_address};
use super::leading::{head, read};
use super::moved_tables;
use super::role::{MovePhase, check_leader, new_place, phase, set_phase};
use super::row_copy::{RowsDigest, check_equal, each_page, insert};
use crate::copied_tables::{CopiedTable, TABLES};
use crate::error::{Error, Result};
use crate::ids::Csn;
use crate::locks::{FileTurn, TurnKind};
use crate::numbers::{signed, unsigned};
use crate::paths::{CATALOGUE_ADDRESS_FILE, CATALOGUE_FILE, LOCKS_FOLDER};
use crate::schema;
use crate::sql::{OptionalExtension, PostgresAddress, Row, SqlConnection, SqlResult, params};

/// The most commits that are copied while committers wait, if commits do not arrive faster than they are copied.
const LAST_COMMITS_MAX: u64 = 200;
/// Commits that are copied at a time.
const ROUND_COMMITS: u64 = 5_000;
/// Rounds after which the remaining commits are copied while committers wait.
const ROUNDS_MAX: u32 = 100;

/// Observes a move, and returns whether to continue: the table, the rows copied so far, and all rows.
pub type MoveWatch<'a> = dyn FnMut(&'static str, u64, u64) -> bool + 'a;

/// A catalogue that was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedCatalogue {
    /// Rows that were copied; 0 if the catalogue was at its new place already.
    pub rows: u64,
    /// The newest commit.
    pub csn: Csn,
    /// The old place.
    pub from: String,
    /// The new place.
    pub to: String,
}

/// The catalogue that the rows are copied to.
struct NewHome {
    connections: Connections,
    /// The draft of the file that names the server, if it is in PostgreSQL.
    draft: Option<PathBuf>,
    shown: String,
}

impl LocalCatalogue {
    /// Moves the catalogue to the PostgreSQL that a URL names, or else into a file of SQLite in the federation's
    /// folder. If it is there already, this only cleans up after an interrupted move.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad URL; [`Error::Busy`] if another process moves it; [`Error::Denied`] for a copy that
    /// follows, or was succeeded, and if the server refuses; [`Error::Exists`] if another catalogue of this federation is at
    /// the new place; [`Error::Unsupported`] if the new place cannot store some rows; [`Error::Closed`] if `watch`
    /// stops the move; [`Error::Unavailable`], [`Error::Full`] or [`Error::Io`] if the new catalogue cannot be written.
    /// Then the old one stays in use.
    pub fn move_to(&self, url: Option<&str>, watch: &mut MoveWatch<'_>) -> Result<MovedCatalogue> {
        let locks = self.folder().join(LOCKS_FOLDER);
        let turn = FileTurn::take_if_free(&locks, TurnKind::Move)?;
        let _turn = turn.ok_or_else(|| {
            let what = "the catalogue is being moved by another process; wait until it is done";
            Error::Unavailable { what: what.to_owned() }
        })?;
        let old = self.connections.current()?;
        old.write_unchecked(|sql| match phase(sql)? {
            // An interrupted move, from here or to here.
            Some(MovePhase::Leaving | MovePhase::Arrived) => set_phase(sql, None, ""),
            _ => Ok(()),
        })?;
        let from = shown(old.place());
        let address = match url {
            Some(url) => Some(Arc::new(PostgresAddress::parse(url, &schema_of(self.uuid()))?)),
            None => None,
        };
        let to = address.as_ref().map_or(CATALOGUE_FILE.to_owned(), |it| it.shown().to_owned());
        if from == to {
            return Ok(MovedCatalogue { rows: 0, csn: self.head()?, from, to });
        }
        old.write_unchecked(|sql| {
            check_leader(sql)?;
            moved_tables::check_all_known(sql)
        })?;
        let new = match (address, url) {
            (Some(address), Some(url)) => NewHome::in_postgres(self, &address, url, &from)?,
            _ => NewHome::in_sqlite(self, &from)?,
        };
        let moved = self.copy_and_switch(&old, &new, watch);
        if let Some(draft) = &new.draft {
            // The draft was renamed, or the move failed and it is not needed.
            remove_draft(draft);
        }
        let (rows, csn) = moved?;
        // The federation uses the new catalogue, whether or not these succeed.
        drop(mark_left(self.folder(), old.place(), &to));
        drop(self.connections.write_as_anyone(|sql| set_phase(sql, None, "")));
        Ok(MovedCatalogue { rows, csn, from, to })
    }

    fn copy_and_switch(
        &self,
        old: &Connections,
        new: &NewHome,
        watch: &mut MoveWatch<'_>,
    ) -> Result<(u64, Csn)> {
        let (mut rows, mut since) = copy_all(old, &new.connections, watch)?;
        for _ in 0..ROUNDS_MAX {
            let (copied, at, newest) = old.read(|from| {
                from.in_one_state(|from| {
                    let newest = head(from)?;
                    let at = Csn(newest.0.min(since.0 + ROUND_COMMITS));
                    let into = &new.connections;
                    let copied = into.write_unchecked(|to| copy_range(from, to, since, at))?;
                    Ok((copied, at, newest))
                })
            })?;
            (rows, since) = (rows + copied, at);
            if !watch("commits", since.0, newest.0) {
                return Err(stopped());
            }
            if newest.0 - since.0 <= LAST_COMMITS_MAX {
                break;
            }
        }
        self.write_back()?;
        let locks = self.folder().join(LOCKS_FOLDER);
        let _turn = FileTurn::wait(&locks, TurnKind::WriteBack)?;
        let csn = old.write_unchecked(|from| {
            check_leader(from)?;
            moved_tables::check_all_known(from)?;
            self.file_log.write_back_last(from)?;
            let newest = head(from)?;
            rows += new.connections.write_unchecked(|to| {
                let dated = copy_range(from, to, since, newest)?;
                let others = moved_tables::copy_undated(from, to)?;
                set_phase(to, Some(MovePhase::Arrived), "")?;
                Ok(dated + others)
            })?;
            set_phase(from, Some(MovePhase::Leaving), &new.shown)?;
            Ok(newest)
        })?;
        let named = self.folder().join(CATALOGUE_ADDRESS_FILE);
        match &new.draft {
            Some(draft) => rename(draft, &named)?,
            None => rename(&named, &moved_name(self.folder()))?,
        }
        Ok((rows, csn))
    }
}

impl NewHome {
    /// Makes the tables in PostgreSQL, and the draft of the file that names it. The remains of an earlier move there
    /// are dropped.
    fn in_postgres(
        of: &LocalCatalogue,
        address: &Arc<PostgresAddress>,
        url: &str,
        from: &str,
    ) -> Result<Self> {
        let draft = draft_in(of.folder());
        write_address(&draft, url, address)?;
        let place = CataloguePlace { path: draft.clone(), postgres: Some(Arc::clone(address)) };
        let made = Connections::new(place).and_then(|connections| {
            connections.write_unchecked(|sql| {
                let schema = address.schema();
                if schema::has_schema(sql, schema)? {
                    check_unused(sql, of, from)?;
                    sql.execute_batch(&format!("DROP SCHEMA \"{schema}\" CASCADE"))?;
                }
                schema::create_in_postgres(sql, schema, of.name(), of.uuid())?;
                set_phase(sql, Some(MovePhase::Arriving), "")
            })?;
            Ok(connections)
        });
        let made = made.inspect_err(|_| remove_draft(&draft));
        let shown = address.shown().to_owned();
        Ok(NewHome { connections: made?, draft: Some(draft), shown })
    }

    /// Makes a catalogue in a file. If the catalogue was in that file before, empties it, since processes may have it
    /// open.
    fn in_sqlite(of: &LocalCatalogue, from: &str) -> Result<Self> {
        let path = of.folder().join(CATALOGUE_FILE);
        let is_there = path.exists();
        if !is_there {
            create_beside(of.folder(), of.name(), of.uuid())?;
        }
        let connections = Connections::new(CataloguePlace { path, postgres: None })?;
        connections.write_unchecked(|sql| {
            if is_there {
                check_unused(sql, of, from)?;
            }
            set_phase(sql, Some(MovePhase::Arriving), "")?;
            moved_tables::clear(sql)
        })?;
        Ok(NewHome { connections, draft: None, shown: CATALOGUE_FILE.to_owned() })
    }
}

/// Checks that a catalogue at the new place is unused, so that the federation's catalogue can move there from `from`.
/// It is unused if it was left, or if rows were still being copied into it. One that is about to be left for `from` was
/// left, and its mover died before it could record that. One that got all rows was never used if all its commits are in
/// the present catalogue.
fn check_unused(sql: &SqlConnection, of: &LocalCatalogue, from: &str) -> SqlResult<()> {
    let federation = of.uuid();
    let is_unused = match phase(sql)? {
        Some(MovePhase::Arriving | MovePhase::Left) => true,
        Some(MovePhase::Leaving) => new_place(sql)?.is_some_and(|to| to == from),
        Some(MovePhase::Arrived) => has_newest_of(of, sql)?,
        None => false,
    };
    if is_unused && schema::identity(sql)?.is_some_and(|identity| identity.uuid == federation) {
        return Ok(());
    }
    Err(Error::Exists {
        what: "catalogue",
        name: schema_of(federation),
        advice: "it is at the new place and in use, perhaps by a copy of this federation's folder; rename or drop it \
                 if nobody needs it"
            .to_owned(),
    }
    .into())
}

/// Whether a catalogue has the newest commit of another one, if that has any.
fn has_newest_of(this: &LocalCatalogue, other: &SqlConnection) -> SqlResult<bool> {
    let newest = "SELECT csn, transaction_uuid FROM commits ORDER BY csn DESC LIMIT 1";
    let commit = |row: &Row<'_>| Ok((row.get::<i64>(0)?, row.get::<Vec<u8>>(1)?));
    let Some((csn, transaction)) = other.query_row(newest, [], commit).optional()? else {
        return Ok(true);
    };
    let same = "SELECT 1 FROM commits WHERE csn = ?1 AND transaction_uuid = ?2";
    Ok(this.read(|sql| sql.prepare_cached(same)?.exists(params![csn, transaction]))?)
}

/// Copies all dated rows as of one commit and compares them; returns their number, and the commit.
fn copy_all(
    from: &Connections,
    into: &Connections,
    watch: &mut MoveWatch<'_>,
) -> Result<(u64, Csn)> {
    from.read(|from| {
        from.in_one_state(|from| {
            let at = head(from)?;
            let total = TABLES.iter().map(|table| count(from, table)).sum::<SqlResult<u64>>()?;
            let mut done = 0;
            for table in TABLES {
                let mut digest = RowsDigest::default();
                each_page(from, table, |cells| {
                    digest.add(table, &cells);
                    into.write_unchecked(|to| insert(to, table, &cells))?;
                    let is_wanted = watch(table.name, done + digest.rows, total);
                    if is_wanted { Ok(()) } else { Err(stopped().into()) }
                })?;
                done += digest.rows;
                let arrived = into.read(|to| RowsDigest::of(to, table))?;
                check_equal(table, digest, arrived)?;
            }
            Ok((done, at))
        })
    })
}

/// Copies the rows that are new or have changed between commits `since` and `at`, and compares them; returns their
/// number.
fn copy_range(from: &SqlConnection, to: &SqlConnection, since: Csn, at: Csn) -> SqlResult<u64> {
    let range = params![signed(since.0), signed(at.0)];
    let mut rows = 0;
    for table in TABLES.iter().filter(|_| at > since) {
        let digest = |cells: &[_]| {
            let mut digest = RowsDigest::default();
            digest.add(table, cells);
            digest
        };
        let new = read(from, table, table.new, range)?.cells;
        insert(to, table, &new)?;
        let arrived = read(to, table, table.new, range)?.cells;
        check_equal(table, digest(&new), digest(&arrived))?;
        rows += digest(&new).rows;
    }
    Ok(rows)
}

fn count(sql: &SqlConnection, table: &CopiedTable) -> SqlResult<u64> {
    let count = format!("SELECT count(*) FROM {}", table.name);
    sql.query_row(&count, [], |row| row.get(0)).map(unsigned)
}

fn stopped() -> Error {
    Error::closed("moving the catalogue was stopped; it is where it was")
}

/// Renames a file, durably.
fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| Error::io("cannot rename", from, error))?;
    to.parent().map_or(Ok(()), sync_folder)
}

/// The name that the file which named the server is renamed to.
fn moved_name(folder: &Path) -> PathBuf {
    folder.join(format!("{CATALOGUE_ADDRESS_FILE}.moved"))
}

/// Marks the old catalogue as no longer used.
fn mark_left(folder: &Path, old: &CataloguePlace, to: &str) -> Result<()> {
    // The file that named its server may have been removed.
    let moved = moved_name(folder);
    let path = if old.path.exists() { old.path.clone() } else { moved };
    let place = CataloguePlace { path, postgres: old.postgres.clone() };
    Connections::new(place)?.write_unchecked(|sql| match phase(sql)? {
        Some(MovePhase::Leaving) => set_phase(sql, Some(MovePhase::Left), to),
        _ => Ok(()),
    })
}

/// A place, for people.
fn shown(place: &CataloguePlace) -> String {
    let file = CATALOGUE_FILE.to_owned();
    place.postgres.as_ref().map_or(file, |address| address.shown().to_owned())
}

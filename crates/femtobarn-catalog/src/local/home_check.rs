//! Checks the fences of a commit: whether it may write to its databases, according to the servers and homes in
//! PostgreSQL.
//!
//! 1. A database with a home accepts commits that show its fence, and commits of processes in a folder with the storage
//!    of its home, whose locks are files there.
//! 2. A new database gets a home in the commit that makes it: the server of its fence, or one with the folder's
//!    storage.
//! 3. The caller's transaction has the lock of the catalogue, so the result is still true when it commits.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::commit::Commit;
use crate::error::Error;
use crate::ids::DatabaseId;
use crate::numbers::unsigned;
use crate::paths::{LOCKS_FOLDER, STORAGE_FILE};
use crate::servers::Fence;
use crate::sql::{OptionalExtension, Parameters, Row, RowResult, SqlConnection, SqlResult, params};

/// The home of each database, with its server, and the server of the fence that the commit shows for it.
const STATE: &str = "SELECT h.server, h.epoch, s.epoch, s.url, s.storage, f.epoch \
    FROM unnest(?1, ?2) WITH ORDINALITY AS k (database, server, number) \
    LEFT JOIN LATERAL (SELECT h.server, h.epoch FROM homes h WHERE h.database = k.database LIMIT 1) h ON true \
    LEFT JOIN servers s ON s.name = h.server \
    LEFT JOIN servers f ON f.name = k.server ORDER BY k.number";

/// A database's home at the time a commit is applied.
struct HomeState {
    server: Option<String>,
    epochs: [Option<u64>; 2],
    url: String,
    storage: String,
    /// The epoch of the fence's server.
    fencing: Option<u64>,
}

/// Refuses a commit that may not write to one of its databases, and sets the homes of its new databases. `path` is that
/// of the file that names the catalogue.
pub(super) fn check(sql: &SqlConnection, path: &Path, commit: &Commit) -> SqlResult<()> {
    let databases: Vec<DatabaseId> = written(commit).into_iter().collect();
    if databases.is_empty() {
        return Ok(());
    }
    let fence = |id: &DatabaseId| commit.fence(*id);
    let mut of = Parameters::none();
    of.add_integers(databases.iter().map(|id| i64::from(id.0)));
    of.add_texts(databases.iter().map(|id| fence(id).map_or("", |fence| &*fence.server)));
    let states = sql.prepare_cached(STATE)?.query_with(of, state)?;
    let own = OnceCell::new();
    let own = || own.get_or_init(|| own_storage(path)).as_deref();
    for (id, state) in databases.iter().zip(states) {
        let fence = fence(id);
        let is_new = commit.new_databases.iter().any(|new| new.id == *id);
        match (fence, &state.server) {
            (Some(fence), _) => state.check(fence)?,
            (None, Some(server)) => {
                if own() != Some(&state.storage) {
                    return Err(elsewhere(*id, server, &state.url).into());
                }
            }
            (None, None) => {}
        }
        if is_new && state.server.is_none() {
            match fence {
                Some(fence) => set_home(sql, *id, &fence.server)?,
                None => own().map_or(Ok(()), |own| set_home_of_storage(sql, *id, own))?,
            }
        }
    }
    Ok(())
}

/// Whether the home of a version's database, if it has one, admits a commit with this fence.
fn admits(home: (Option<&str>, [Option<u64>; 2]), fence: Option<&Fence>) -> bool {
    match (home, fence) {
        ((None, _), None) => true,
        ((Some(server), [home, of_server]), Some(fence)) => {
            server == fence.server
                && home == Some(fence.home_epoch)
                && of_server == Some(fence.server_epoch)
        }
        // Other commits are checked one by one, by [`check`].
        _ => false,
    }
}

/// The databases whose files a commit writes to.
fn written(commit: &Commit) -> BTreeSet<DatabaseId> {
    let versions = commit.versions.iter().map(|version| version.database);
    let new = commit.new_databases.iter().map(|new| new.id);
    let sealed = commit.sealed.iter().map(|(id, _)| *id);
    let moved = commit.moved.iter().map(|(id, _)| *id);
    versions.chain(new).chain(sealed).chain(moved).collect()
}

impl HomeState {
    fn check(&self, fence: &Fence) -> SqlResult<()> {
        let id = fence.database;
        let refused = |what: String| Err(Error::changed(what).into());
        let is_served = match &self.server {
            None => fence.home_epoch == 0 && self.fencing == Some(fence.server_epoch),
            Some(_) => {
                let home = (self.server.as_deref(), self.epochs);
                admits(home, Some(fence))
            }
        };
        if is_served {
            return Ok(());
        }
        match &self.server {
            Some(server) if *server != fence.server => refused(format!(
                "database {id} moved from server {:?} to {server:?} since it was locked",
                fence.server
            )),
            _ if self.fencing != Some(fence.server_epoch) => refused(format!(
                "the lock on database {id} was lost, because server {:?} was started again or lost its lease",
                fence.server
            )),
            _ => refused(format!(
                "the lock on database {id} was lost: server {:?} freed its writers' locks, because the client of one \
                 stopped answering, or the server had ended, and a program in its folder locked the database",
                fence.server
            )),
        }
    }
}

fn elsewhere(id: DatabaseId, server: &str, url: &str) -> Error {
    Error::Elsewhere {
        what: format!("database {id} is written at server {server:?} ({url})"),
        server: server.to_owned(),
        url: url.to_owned(),
    }
}

fn own_storage(path: &Path) -> Option<String> {
    let file = path.with_file_name(LOCKS_FOLDER).join(STORAGE_FILE);
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

fn set_home(sql: &SqlConnection, id: DatabaseId, server: &str) -> SqlResult<()> {
    let insert = "INSERT INTO homes (database, server, epoch) VALUES (?1, ?2, 1)";
    sql.prepare_cached(insert)?.execute_with_next(params![id.0, server])
}

/// Sets the home of a database that a local process creates: the first of the servers that see its folder.
fn set_home_of_storage(sql: &SqlConnection, id: DatabaseId, storage: &str) -> SqlResult<()> {
    let find = "SELECT name FROM servers WHERE storage = ?1 ORDER BY state = 'left', name LIMIT 1";
    let server: Option<String> =
        sql.prepare_cached(find)?.query_row([storage], |row| row.get(0)).optional()?;
    server.map_or(Ok(()), |server| set_home(sql, id, &server))
}

fn state(row: &Row<'_>) -> RowResult<HomeState> {
    let epoch = |column| row.get::<Option<i64>>(column).map(|it| it.map(unsigned));
    let text = |column| row.get::<Option<String>>(column).map(Option::unwrap_or_default);
    Ok(HomeState {
        server: row.get(0)?,
        epochs: [epoch(1)?, epoch(2)?],
        url: text(3)?,
        storage: text(4)?,
        fencing: epoch(5)?,
    })
}

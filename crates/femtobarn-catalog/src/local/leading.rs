//! The questions of followers to their leader's catalogue, and how a successor stops a leader.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use twox_hash::XxHash3_64;

use super::LocalCatalogue;
use super::replicas;
use super::role::{Role, SUCCESSOR, role};
use super::row_copy::read_cells;
use super::settings::{set, set_text, setting, text};
use crate::clock;
use crate::copied_tables::{
    CopiedTable, IN_STORES, INDEXES_BY_COMMIT, OF_A_DATABASE, SEQUENCES, TABLES, UNDATED,
};
use crate::error::{Error, Result};
use crate::ids::{Csn, DatabaseId};
use crate::numbers::{signed, unsigned};
use crate::replication::{LeaderRows, Successor, TableRows};
use crate::schema::{FORMAT_WITH_ROLES, has_index, raise_format};
use crate::sql::{OptionalExtension, Params, SqlConnection, SqlResult, params};

/// Commits in one answer at most, unless the leader's horizon is farther away and the follower has snapshots.
const COMMITS_MAX: u64 = 20_000;
/// Rows of one table in an answer, about, in the same way; one commit is not divided.
const ROWS_MAX: u32 = 50_000;
/// The tables that may have many rows of one commit, and the column that has the commit.
const LARGE_TABLES: [(&str, &str); 3] =
    [("versions", "csn"), ("containers", "created"), ("link_targets", "csn")];
/// The pause before the leader tries again to make indexes that could not be made.
const INDEX_AGAIN: Duration = Duration::from_secs(300);

/// The settings for the generation of the successor, and for its promotion, which distinguishes it from others.
pub(super) const SUCCESSOR_GENERATION: &str = "successor_generation";
pub(super) const SUCCESSOR_PROMOTION: &str = "successor_promotion";
/// Bytes of a URL at most.
const URL_BYTES_MAX: usize = 1000;
/// The setting that counts how often a follower became the leader.
pub(super) const GENERATION: &str = "generation";

impl LocalCatalogue {
    /// The rows that a follower needs which has all commits up to `since`, and the undated rows as of `mark`. The rows
    /// cover at most 20,000 commits, or about 50,000 versions, unless that would end before the first snapshot; if
    /// `is_beginning`, because the follower has no snapshot yet, the limit holds even then.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `since` is newer than all commits: the follower has a different history.
    pub fn rows_since(
        &self,
        since: Csn,
        mark: Option<u64>,
        is_beginning: bool,
    ) -> Result<LeaderRows> {
        self.index_by_commit();
        let look_up = |sql: &SqlConnection| {
            let is_indexed = is_indexed_by_commit(sql)?;
            let head = head(sql)?;
            if since > head {
                let what = format!("commit {since} does not exist here; the newest is {head}");
                return Err(Error::invalid(what).into());
            }
            let horizon = Csn(setting(sql, "horizon")?.unwrap_or(0));
            let least = if is_beginning { since } else { horizon };
            let at = head.min(last_in_answer(sql, since, is_indexed)?.max(least));
            let range = params![signed(since.0), signed(at.0)];
            let mut rows = LeaderRows { at, head, mark: 0, has_undated: false, tables: vec![] };
            for table in TABLES.iter().filter(|_| at > since) {
                let by_commit = table.new_by_commit.filter(|_| is_indexed);
                rows.tables.push(read(sql, table, by_commit.unwrap_or(table.new), range)?);
            }
            rows.tables.push(read(sql, &SEQUENCES, SEQUENCES.new, [])?);
            let undated = undated(sql, at)?;
            // The follower may ask a process of another version the next time.
            let mut hasher = XxHash3_64::new();
            undated.hash(&mut hasher);
            rows.mark = hasher.finish();
            rows.has_undated = mark != Some(rows.mark);
            if rows.has_undated {
                rows.tables.extend(undated);
            }
            rows.tables.retain(|table| !table.cells.is_empty());
            Ok(rows)
        };
        self.read(|sql| sql.in_one_state(look_up))
    }

    /// Makes the indexes by commit, unless they exist, or this process may not write. Without them, followers'
    /// questions only take longer.
    fn index_by_commit(&self) {
        let failed = *self.indexing_failed.lock();
        if self.connections.is_read_only()
            || failed.is_some_and(|since| clock::now().duration_since(since) < INDEX_AGAIN)
            || self.read(is_indexed_by_commit).unwrap_or(true)
        {
            return;
        }
        // Commits pass in between.
        let mut all = INDEXES_BY_COMMIT.iter();
        let made = all.try_for_each(|index| {
            self.connections.current()?.write_optional(&mut |sql| sql.execute_batch(index))
        });
        *self.indexing_failed.lock() = made.is_err().then(clock::now);
    }

    /// All rows of a database's contents up to commit `at`. A follower compares them with its own when the epoch of the
    /// database has changed.
    pub fn rows_of_database(&self, database: DatabaseId, at: Csn) -> Result<LeaderRows> {
        let look_up = |sql: &SqlConnection| {
            let mut rows = LeaderRows { at, head: head(sql)?, ..LeaderRows::default() };
            for name in OF_A_DATABASE {
                let table = CopiedTable::of(name)?;
                let created = match name {
                    "containers" => "created",
                    "container_names" => "since",
                    _ => "csn",
                };
                let of = format!("{name} t WHERE database = ?1 AND {created} <= ?2");
                rows.tables.push(read(sql, table, &of, params![database.0, signed(at.0)])?);
            }
            Ok(rows)
        };
        self.read(|sql| sql.in_one_state(look_up))
    }

    /// How many times a follower became the leader in the history of this catalogue.
    pub fn generation(&self) -> Result<u64> {
        self.read(|sql| Ok(setting(sql, GENERATION)?.unwrap_or(0)))
    }

    /// Refuses all further changes here, because a follower leads the federation from now on. Returns the newest
    /// commit. May be repeated.
    ///
    /// # Errors
    /// [`Error::Changed`] if this catalogue is of that generation or a later one, or another follower leads in that
    /// generation; [`Error::Denied`] if this catalogue follows another one itself; [`Error::Invalid`] for a URL of more
    /// than 1,000 bytes.
    pub fn yield_to(&self, successor: &Successor) -> Result<Csn> {
        let Successor { generation, promotion, url } = successor;
        if url.len() > URL_BYTES_MAX {
            return Err(Error::invalid(format!("a URL of {} bytes", url.len())));
        }
        self.connections.write_as_anyone(|sql| {
            if let Role::Follower { of } = role(sql)? {
                let what = format!("this copy does not lead the federation, but follows {of}");
                return Err(Error::denied(what).into());
            }
            let own = setting(sql, GENERATION)?.unwrap_or(0);
            let before = setting(sql, SUCCESSOR_GENERATION)?.unwrap_or(own);
            let is_again = text(sql, SUCCESSOR_PROMOTION)?.as_deref() == Some(promotion.as_str());
            if *generation <= before && !(is_again && *generation > own) {
                let by = text(sql, SUCCESSOR)?;
                let by = by.map_or(String::new(), |by| format!(", and {by} leads the federation"));
                let what = format!("generation {before} has begun already{by}");
                return Err(Error::changed(what).into());
            }
            set_text(sql, SUCCESSOR, Some(url))?;
            set_text(sql, SUCCESSOR_PROMOTION, Some(promotion))?;
            set(sql, SUCCESSOR_GENERATION, Some(*generation))?;
            raise_format(sql, FORMAT_WITH_ROLES)?;
            head(sql)
        })
    }
}

/// The last commit whose rows fit into one answer, which begins after `since`.
fn last_in_answer(sql: &SqlConnection, since: Csn, is_indexed: bool) -> SqlResult<Csn> {
    let mut last = since.0.saturating_add(COMMITS_MAX);
    for (table, commit) in LARGE_TABLES.iter().filter(|_| is_indexed) {
        let beyond = format!(
            "SELECT {commit} FROM {table} WHERE {commit} > ?1 ORDER BY {commit} LIMIT 1 OFFSET {ROWS_MAX}"
        );
        let mut beyond = sql.prepare_cached(&beyond)?;
        let beyond = beyond.query_row([signed(since.0)], |row| row.get(0)).optional()?;
        last = last.min(beyond.map_or(u64::MAX, |csn: i64| unsigned(csn) - 1));
    }
    Ok(Csn(last.max(since.0.saturating_add(1))))
}

/// The undated rows as of a commit; all rows of databases are among them, for their paths and epochs.
fn undated(sql: &SqlConnection, at: Csn) -> SqlResult<Vec<TableRows>> {
    let range = params![0, signed(at.0)];
    let mut all = vec![];
    let databases = CopiedTable::of("databases")?;
    let of = "databases t WHERE ?1 < created AND created <= ?2 ORDER BY id";
    all.push(read(sql, databases, of, range)?);
    let in_stores = if replicas::has_tables(sql)? { IN_STORES } else { &[] };
    for table in UNDATED.iter().chain(in_stores) {
        // Equal rows must have an equal mark.
        let order = table.key.join(", ");
        let of = format!("{} AND ?1 <= ?2 ORDER BY {order}", table.new);
        all.push(read(sql, table, &of, range)?);
    }
    Ok(all)
}

fn is_indexed_by_commit(sql: &SqlConnection) -> SqlResult<bool> {
    has_index(sql, "versions_by_csn")
}

/// Rows of a table; `from` is the text after `FROM`.
pub(super) fn read(
    sql: &SqlConnection,
    table: &CopiedTable,
    from: &str,
    parameters: impl Params,
) -> SqlResult<TableRows> {
    let statement = format!("SELECT {} FROM {from}", table.columns.join(", "));
    let cells = read_cells(&mut sql.prepare_cached(&statement)?, table.columns.len(), parameters)?;
    Ok(TableRows { table: table.name.to_owned(), cells })
}

/// The newest commit.
pub(super) fn head(sql: &SqlConnection) -> SqlResult<Csn> {
    let head: i64 =
        sql.query_row("SELECT coalesce(max(csn), 0) FROM commits", [], |row| row.get(0))?;
    Ok(Csn(unsigned(head)))
}

//! Many small commits in one round trip to PostgreSQL: a statement that is sent together with the request for the catalogue's
//! lock and with COMMIT, so that the lock is held only while PostgreSQL runs them.
//!
//! 1. Only commits that give containers new versions, and change nothing else, are published in this way, and only if
//!    all of them may be: their containers are at the versions that the transactions started from, no two are of one
//!    container, and the homes of their databases admit them. Otherwise nothing is changed, and the caller applies them
//!    one by one, which gives the reason if one of them is refused.
//! 2. The statement begins when the transaction has the lock of the catalogue, so the rows that it reads are still valid
//!    when it commits.
//! 3. It changes nothing if the [`barrier`](super::barrier) is not the one that its process knew when it was sent, or if
//!    the tables have a version before 4: programs that know only those do not change the barrier when they look.

use std::collections::HashSet;

use super::barrier::barrier;
use crate::clock;
use crate::commit::{Commit, CommitTouch, NewVersion};
use crate::host;
use crate::ids::Csn;
use crate::numbers::{signed, unsigned};
use crate::sql::{Parameters, PostgresRow, Row, RowResult, SqlConnection, SqlResult};

/// Inserts the rows of all commits if all of them may be published, and returns the newest commit before them, or null if it
/// has inserted none; with the barrier. A fence must be that of the database's home, and a database without a home must have
/// none. The server keeps the plan, which it may have made while the tables were empty; rows whose number is limited are found
/// by their keys alone.
const PUBLISH: &str = concat!(
    "WITH given AS (SELECT * FROM unnest(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, \
    ?16, ?17, ?18, ?19, ?20, ?21) WITH ORDINALITY AS g (server, home_epoch, server_epoch, place, database, container, \
    header_offset, header_size, header_length, footer_offset, footer_size, footer_length, \
    annex_offset, annex_size, record_offset, record_size, class_version, entries, deleted, bytes, base, number)), \
    newest AS (SELECT coalesce(max(csn), 0) AS csn, \
    (SELECT time_us FROM commits ORDER BY csn DESC LIMIT 1) AS time_us, ",
    barrier!(),
    " AS barrier FROM commits), \
    permission AS (SELECT (SELECT barrier FROM newest) = ?23 \
    AND (SELECT CAST(value AS INTEGER) FROM federation WHERE key = 'postgresql_tables') >= 4 \
    AND NOT EXISTS (SELECT 1 FROM federation WHERE key IN ('follows', 'successor') \
    OR key = 'move' AND value <> 'arrived') \
    AND coalesce(bool_and(coalesce(c.id IS NOT NULL AND c.dropped IS NULL AND d.dropped IS NULL AND d.sealed IS NULL \
    AND d.state = 'open' AND coalesce(v.csn, 0) = g.base AND coalesce(h.server, '') = g.server \
    AND coalesce(h.epoch, -1) = g.home_epoch AND coalesce(s.epoch, -1) = g.server_epoch, false)), false) AS given \
    FROM given g \
    LEFT JOIN LATERAL (SELECT c.id, c.dropped FROM containers c \
    WHERE c.database = g.database AND c.id = g.container LIMIT 1) c ON true \
    LEFT JOIN LATERAL (SELECT d.state, d.sealed, d.dropped FROM databases d WHERE d.id = g.database LIMIT 1) d ON true \
    LEFT JOIN LATERAL (SELECT v.csn FROM versions v WHERE v.database = g.database AND v.container = g.container \
    ORDER BY v.csn DESC LIMIT 1) v ON true \
    LEFT JOIN LATERAL (SELECT h.server, h.epoch FROM homes h WHERE h.database = g.database LIMIT 1) h ON true \
    LEFT JOIN LATERAL (SELECT s.epoch FROM servers s WHERE s.name = h.server LIMIT 1) s ON true), \
    new_commits AS (INSERT INTO commits (csn, transaction_uuid, time_us, message, user_name, host, pid, touched) \
    SELECT n.csn + c.place, c.transaction, greatest(n.time_us, ?22), c.message, c.author, c.host, c.pid, c.touched \
    FROM unnest(?24, ?25, ?26, ?27, ?28, ?29) WITH ORDINALITY \
    AS c (transaction, message, author, host, pid, touched, place), newest n, permission p WHERE p.given), \
    new_versions AS (INSERT INTO versions (database, container, csn, \
    header_offset, header_size, header_length, footer_offset, footer_size, footer_length, \
    annex_offset, annex_size, record_offset, record_size, class_version, entries, deleted, bytes, base) \
    SELECT g.database, g.container, n.csn + g.place, \
    g.header_offset, g.header_size, g.header_length, g.footer_offset, g.footer_size, g.footer_length, \
    g.annex_offset, g.annex_size, g.record_offset, g.record_size, g.class_version, g.entries, g.deleted, g.bytes, g.base \
    FROM given g, newest n, permission p WHERE p.given) \
    SELECT CASE WHEN p.given THEN n.csn END, n.barrier FROM newest n, permission p"
);
/// The commits of transactions, in their order.
const FIND: &str = "SELECT c.csn FROM unnest(?1) WITH ORDINALITY AS g (transaction, place) \
    JOIN LATERAL (SELECT csn FROM commits c WHERE c.transaction_uuid = g.transaction LIMIT 1) c ON true ORDER BY g.place";

/// The outcome of a group that was sent without the lock.
pub(super) enum GroupOutcome {
    Published(Vec<Csn>),
    /// The barrier has changed, so nothing was looked at. It is this one now.
    Overtaken(String),
    /// One of the commits may not be published, or no commit may be without the lock, so none of them was.
    Refused,
}

/// Whether a group may be published in one round trip, judged by its commits alone.
pub(super) fn is_of_small_commits(group: &[Commit]) -> bool {
    let mut versions = group.iter().flat_map(|commit| &commit.versions);
    let mut containers = HashSet::new();
    let is_alone = |version: &NewVersion| containers.insert((version.database, version.container));
    group.iter().all(has_versions_alone) && versions.all(is_alone)
}

/// Queues the statement that publishes such a group, in the transaction that is open on `sql`. `barrier` is the one that this
/// process knows.
pub(super) fn queue(sql: &SqlConnection, group: &[Commit], barrier: &str) -> SqlResult<()> {
    let mut of = version_columns(group);
    of.add(&clock::utc_us().into());
    of.add(&barrier.into());
    add_commit_columns(&mut of, group);
    sql.prepare_cached(PUBLISH)?.queue_with(of)
}

/// The outcome, by the statement's rows and the barrier that it was sent with.
pub(super) fn outcome(
    rows: &[PostgresRow],
    group: &[Commit],
    barrier: &str,
) -> RowResult<GroupOutcome> {
    let row = Row::Postgres(rows.first().ok_or(rusqlite::Error::QueryReturnedNoRows)?);
    let before: Option<i64> = row.get(0)?;
    let now: String = row.get(1)?;
    Ok(match before {
        Some(before) => {
            let csns = (before + 1..).map(|csn| Csn(unsigned(csn)));
            GroupOutcome::Published(csns.take(group.len()).collect())
        }
        None if now != barrier => GroupOutcome::Overtaken(now),
        None => GroupOutcome::Refused,
    })
}

/// The commits of a group that was sent together, in its order, if they are there; `None` if one is missing.
pub(super) fn find(sql: &SqlConnection, group: &[Commit]) -> SqlResult<Option<Vec<Csn>>> {
    let mut of = Parameters::none();
    of.add_blobs(group.iter().map(|commit| &commit.transaction.as_bytes()[..]));
    let csn = |row: &Row<'_>| row.get(0).map(|csn| Csn(unsigned(csn)));
    let found = sql.prepare_cached(FIND)?.query_with(of, csn)?;
    Ok((found.len() == group.len()).then_some(found))
}

/// Whether a commit makes new versions and nothing else. It must have an id, by which it is found if its answer is lost.
fn has_versions_alone(commit: &Commit) -> bool {
    let Commit { transaction, message: _, author: _, versions, .. } = commit;
    let Commit { new_databases, new_containers, new_classes, writes, link_targets, .. } = commit;
    let Commit { sealed, moved, renamed_databases, renamed_containers, .. } = commit;
    let Commit { dropped_databases, dropped_containers, reads, .. } = commit;
    !transaction.is_nil()
        && !versions.is_empty()
        && new_databases.is_empty()
        && new_containers.is_empty()
        && new_classes.is_empty()
        && writes.is_empty()
        && link_targets.is_empty()
        && sealed.is_empty()
        && moved.is_empty()
        && renamed_databases.is_empty()
        && renamed_containers.is_empty()
        && dropped_databases.is_empty()
        && dropped_containers.is_empty()
        && reads.is_empty()
}

fn add_commit_columns(to: &mut Parameters, group: &[Commit]) {
    let authors = || group.iter().map(|commit| commit.author.as_ref());
    to.add_blobs(group.iter().map(|commit| &commit.transaction.as_bytes()[..]));
    to.add_texts(group.iter().map(|commit| &*commit.message));
    to.add_texts(authors().map(|author| author.map_or(host::user_name(), |author| &*author.user)));
    to.add_texts(authors().map(|author| author.map_or(host::host_name(), |author| &*author.host)));
    let pid = |pid: u32| i64::from(pid);
    to.add_integers(
        authors().map(|author| pid(author.map_or_else(host::process_id, |author| author.pid))),
    );
    to.add_integers(group.iter().map(|commit| CommitTouch::of(commit).number()));
}

/// The columns of all versions, beginning with the fence of the database, and the place of the commit in the group, from 1.
fn version_columns(group: &[Commit]) -> Parameters {
    let versions = || {
        group.iter().zip(1_i64..).flat_map(|(commit, place)| {
            commit.versions.iter().map(move |version| (commit, place, version))
        })
    };
    let fences = || versions().map(|(commit, _, version)| commit.fence(version.database));
    let mut columns = Parameters::none();
    columns.add_texts(fences().map(|fence| fence.map_or("", |fence| &*fence.server)));
    columns.add_integers(fences().map(|fence| fence.map_or(-1, |fence| signed(fence.home_epoch))));
    columns.add_integers(fences().map(|fence| fence.map_or(-1, |it| signed(it.server_epoch))));
    columns.add_integers(versions().map(|(_, place, _)| place));
    let numbers = |version: &NewVersion| -> [i64; 17] {
        [
            version.database.0.into(),
            version.container.0.into(),
            signed(version.header.offset),
            signed(version.header.size),
            signed(version.header.length),
            signed(version.footer.offset),
            signed(version.footer.size),
            signed(version.footer.length),
            signed(version.annex.offset),
            signed(version.annex.size),
            signed(version.record.offset),
            signed(version.record.size),
            version.class_version.into(),
            signed(version.entries),
            signed(version.deleted),
            signed(version.bytes),
            signed(version.base.unwrap_or_default().0),
        ]
    };
    let rows: Vec<[i64; 17]> = versions().map(|(_, _, version)| numbers(version)).collect();
    for column in 0..17 {
        columns.add_integers(rows.iter().map(|row| row[column]));
    }
    columns
}

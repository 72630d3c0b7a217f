//! Many small commits in two round trips to PostgreSQL: one for the lock, the newest commit and the state of all containers,
//! and one that inserts all rows and commits.
//!
//! 1. Only commits that give containers new versions, and change nothing else, are published in this way, and only if
//!    all of them may be: their containers are at the versions that the transactions started from, no two are of one
//!    container, and the homes of their databases admit them. Otherwise nothing is changed, and the caller applies them
//!    one by one, which gives the reason if one of them is refused.
//! 2. The transaction has the lock of the catalogue, so the rows that it read are still valid when it commits.

use std::collections::HashSet;

use super::home_check;
use crate::clock;
use crate::commit::{Commit, CommitTouch, NewVersion};
use crate::host;
use crate::ids::Csn;
use crate::numbers::{signed, unsigned};
use crate::servers::Fence;
use crate::sql::{Parameters, Row, RowResult, SqlConnection, SqlResult};

/// For each container its newest version, 0 for none, or null if it takes no versions; with the newest commit, its time,
/// whether the users of the catalogue may change it, and the home of its database. The server keeps the plan, which it may have
/// made while the tables were empty; from limited rows of each it has no other way than by their keys.
const STATE: &str = "SELECT CASE WHEN c.id IS NOT NULL AND c.dropped IS NULL AND d.dropped IS NULL AND d.sealed IS NULL \
    AND d.state = 'open' THEN coalesce((SELECT v.csn FROM versions v WHERE v.database = k.database \
    AND v.container = k.container ORDER BY v.csn DESC LIMIT 1), 0) END, \
    (SELECT coalesce(max(csn), 0) FROM commits), \
    (SELECT time_us FROM commits ORDER BY csn DESC LIMIT 1), \
    NOT EXISTS (SELECT 1 FROM federation WHERE key IN ('follows', 'successor')), \
    h.server, h.epoch, s.epoch \
    FROM unnest(?1, ?2) WITH ORDINALITY AS k (database, container, number) \
    LEFT JOIN LATERAL (SELECT c.id, c.dropped FROM containers c \
    WHERE c.database = k.database AND c.id = k.container LIMIT 1) c ON true \
    LEFT JOIN LATERAL (SELECT d.state, d.sealed, d.dropped FROM databases d WHERE d.id = k.database LIMIT 1) d ON true \
    LEFT JOIN LATERAL (SELECT h.server, h.epoch FROM homes h WHERE h.database = k.database LIMIT 1) h ON true \
    LEFT JOIN servers s ON s.name = h.server ORDER BY k.number";
const INSERT_COMMITS: &str = "INSERT INTO commits \
    (csn, transaction_uuid, time_us, message, user_name, host, pid, touched) \
    SELECT * FROM unnest(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const INSERT_VERSIONS: &str = "INSERT INTO versions (database, container, csn, \
    header_offset, header_size, header_length, footer_offset, footer_size, footer_length, \
    annex_offset, annex_size, record_offset, record_size, class_version, entries, deleted, bytes, base) \
    SELECT * FROM unnest(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

/// The state of a container and of the catalogue.
struct State {
    /// The newest version, 0 for none; none if it takes no versions.
    head: Option<i64>,
    newest: i64,
    newest_us: Option<i64>,
    leads: bool,
    /// The server of the database's home, if it has one, and the epochs of home and server.
    home: Option<String>,
    epochs: [Option<u64>; 2],
}

/// Queues the rows of a group of commits in the transaction that is open on `sql`, and returns the CSN of each; none if
/// they must be applied one by one.
pub(super) fn apply_together(sql: &SqlConnection, group: &[Commit]) -> SqlResult<Option<Vec<Csn>>> {
    let versions: Vec<&NewVersion> = group.iter().flat_map(|commit| &commit.versions).collect();
    let mut containers = HashSet::new();
    let is_alone = |version: &&NewVersion| containers.insert((version.database, version.container));
    if !group.iter().all(has_versions_alone) || !versions.iter().all(is_alone) {
        return Ok(None);
    }
    let mut of = Parameters::none();
    of.add_integers(versions.iter().map(|version| i64::from(version.database.0)));
    of.add_integers(versions.iter().map(|version| i64::from(version.container.0)));
    let states = sql.prepare_cached(STATE)?.query_with(of, state)?;
    let may_follow = |(state, version): (&State, &&NewVersion)| {
        state.leads && state.head == Some(signed(version.base.unwrap_or_default().0))
    };
    let fences =
        group.iter().flat_map(|commit| commit.versions.iter().map(|it| commit.fence(it.database)));
    let is_admitted = |(state, fence): (&State, Option<&Fence>)| {
        home_check::admits((state.home.as_deref(), state.epochs), fence)
    };
    let Some(first) = states.first() else { return Ok(None) };
    if states.len() != versions.len()
        || !states.iter().zip(&versions).all(may_follow)
        || !states.iter().zip(fences).all(is_admitted)
    {
        return Ok(None);
    }
    let csns: Vec<Csn> =
        (first.newest + 1..).map(|csn| Csn(unsigned(csn))).take(group.len()).collect();
    let time_us = first.newest_us.unwrap_or(i64::MIN).max(clock::utc_us());
    sql.prepare_cached(INSERT_COMMITS)?.queue_with(commit_rows(group, &csns, time_us))?;
    sql.prepare_cached(INSERT_VERSIONS)?.queue_with(version_rows(group, &csns))?;
    Ok(Some(csns))
}

fn has_versions_alone(commit: &Commit) -> bool {
    let Commit { transaction: _, message: _, author: _, versions, .. } = commit;
    let Commit { new_databases, new_containers, new_classes, writes, link_targets, .. } = commit;
    let Commit { sealed, moved, renamed_databases, renamed_containers, .. } = commit;
    let Commit { dropped_databases, dropped_containers, reads, .. } = commit;
    !versions.is_empty()
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

fn state(row: &Row<'_>) -> RowResult<State> {
    let epoch = |column| row.get::<Option<i64>>(column).map(|it| it.map(unsigned));
    Ok(State {
        head: row.get(0)?,
        newest: row.get(1)?,
        newest_us: row.get(2)?,
        leads: row.get(3)?,
        home: row.get(4)?,
        epochs: [epoch(5)?, epoch(6)?],
    })
}

fn commit_rows(group: &[Commit], csns: &[Csn], time_us: i64) -> Parameters {
    let authors = || group.iter().map(|commit| commit.author.as_ref());
    let mut rows = Parameters::none();
    rows.add_integers(csns.iter().map(|csn| signed(csn.0)));
    rows.add_blobs(group.iter().map(|commit| &commit.transaction.as_bytes()[..]));
    rows.add_integers(group.iter().map(|_| time_us));
    rows.add_texts(group.iter().map(|commit| &*commit.message));
    rows.add_texts(
        authors().map(|author| author.map_or(host::user_name(), |author| &*author.user)),
    );
    rows.add_texts(
        authors().map(|author| author.map_or(host::host_name(), |author| &*author.host)),
    );
    let pid = |pid: u32| i64::from(pid);
    rows.add_integers(
        authors().map(|author| pid(author.map_or_else(host::process_id, |author| author.pid))),
    );
    rows.add_integers(group.iter().map(|commit| CommitTouch::of(commit).number()));
    rows
}

fn version_rows(group: &[Commit], csns: &[Csn]) -> Parameters {
    let of_one = |(commit, csn): (&Commit, &Csn)| {
        let csn = *csn;
        let rows: Vec<_> = commit.versions.iter().map(|it| (it.to_row(csn), it.base)).collect();
        rows
    };
    let versions: Vec<_> = group.iter().zip(csns).flat_map(of_one).collect();
    let columns = versions.iter().map(|(row, base)| {
        [
            row.database.0.into(),
            row.container.0.into(),
            signed(row.csn.0),
            signed(row.header.offset),
            signed(row.header.size),
            signed(row.header.length),
            signed(row.footer.offset),
            signed(row.footer.size),
            signed(row.footer.length),
            signed(row.annex.offset),
            signed(row.annex.size),
            signed(row.record.offset),
            signed(row.record.size),
            row.class_version.into(),
            signed(row.entries),
            signed(row.deleted),
            signed(row.bytes),
            signed(base.unwrap_or_default().0),
        ]
    });
    let rows: Vec<[i64; 18]> = columns.collect();
    let mut parameters = Parameters::none();
    for column in 0..18 {
        parameters.add_integers(rows.iter().map(|row| row[column]));
    }
    parameters
}

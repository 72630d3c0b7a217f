//! Look-ups for people: all containers of a snapshot in one list, the commits page by page, the changes of one commit,
//! the growth of the federation, and its settings.
//!
//! Each look-up is one statement over the whole catalogue, which takes a fraction of a second for 10^5 containers; none
//! is for programs that read data.

use std::collections::BTreeMap;

use super::LocalCatalogue;
use super::decode::{commit_row, database_state, number};
use super::lookup::COMMIT;
use crate::error::Result;
use crate::ids::Csn;
use crate::numbers::signed;
use crate::rows::{CommitAction, CommitChange, CommitRow, ContainerSummary, GrowthPoint};
use crate::sql::{Row, RowResult};

/// `?1` is the snapshot.
const CONTAINERS: &str = "SELECT m.name, \
    CASE WHEN d.sealed <= ?1 THEN 'sealed' ELSE d.state END, coalesce(n.name, ''), \
    coalesce(c.class, ''), coalesce(v.class_version, c.class_version, 0), \
    coalesce(v.entries - v.deleted, 0), coalesce(v.bytes, 0), coalesce(v.csn, c.created, d.created) \
    FROM database_names m JOIN databases d ON d.id = m.database \
    LEFT JOIN container_names n ON n.database = d.id AND n.since <= ?1 \
     AND (n.until IS NULL OR n.until > ?1) \
    LEFT JOIN containers c ON c.database = n.database AND c.id = n.container \
    LEFT JOIN versions v ON v.database = c.database AND v.container = c.id AND v.csn = \
     (SELECT max(w.csn) FROM versions w WHERE w.database = c.database AND w.container = c.id AND w.csn <= ?1) \
    WHERE m.since <= ?1 AND (m.until IS NULL OR m.until > ?1) ORDER BY m.database, n.container";

/// `?1` is the commit. A container that was dropped, alone or with its database, is shown with its last name.
const CHANGED_CONTAINERS: &str = "SELECT m.name, n.name, c.class, \
    CASE WHEN ?1 IN (c.dropped, d.dropped) THEN 'dropped' WHEN c.created = ?1 THEN 'created' \
     WHEN n.since = ?1 THEN 'renamed' ELSE 'changed' END, \
    CASE WHEN v.csn IS NULL AND c.dropped IS DISTINCT FROM ?1 AND d.dropped IS DISTINCT FROM ?1 THEN 0 \
     ELSE coalesce(v.entries - v.deleted, 0) - coalesce(p.entries - p.deleted, 0) END, \
    CASE WHEN v.csn IS NULL AND c.dropped IS DISTINCT FROM ?1 AND d.dropped IS DISTINCT FROM ?1 THEN 0 \
     ELSE coalesce(v.bytes, 0) - coalesce(p.bytes, 0) END \
    FROM containers c JOIN databases d ON d.id = c.database \
    JOIN container_names n ON n.database = c.database AND n.container = c.id AND n.since <= ?1 \
     AND (n.until IS NULL OR n.until > ?1 OR (n.until = ?1 AND c.dropped = ?1)) \
    JOIN database_names m ON m.database = c.database AND m.since <= ?1 \
     AND (m.until IS NULL OR m.until > ?1 OR (m.until = ?1 AND d.dropped = ?1)) \
    LEFT JOIN versions v ON v.database = c.database AND v.container = c.id AND v.csn = ?1 \
    LEFT JOIN versions p ON p.database = c.database AND p.container = c.id AND p.csn = \
     (SELECT max(w.csn) FROM versions w WHERE w.database = c.database AND w.container = c.id AND w.csn < ?1) \
    WHERE v.csn IS NOT NULL OR n.since = ?1 OR ?1 IN (c.dropped, d.dropped) ORDER BY c.database, c.id";
const CHANGED_DATABASES: &str = "SELECT m.name, '', '', \
    CASE WHEN d.dropped = ?1 THEN 'dropped' WHEN d.created = ?1 THEN 'created' \
     WHEN d.sealed = ?1 THEN 'sealed' ELSE 'renamed' END, 0, 0 \
    FROM databases d JOIN database_names m ON m.database = d.id AND m.since <= ?1 \
     AND (m.until IS NULL OR m.until > ?1 OR (m.until = ?1 AND d.dropped = ?1)) \
    WHERE m.since = ?1 OR d.dropped = ?1 OR d.sealed = ?1 ORDER BY d.id";

/// Commits that are looked through at a time.
const COMMITS_AT_ONCE: i64 = 256;

const SETTINGS: &str = "SELECT key, value FROM federation";

const SIZES: &str = "SELECT v.csn, v.entries - v.deleted, v.bytes, v.database, v.container, \
    coalesce(c.dropped, d.dropped) FROM versions v \
    JOIN containers c ON c.database = v.database AND c.id = v.container \
    JOIN databases d ON d.id = v.database ORDER BY v.database, v.container, v.csn";

impl LocalCatalogue {
    /// The settings of the federation by key; docs/format.md lists the keys.
    pub fn settings(&self) -> Result<BTreeMap<String, String>> {
        let rows = self.all(SETTINGS, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.into_iter().collect())
    }

    /// All containers of a snapshot, ordered by database. A database without containers has one row, whose container
    /// name is empty.
    pub fn listed_containers(&self, at: Csn) -> Result<Vec<ContainerSummary>> {
        self.all(CONTAINERS, [signed(at.0)], |row| {
            Ok(ContainerSummary {
                database: row.get(0)?,
                state: database_state(row, 1)?,
                container: row.get(2)?,
                class: row.get(3)?,
                class_version: row.get(4)?,
                objects: number(row, 5)?,
                bytes: number(row, 6)?,
                csn: Csn(number(row, 7)?),
            })
        })
    }

    /// The newest `limit` commits not later than `at` with `text` in their message or author (`user@host`), in capital or
    /// small letters; the newest first.
    pub fn commits_until(&self, at: Csn, text: &str, limit: usize) -> Result<Vec<CommitRow>> {
        // SQLite changes the case of ASCII letters alone.
        let text = text.to_lowercase();
        let has_text = |row: &CommitRow| {
            text.is_empty()
                || row.message.to_lowercase().contains(&text)
                || format!("{}@{}", row.user, row.host).to_lowercase().contains(&text)
        };
        let (mut found, mut before) = (vec![], signed(at.0).saturating_add(1));
        let commits = format!("{COMMIT} WHERE csn < ?1 ORDER BY csn DESC LIMIT ?2");
        while found.len() < limit {
            let wanted = if text.is_empty() { signed(limit as u64) } else { COMMITS_AT_ONCE };
            let some = self.all(&commits, [before, wanted.min(COMMITS_AT_ONCE)], commit_row)?;
            let Some(last) = some.last() else { break };
            before = signed(last.csn.0);
            found.extend(some.into_iter().filter(has_text));
        }
        found.truncate(limit);
        Ok(found)
    }

    /// The changes that a commit made to databases and containers.
    pub fn changes_of_commit(&self, csn: Csn) -> Result<Vec<CommitChange>> {
        self.commit_by_csn(csn)?;
        let mut changes = self.all(CHANGED_DATABASES, [signed(csn.0)], change)?;
        changes.extend(self.all(CHANGED_CONTAINERS, [signed(csn.0)], change)?);
        // Asked after the look-ups, so that a vacuum meanwhile is noticed.
        if !self.snapshot_exists(Csn(csn.0.saturating_sub(1)))? {
            for change in &mut changes {
                (change.objects, change.bytes) = (None, None);
            }
        }
        Ok(changes)
    }

    /// The objects and bytes of the whole federation over time. The commits are divided into at most `points` spans of
    /// equally many; each span gives the state after its last commit that changed them. Versions that vacuum has
    /// removed are not included.
    pub fn growth(&self, points: usize) -> Result<Vec<GrowthPoint>> {
        let mut growth = GrowthSums::of(self.head()?, points);
        self.read(|sql| {
            let mut statement = sql.prepare_cached(SIZES)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let (size, dropped) = size_row(&row)?;
                growth.add_version(size, dropped);
            }
            Ok(())
        })?;
        growth.end_container();
        let mut total = (0, 0);
        let totals = growth.spans.into_values().map(|(csn, (objects, bytes))| {
            total = (total.0 + objects, total.1 + bytes);
            self.point(csn, total)
        });
        totals.collect()
    }

    fn point(&self, csn: u64, (objects, bytes): (i64, i64)) -> Result<GrowthPoint> {
        let time_us = self.commit_by_csn(Csn(csn))?.time_us;
        let natural = |sum: i64| u64::try_from(sum).unwrap_or(0);
        Ok(GrowthPoint { csn: Csn(csn), time_us, objects: natural(objects), bytes: natural(bytes) })
    }
}

/// A version's objects and bytes.
struct SizeRow {
    csn: u64,
    sizes: (i64, i64),
    container: (u32, u32),
}

fn size_row(row: &Row<'_>) -> RowResult<(SizeRow, Option<u64>)> {
    let size = SizeRow {
        csn: number(row, 0)?,
        sizes: (row.get(1)?, row.get(2)?),
        container: (row.get(3)?, row.get(4)?),
    };
    Ok((size, row.get::<Option<i64>>(5)?.map(crate::numbers::unsigned)))
}

/// The sizes that the commits of each span added to the federation, however many versions there are.
struct GrowthSums {
    commits_in_span: u64,
    /// By span: the last commit that changed a size, and the objects and bytes added (negative: removed).
    spans: BTreeMap<u64, (u64, (i64, i64))>,
    /// The newest version so far of the container that is being added, and the commit that dropped the container.
    last: Option<(SizeRow, Option<u64>)>,
}

impl GrowthSums {
    fn of(head: Csn, points: usize) -> Self {
        let commits_in_span = head.0.div_ceil(points.max(1) as u64).max(1);
        GrowthSums { commits_in_span, spans: BTreeMap::new(), last: None }
    }

    fn add(&mut self, csn: u64, (objects, bytes): (i64, i64)) {
        let span = csn.saturating_sub(1) / self.commits_in_span;
        let (last, sum) = self.spans.entry(span).or_default();
        *last = csn.max(*last);
        *sum = (sum.0 + objects, sum.1 + bytes);
    }

    /// Adds a version. Those of a container follow each other, the oldest first.
    fn add_version(&mut self, size: SizeRow, dropped: Option<u64>) {
        let before = match &self.last {
            Some((before, _)) if before.container == size.container => before.sizes,
            _ => {
                self.end_container();
                (0, 0)
            }
        };
        self.add(size.csn, (size.sizes.0 - before.0, size.sizes.1 - before.1));
        self.last = Some((size, dropped));
    }

    /// Subtracts the last sizes of a container at the commit that dropped it.
    fn end_container(&mut self) {
        if let Some((SizeRow { sizes: (objects, bytes), .. }, Some(dropped))) = self.last.take() {
            self.add(dropped, (-objects, -bytes));
        }
    }
}

fn change(row: &Row<'_>) -> RowResult<CommitChange> {
    let kind: String = row.get(3)?;
    Ok(CommitChange {
        database: row.get(0)?,
        container: row.get(1)?,
        class: row.get(2)?,
        kind: match kind.as_str() {
            "created" => CommitAction::Created,
            "dropped" => CommitAction::Dropped,
            "renamed" => CommitAction::Renamed,
            "sealed" => CommitAction::Sealed,
            _ => CommitAction::Changed,
        },
        objects: row.get(4)?,
        bytes: row.get(5)?,
    })
}

//! The answers of a leader's catalogue to followers, with and without indexes for them, and their division into parts.

use std::fs;

use femtobarn_catalog::{Csn, ErrorKind, LocalCatalogue, OwnChanges};
use rusqlite::Connection;

use crate::federation::Federation;

#[test]
fn a_follower_is_answered_with_indexes_and_without() {
    let fed = Federation::new();
    let events = fed.container("events");
    let head = fed.publish(events, None, 7).unwrap();
    let Federation { catalog, folder, keep: _keep, .. } = fed;
    drop(catalog);
    let indexes = || -> u32 {
        let sql = Connection::open(folder.join("catalogue.sqlite")).unwrap();
        let text = "SELECT count(*) FROM sqlite_schema WHERE name IN ('containers_by_created', \
             'containers_by_dropped', 'container_names_by_since', 'container_names_by_until', \
             'link_targets_by_csn', 'versions_by_csn')";
        sql.query_row(text, [], |row| row.get(0)).unwrap()
    };
    let (turn, aside) = (folder.join("locks/commit"), folder.join("locks/aside"));
    // The catalogue cannot be written.
    fs::rename(&turn, &aside).unwrap();
    fs::create_dir(&turn).unwrap();
    let catalog = LocalCatalogue::open(&folder).unwrap();
    let rows = catalog.rows_since(Csn::ZERO, None, false).unwrap();
    assert_eq!((rows.at, rows.versions().unwrap().len()), (head, 1));
    assert!(catalog.create_tag("draft", head, "").is_err());
    fs::remove_dir(&turn).unwrap();
    fs::rename(&aside, &turn).unwrap();
    // The indexes are tried again later.
    assert_eq!(catalog.rows_since(Csn::ZERO, None, false).unwrap(), rows);
    drop(catalog);
    assert_eq!(indexes(), 0);
    let catalog = LocalCatalogue::open(&folder).unwrap();
    assert_eq!(catalog.rows_since(Csn::ZERO, None, false).unwrap(), rows);
    drop(catalog);
    assert_eq!(indexes(), 6);
}

/// Containers that each of [`MANY_COMMITS`] commits has a version of.
const MANY_CONTAINERS: u32 = 400;
const MANY_COMMITS: u64 = 300;

/// A federation whose last commits have 120,000 versions.
fn with_many_versions() -> Federation {
    let fed = Federation::new();
    let sql = Connection::open(fed.folder.join("catalogue.sqlite")).unwrap();
    let made = format!(
        "CREATE TEMP TABLE new_containers AS \
           WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY_CONTAINERS}) \
           SELECT i FROM n; \
         CREATE TEMP TABLE new_commits AS \
           WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i <= {MANY_COMMITS}) \
           SELECT i FROM n; \
         BEGIN; \
         INSERT INTO commits SELECT i, randomblob(16), 0, '', '', '', 1 FROM new_commits; \
         INSERT INTO containers SELECT {database}, i, 'Event', 1, '{{}}', 2, NULL FROM new_containers; \
         INSERT INTO container_names SELECT {database}, i, 'c' || i, 2, NULL FROM new_containers; \
         INSERT INTO versions SELECT {database}, c.i, t.i, 100, 200, 300, 400, 500, 600, 0, 0, 0, 0, 1, t.i, 0, 8 \
           FROM new_commits t, new_containers c; \
         COMMIT;",
        database = fed.database
    );
    sql.execute_batch(&made).unwrap();
    fed
}

#[test]
fn many_versions_come_in_parts() {
    let fed = with_many_versions();
    let head = fed.catalog.head().unwrap();
    assert_eq!(head, Csn(MANY_COMMITS + 1));
    // No rows are left of the snapshots before the last commit.
    fed.catalog.raise_horizon(head).unwrap();
    let whole = fed.catalog.rows_since(Csn::ZERO, None, false).unwrap();
    assert_eq!(whole.at, head, "a follower with snapshots goes from one to another");
    let folder = fed.keep.path().join("copy.fed");
    let (copy, is_new) =
        LocalCatalogue::prepare_follower(&folder, "lhc", fed.catalog.uuid()).unwrap();
    copy.follow("root://leader//lhc.fed", is_new).unwrap();
    let mut parts = 0;
    while copy.head().unwrap() < head {
        // As after a kill: the applied rows exist.
        let copy = LocalCatalogue::open(&folder).unwrap();
        assert!(copy.is_beginning().unwrap());
        let since = copy.head().unwrap();
        let rows = fed.catalog.rows_since(since, None, true).unwrap();
        assert!(rows.versions().unwrap().len() <= 50_000);
        assert!(rows.at > since);
        copy.apply_leader_rows(since, &[&rows], &OwnChanges::default()).unwrap();
        parts += 1;
        if rows.at < head {
            assert_eq!(copy.pin_head().unwrap_err().kind(), ErrorKind::Unavailable);
            assert!(!copy.snapshot_exists(rows.at).unwrap());
        }
    }
    assert_eq!(parts, 3);
    assert!(!copy.is_beginning().unwrap());
    assert_eq!(copy.pin_head().unwrap().0, head);
    let all = |catalog: &LocalCatalogue| catalog.all_versions(fed.database).unwrap();
    assert!(all(&copy) == all(&fed.catalog));
    assert_eq!(all(&copy).len(), 120_000);
}

//! What a leader's catalogue answers to followers, whether or not it can get indexes for them.

use std::fs;

use femtobarn_catalog::{Csn, LocalCatalogue};
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
    // Nothing can be written.
    fs::rename(&turn, &aside).unwrap();
    fs::create_dir(&turn).unwrap();
    let catalog = LocalCatalogue::open(&folder).unwrap();
    let rows = catalog.rows_since(Csn::ZERO, None).unwrap();
    assert_eq!((rows.at, rows.versions().unwrap().len()), (head, 1));
    assert!(catalog.create_tag("draft", head, "").is_err());
    fs::remove_dir(&turn).unwrap();
    fs::rename(&aside, &turn).unwrap();
    // It is tried again later.
    assert_eq!(catalog.rows_since(Csn::ZERO, None).unwrap(), rows);
    drop(catalog);
    assert_eq!(indexes(), 0);
    let catalog = LocalCatalogue::open(&folder).unwrap();
    assert_eq!(catalog.rows_since(Csn::ZERO, None).unwrap(), rows);
    drop(catalog);
    assert_eq!(indexes(), 6);
}

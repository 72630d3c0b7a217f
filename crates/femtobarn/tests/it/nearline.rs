//! Errors for readers of a database whose file is not on the disk name its place.

use std::fs;

use femtobarn::ErrorKind;
use femtobarn_catalog::{Csn, DiskState, ReplicaRow, ReplicaState};

use crate::support::{federation, reopened, with_ten_events};

#[test]
fn a_killed_migration_does_not_hide_a_good_copy_of_a_lost_file() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    // Else the catalogue has the whole file in its log.
    federation.end_writes();
    fs::remove_file(folder.path().join("test.fed/databases/run7.root")).unwrap();
    let catalog = federation.catalog().local().unwrap();
    let database = catalog.database("run7", Csn::MAX).unwrap().id;
    let kind = || {
        let snapshot = reopened(&folder).snapshot(None).unwrap();
        snapshot.view("run7/events").err().unwrap().kind()
    };
    let record = |store: &str, state| {
        let copy = ReplicaRow {
            database,
            store: store.to_owned(),
            key: store.to_owned(),
            state,
            size: 5,
            checksum: String::new(),
            as_of: Csn(1),
            tape: None,
            changed_us: 0,
        };
        catalog.record_replica(&copy).unwrap();
    };
    record("mirror", ReplicaState::Migrating);
    assert_eq!(kind(), ErrorKind::NotFound, "no store has it");
    record("tape", ReplicaState::Complete);
    assert_eq!(kind(), ErrorKind::Unavailable);
    record("tape", ReplicaState::Lost);
    catalog.record_disk_state(database, DiskState::Staging).unwrap();
    assert_eq!(kind(), ErrorKind::Corrupt);
}

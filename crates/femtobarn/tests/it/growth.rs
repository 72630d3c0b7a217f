//! Memory and open files of a process are bounded, whatever the size of the federation.

use std::path::Path;

use femtobarn::{CheckLevel, ContainerOptions, ErrorKind, Federation};

use crate::support::{begin, event_class, events, federation, number, numbers, reopened};

/// Files in the federation's folder of databases that this process has open.
fn open_files(federation: &Federation) -> usize {
    let databases = federation.folder().join("databases");
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let target = |it: std::fs::DirEntry| std::fs::read_link(it.path()).ok();
    let is_inside = |path: &std::path::PathBuf| path.starts_with(Path::new(&databases));
    open.filter_map(|it| target(it.unwrap())).filter(is_inside).count()
}

/// Creates databases with one event each, one after the other.
fn create_databases(federation: &Federation, count: u64) {
    for number in 0..count {
        let mut transaction = begin(federation);
        let database = transaction.create_database(&format!("run{number}")).unwrap();
        let options = ContainerOptions::default();
        let key = transaction.create_container(database, "events", &event_class(), options);
        transaction.extend(key.unwrap(), events(7, number, 1)).unwrap();
        transaction.commit().unwrap();
    }
}

#[test]
fn writing_to_many_databases_keeps_few_files_open() {
    let (folder, federation) = federation();
    create_databases(&federation, 150);
    assert!(open_files(&federation) < 100, "{} files are open", open_files(&federation));
    for number in [0, 149] {
        let mut transaction = begin(&federation);
        let database = transaction.database(&format!("run{number}")).unwrap();
        let key = transaction.container(database, "events").unwrap();
        transaction.extend(key, events(7, 1000 + number, 1)).unwrap();
        transaction.commit().unwrap();
        assert_eq!(numbers(&federation, &format!("run{number}/events")), [number, 1000 + number]);
    }
    // The unused rest of each extent has been given back: the files are as short as they can be.
    let file = folder.path().join("test.fed/databases/run70.root");
    assert!(file.metadata().unwrap().len() < 16 << 10);
    drop(federation);
    assert_eq!(numbers(&reopened(&folder), "run149/events"), [149, 1149]);
}

#[test]
fn space_set_aside_is_used_and_the_rest_given_back() {
    const ASIDE: u64 = 20 << 20;
    let (folder, federation) = federation();
    let file = folder.path().join("test.fed/databases/run7.root");
    let size = || file.metadata().unwrap().len();
    let mut transaction = begin(&federation);
    let database = transaction.create_database("run7").unwrap();
    let refused = transaction.reserve(database, 2_000_000_000).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    transaction.reserve(database, ASIDE).unwrap();
    let reserved = size();
    assert!(reserved > ASIDE);
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "events", &event_class(), options).unwrap();
    transaction.extend(key, events(7, 0, 100_000)).unwrap();
    transaction.commit().unwrap();
    // The next transactions write into the same space; the second reserves as much again.
    for (first, aside) in [(100_000, 0), (200_000, ASIDE)] {
        let mut transaction = begin(&federation);
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, "events").unwrap();
        transaction.reserve(database, aside).unwrap();
        transaction.extend(key, events(7, first, 100_000)).unwrap();
        transaction.commit().unwrap();
        assert_eq!(size() > reserved, aside > 0);
    }
    drop(federation);
    assert!(size() < reserved, "{} bytes are left", size());
    let federation = reopened(&folder);
    assert!(numbers(&federation, "run7/events").into_iter().eq(0..300_000));
    assert!(federation.check(CheckLevel::Full, &mut |_| true).unwrap().problems.is_empty());
}

#[test]
fn containers_created_in_one_transaction_have_distinct_numbers() {
    let (_folder, federation) = federation();
    let mut made = std::collections::BTreeSet::new();
    for round in 0..2 {
        let mut transaction = begin(&federation);
        let database = match round {
            0 => transaction.create_database("run7").unwrap(),
            _ => transaction.database("run7").unwrap(),
        };
        for number in 0..40 {
            let name = format!("c{round}-{number}");
            let options = ContainerOptions::default();
            let key = transaction.create_container(database, &name, &event_class(), options);
            let key = key.unwrap();
            assert!(made.insert(key.container));
            assert_eq!(transaction.find_container(database, &name).unwrap(), Some(key));
        }
        assert_eq!(transaction.find_container(database, "c9-9").unwrap(), None);
        transaction.commit().unwrap();
    }
    let containers = federation.snapshot(None).unwrap();
    let database = containers.databases().unwrap()[0].id;
    assert_eq!(containers.containers(database).unwrap().len(), made.len());
}

#[test]
fn reading_many_databases_keeps_few_files_open() {
    let (folder, federation) = federation();
    create_databases(&federation, 300);
    drop(federation);
    let federation = reopened(&folder);
    let snapshot = federation.snapshot(None).unwrap();
    let path = |number: u64| format!("run{number}/events");
    let views: Vec<_> = (0..300).map(|number| snapshot.view(&path(number)).unwrap()).collect();
    assert!(open_files(&federation) <= 256, "{} files are open", open_files(&federation));
    for (event, view) in (0..).zip(&views) {
        assert_eq!(number(&view.value(0).unwrap()), event);
    }
    assert!(open_files(&federation) <= 256, "{} files are open", open_files(&federation));
}

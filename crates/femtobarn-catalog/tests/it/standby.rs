//! A primary server of PostgreSQL with a synchronous standby, which takes its place.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use femtobarn_catalog::{Commit, Csn, ErrorKind, LocalCatalogue};
use uuid::Uuid;

use crate::postgres::Postgres;
use crate::storm::Storm;

#[test]
fn a_standby_that_is_promoted_has_all_that_was_acknowledged() {
    let Some(mut primary) = Postgres::start() else { return };
    let mut standby = primary.start_standby();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let hosts = format!("{},{}", primary.folder().display(), standby.folder().display());
    let url = format!("postgresql://postgres@/postgres?host={hosts}");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &url).unwrap();
    let mut storm = Storm::new(&catalog, "run7", 4);
    storm.during(&catalog, || thread::sleep(Duration::from_millis(300)));

    // Opened where only a standby answers.
    let beside = folder.path().join("beside.fed");
    std::fs::create_dir(&beside).unwrap();
    let address = std::fs::read_to_string(place.join("catalogue.toml")).unwrap();
    let of_standby = address.replace(&hosts, standby.folder().to_str().unwrap());
    std::fs::write(beside.join("catalogue.toml"), of_standby).unwrap();
    let reader = LocalCatalogue::open(&beside).unwrap();
    assert!(reader.is_read_only());
    assert!(reader.head().unwrap() > Csn::ZERO);
    let there = reader.commit_by_csn(Csn(1)).unwrap().transaction;
    assert_eq!(reader.find_commit(there, Csn::ZERO).unwrap(), Some(Csn(1)));
    let unknown = reader.find_commit(Uuid::from_u128(7), Csn::ZERO).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unavailable, "{unknown}");

    let is_cancelled = |primary: &mut Postgres| {
        let waits = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        while primary.psql(waits) == "0" {
            thread::sleep(Duration::from_millis(20));
        }
    };
    is_acknowledged_when_the_standby_has_it(&catalog, &mut primary, &mut standby, is_cancelled);
    let restarts = |primary: &mut Postgres| {
        while primary.psql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
            == "0"
        {
            thread::sleep(Duration::from_millis(20));
        }
        primary.crash();
        primary.start_again();
    };
    is_acknowledged_when_the_standby_has_it(&catalog, &mut primary, &mut standby, restarts);

    let promoted = storm.during(&catalog, || {
        thread::sleep(Duration::from_millis(300));
        primary.kill();
        thread::sleep(Duration::from_millis(200));
        standby.promote();
        let promoted = Instant::now();
        thread::sleep(Duration::from_secs(1));
        promoted
    });
    let first = storm.first_after(promoted).into_iter().max().unwrap();
    let after = first.duration_since(promoted);
    eprintln!("all writers had gone on {} ms after the promotion", after.as_millis());
    assert!(after < Duration::from_secs(10));
    storm.check(&catalog);
    while reader.is_read_only() {
        thread::sleep(Duration::from_millis(100));
    }
    let csn = reader.commit(Commit::default()).unwrap();
    assert_eq!(catalog.head().unwrap(), csn);
}

/// A COMMIT that waits for the standby, and whose wait something ends, is not acknowledged before the standby is back.
fn is_acknowledged_when_the_standby_has_it(
    catalog: &LocalCatalogue,
    primary: &mut Postgres,
    standby: &mut Postgres,
    ends_wait: impl FnOnce(&mut Postgres),
) {
    standby.crash();
    let head = catalog.head().unwrap();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        scope.spawn(move || tell.send(catalog.commit(Commit::default()).unwrap()).unwrap());
        ends_wait(primary);
        assert!(told.recv_timeout(Duration::from_millis(700)).is_err());
        standby.start_again();
        assert_eq!(told.recv().unwrap(), Csn(head.0 + 1));
    });
}

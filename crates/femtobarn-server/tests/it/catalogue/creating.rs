//! Many databases that remote clients create.
//!
//! The front of a new file is sent over `root://`, and the call that lengthens the file over gRPC. The second once
//! overtook the first, saw an empty file, and allocated the bytes of the front for data: of 150 databases with a
//! few objects, 49 had no front. Their objects could be read, since the catalogue knows their locations, but the
//! files were not ROOT files any more.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use femtobarn::{
    CheckLevel, CompactOptions, ContainerOptions, ErrorKind, Federation, TransactionOptions,
    VacuumOptions,
};
use femtobarn_server::Server;
use femtobarn_server::physical::{Call, CallKind, Gate, Gated, StorageResult};
use rntuple::tfile::FileIdentity;

use super::Stage;
use super::engine::{config, events, numbers, open};
use super::fencing::class;
use crate::ending::EndsOthers;

/// The number of databases that each of three writers creates.
fn each() -> u64 {
    if std::env::var_os("FEMTOBARN_LONG").is_some() { 1500 } else { 50 }
}

/// Creates a database with two containers of `events_each` events.
fn make(federation: &Federation, name: &str, events_each: u64) {
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.create_database(name).unwrap();
    for container in ["a", "b"] {
        let options = ContainerOptions::default();
        let key = transaction.create_container(database, container, &class(), options).unwrap();
        transaction.extend(key, events(0..events_each)).unwrap();
    }
    transaction.commit().unwrap();
}

/// Fails unless every database has its own front and can be read completely.
fn check(federation: &Federation, place: &Path) {
    for row in federation.snapshot(None).unwrap().databases().unwrap() {
        let bytes = std::fs::read(place.join(&row.path)).unwrap();
        let identity = FileIdentity::read(&bytes).unwrap();
        assert_eq!(&identity.uuid, row.uuid.as_bytes(), "the front of {}", row.name);
    }
    let report = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
    assert_eq!(report.problems, []);
}

/// Delays writes.
struct Late;

impl Gate for Late {
    fn pass(&self, call: Call<'_>) -> StorageResult<usize> {
        if call.kind == CallKind::Write {
            thread::sleep(Duration::from_millis(20));
        }
        Ok(call.size)
    }
}

#[test]
fn file_extension_waits_for_a_late_front() {
    let stage = Stage::new();
    let (remote, _files) = stage.engine(Arc::new(Gated::new(stage.files(), Late)));
    (0..3).for_each(|number| make(&remote, &format!("late{number}"), 5));
    let local = Federation::open(&stage.place()).unwrap();
    for number in 0..3 {
        let bytes = std::fs::read(stage.place().join(format!("databases/late{number}.root")));
        assert!(FileIdentity::read(&bytes.unwrap()).is_ok(), "late{number}");
        assert!(numbers(&local, &format!("late{number}/b")).into_iter().eq(0..5));
    }
}

/// The file of a database that was dropped or renamed keeps its path until a vacuum. A new database of that
/// name gets another path; a remote client was once refused with 'it is not the file of database 2'.
#[test]
fn remote_client_reuses_a_name_after_a_drop_or_rename() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    let local = Federation::create(&place, "test").unwrap();
    let server = Server::start(config(&place, 0)).unwrap();
    let remote = open(server.address().port());
    make(&remote, "run7", 5);
    for (turn, name) in [(6, "old"), (7, "older")] {
        let mut transaction = remote.transaction(TransactionOptions::default()).unwrap();
        transaction.rename_database("run7", name).unwrap();
        transaction.commit().unwrap();
        make(&remote, "run7", turn);
        assert!(numbers(&remote, "run7/b").into_iter().eq(0..turn));
        let mut transaction = remote.transaction(TransactionOptions::default()).unwrap();
        transaction.drop_database("run7").unwrap();
        transaction.commit().unwrap();
        make(&remote, "run7", turn);
    }
    assert!(numbers(&local, "old/a").into_iter().eq(0..5));
    check(&local, &place);
}

#[test]
fn remote_databases_are_intact_beside_vacuum_backup_compaction_and_sealing() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    let local = Federation::create(&place, "test").unwrap();
    let server = Server::start(config(&place, 0)).unwrap();
    let port = server.address().port();
    let (is_over, each) = (AtomicBool::new(false), each());
    thread::scope(|scope| {
        let upkeep = scope.spawn(|| {
            let mut turn = 0;
            while !is_over.load(Ordering::SeqCst) {
                turn += 1;
                keep_up(&local, folder.path(), turn);
            }
        });
        let ends = EndsOthers(&is_over);
        let make_all = |writer: u64| {
            let remote = open(port);
            for number in 0..each {
                make(
                    &remote,
                    &format!("run{writer}_{number}"),
                    [5, 5, 20_000][number as usize % 3],
                );
            }
        };
        let writers: Vec<_> = (0..3).map(|writer| scope.spawn(move || make_all(writer))).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        drop(ends);
        upkeep.join().unwrap();
    });
    assert_eq!(local.snapshot(None).unwrap().databases().unwrap().len() as u64, 3 * each);
    check(&local, &place);
}

/// Maintenance by an operator meanwhile. Databases that are locked are left out.
fn keep_up(local: &Federation, folder: &Path, turn: u64) {
    let watch = &mut |_: &femtobarn::Progress| true;
    let is_passing = |error: femtobarn::Error| {
        let kind = error.kind();
        assert!(matches!(kind, ErrorKind::Busy | ErrorKind::Conflict), "{kind:?}: {error}");
    };
    let databases = local.snapshot(None).unwrap().databases().unwrap();
    let vacuum = VacuumOptions { keep_from: local.head().ok(), ..VacuumOptions::default() };
    local.vacuum(&vacuum, watch).map(drop).unwrap_or_else(is_passing);
    if let Some(row) = databases.get(turn as usize * 7 % databases.len().max(1)) {
        let options = CompactOptions { all: true, ..CompactOptions::default() };
        local.compact(&row.name, &options, watch).map(drop).unwrap_or_else(|error| {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        });
        local.seal(&row.name, Duration::ZERO).map(drop).unwrap_or_else(|error| {
            let kind = error.kind();
            assert!(matches!(kind, ErrorKind::Busy | ErrorKind::Closed), "{kind:?}: {error}");
        });
    }
    if turn.is_multiple_of(8) {
        let to = folder.join(format!("backup{turn}"));
        local.backup(&to, None, watch).map(drop).unwrap_or_else(is_passing);
    }
}

//! Small commits of clients: the server writes their bytes, which are durable with the catalogue's log.

use std::fs;

use femtobarn::{ContainerOptions, Federation, TransactionOptions};
use femtobarn_catalog::{Catalogue, Commit, Csn, DatabaseId, ErrorKind, FileWrite};
use femtobarn_server::Server;

use super::engine::{append, class, config, create, events, numbers, open};
use super::{LONG, Stage};

const FILE: &str = "databases/run7.root";

#[test]
fn bytes_of_small_commits_of_clients_survive_a_crash_of_the_servers_machine() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    drop(Federation::create(&place, "test").unwrap());
    let server = Server::start(config(&place, 0)).unwrap();
    let remote = open(server.address().port());
    create(&remote, "run7", ["events".to_owned()].into_iter());
    append(&remote, "run7", "events", 0..10).unwrap();
    let synced = fs::read(place.join(FILE)).unwrap();
    for number in 10..30 {
        append(&remote, "run7", "events", number..number + 1).unwrap();
    }
    let committed = fs::read(place.join(FILE)).unwrap();
    assert!(synced.len() == committed.len() && synced != committed);
    // The state after a crash: the catalogue with its log, and the file as of its last sync.
    let crashed = folder.path().join("crashed/test.fed");
    fs::create_dir_all(crashed.join("databases")).unwrap();
    for name in ["catalogue.sqlite", "catalogue.sqlite-wal"] {
        fs::copy(place.join(name), crashed.join(name)).unwrap();
    }
    fs::write(crashed.join(FILE), synced).unwrap();
    let server = Server::start(config(&crashed, 0)).unwrap();
    assert_eq!(numbers(&open(server.address().port()), "run7/events"), Vec::from_iter(0..30));
    assert_eq!(fs::read(crashed.join(FILE)).unwrap(), committed);
}

#[test]
fn a_small_database_of_a_client_survives_a_crash_of_the_servers_machine_that_takes_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    drop(Federation::create(&place, "test").unwrap());
    let server = Server::start(config(&place, 0)).unwrap();
    let remote = open(server.address().port());
    let mut transaction = remote.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.create_database("run7").unwrap();
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "events", &class(), options).unwrap();
    transaction.extend(key, events(0..10)).unwrap();
    transaction.commit().unwrap();
    assert_eq!(numbers(&remote, "run7/events"), Vec::from_iter(0..10));
    let crashed = folder.path().join("crashed/test.fed");
    fs::create_dir_all(crashed.join("databases")).unwrap();
    for name in ["catalogue.sqlite", "catalogue.sqlite-wal"] {
        fs::copy(place.join(name), crashed.join(name)).unwrap();
    }
    let again = Federation::open(&crashed).unwrap();
    assert_eq!(numbers(&again, "run7/events"), Vec::from_iter(0..10));
    assert_eq!(fs::read(crashed.join(FILE)).unwrap(), fs::read(place.join(FILE)).unwrap());
    append(&remote, "run7", "events", 10..20).unwrap();
    assert_eq!(numbers(&open(server.address().port()), "run7/events"), Vec::from_iter(0..20));
}

/// Writes of a commit, to a database that the session holds.
fn commit(stage: &Stage, database: DatabaseId, offset: u64) -> femtobarn_catalog::Result<Csn> {
    let there = stage.remote();
    assert!(there.log_room() > 0);
    let owner = there.locks().owner();
    let _shared = owner.share_database(stage.database, LONG)?;
    let base = stage.newest(&there);
    let writes = vec![FileWrite { database, offset, bytes: b"tracks".to_vec() }];
    there.commit(Commit { writes, ..stage.version(base) })
}

#[test]
fn a_commit_writes_only_inside_of_files_that_its_session_holds() {
    let stage = Stage::new();
    let file = stage.place().join(FILE);
    fs::write(&file, [0; 100]).unwrap();
    for offset in [95, 100, 1 << 40, u64::MAX] {
        let refused = commit(&stage, stage.database, offset).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    let refused = commit(&stage, DatabaseId(stage.database.0 + 1), 50).unwrap_err();
    assert!(refused.to_string().contains("was lost"), "{refused}");
    assert_eq!(fs::read(&file).unwrap(), [0; 100]);
    commit(&stage, stage.database, 94).unwrap();
    assert_eq!(fs::read(&file).unwrap()[94..], *b"tracks");
}

#[test]
fn a_commit_that_is_sent_again_after_it_was_published_writes_nothing() {
    let stage = Stage::new();
    let file = stage.place().join(FILE);
    fs::write(&file, [0; 100]).unwrap();
    let there = stage.remote();
    let owner = there.locks().owner();
    let _shared = owner.share_database(stage.database, LONG).unwrap();
    let writes = vec![FileWrite { database: stage.database, offset: 50, bytes: vec![1; 6] }];
    let commit = Commit { writes, ..stage.version(None) };
    let csn = there.commit(commit.clone()).unwrap();
    // Other data have the place by now.
    fs::write(&file, [2; 100]).unwrap();
    let session = stage.served().session(there.session().unwrap()).unwrap();
    let (service, before) = (stage.served().clone(), Csn(csn.0 - 1));
    let again = async move { service.publish(&session, commit, Some(before)).await };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(runtime.block_on(again).unwrap(), csn);
    assert_eq!(fs::read(&file).unwrap(), [2; 100]);
}

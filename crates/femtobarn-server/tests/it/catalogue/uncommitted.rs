//! Files of databases whose creation was never committed. The server removes them: the catalogue does not refer
//! to them, and they would block the path of a new database with the same name.

use std::path::{Path, PathBuf};

use femtobarn::{ContainerOptions, Federation, Transaction, TransactionOptions};
use femtobarn_catalog::{Catalogue, Commit, DatabaseId, DatabaseState, ErrorKind, NewDatabase};
use femtobarn_server::Server;
use femtobarn_server::physical::{
    Creation, FederationStorage, Opaque, OpenMode, Storage, StoragePath,
};
use nix::errno::Errno;
use uuid::Uuid;

use super::engine::{config, events, numbers, open};
use super::fencing::{class, errno_of};
use super::{LONG, Stage, until};
use crate::killable::{self, Killable};

/// A transaction with a new database that has `count` events.
fn begun(federation: &Federation, database: &str, count: u64) -> Transaction {
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.create_database(database).unwrap();
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "events", &class(), options).unwrap();
    transaction.extend(key, events(0..count)).unwrap();
    transaction
}

fn files(federation: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(federation.join("databases")).unwrap();
    found.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn rollback_removes_the_file_of_a_new_database() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    drop(Federation::create(&place, "test").unwrap());
    let server = Server::start(config(&place, 0)).unwrap();
    let remote = open(server.address().port());
    for count in [0, 10, 2_000_000] {
        let transaction = begun(&remote, "run7", count);
        assert_eq!(files(&place).len(), 1);
        transaction.rollback();
        until("removing", || files(&place).is_empty());
    }
}

/// Not a test: a client's process runs it, and is killed.
#[test]
#[ignore = "run by other tests as another process"]
fn begins() {
    let Some(port) = killable::argument() else { return };
    let remote = open(port.parse().unwrap());
    begun(&remote, "run6", 10).commit().unwrap();
    let _begun = begun(&remote, "run7", 10);
    loop {
        std::thread::park();
    }
}

#[test]
fn killed_client_leaves_only_committed_files() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    let local = Federation::create(&place, "test").unwrap();
    let server = Server::start(config(&place, 0)).unwrap();
    let port = server.address().port();
    let client = Killable::start("catalogue::uncommitted::begins", port.to_string());
    until("beginning", || files(&place).len() == 2);
    drop(client);
    let left = [place.join("databases/run6.root")];
    until("removing", || files(&place) == left);
    assert!(numbers(&local, "run6/events").into_iter().eq(0..10));
}

/// The server once forgot which files were not committed: every transaction with a new database failed, and files of
/// clients that had died stayed.
#[test]
fn new_databases_outlive_a_restart_of_the_server_unless_their_client_died() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    let local = Federation::create(&place, "test").unwrap();
    let start = |port| {
        let mut config = config(&place, port);
        config.limits.lease_seconds = 2;
        config.limits.grace_seconds = 2;
        Server::start(config).unwrap()
    };
    let server = start(0);
    let port = server.address().port();
    let client = Killable::start("catalogue::uncommitted::begins", port.to_string());
    until("beginning", || files(&place).len() == 2);
    let remote = open(port);
    let mine = begun(&remote, "run8", 10);
    drop(server);
    drop(client);
    let _again = start(port);
    mine.commit().unwrap();
    assert!(numbers(&local, "run8/events").into_iter().eq(0..10));
    until("removing", || !place.join("databases/run7.root").exists());
    assert_eq!(files(&place).len(), 2);
}

/// The name is free once the first client has lost its session. Its later calls do not reach the file of the
/// second client.
#[test]
fn resumed_client_does_not_touch_a_file_of_another_with_its_name() {
    let stage = Stage::new();
    let (first, _one) = stage.engine(stage.files());
    let (second, _two) = stage.engine(stage.files());
    std::fs::create_dir_all(stage.place().join("databases")).unwrap();
    let lost = begun(&first, "run8", 10);
    assert_eq!(files(&stage.place()).len(), 1);
    stage.end_all_sessions();
    until("removing", || files(&stage.place()).is_empty());
    let mine = begun(&second, "run8", 10);
    assert_eq!(files(&stage.place()), [stage.place().join("databases/run8.root")]);
    let error = lost.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    mine.commit().unwrap();
    assert!(numbers(&second, "run8/events").into_iter().eq(0..10));
}

const RUN8: &str = "databases/run8.root";

/// Opens or creates the file of `run8`.
fn open_run8(
    storage: &FederationStorage,
    creation: Creation,
    database: DatabaseId,
    session: Uuid,
) -> Option<Errno> {
    let opaque = format!("fb.raw=1&fb.database={database}&fb.session={session}");
    let how = OpenMode { write: true, creation, make_folders: true, mode: 0o644 };
    errno_of(storage.open(&run8(), how, Opaque(opaque.as_bytes())))
}

fn run8() -> StoragePath {
    StoragePath::new(format!("/{RUN8}").as_bytes()).unwrap()
}

#[test]
fn uncommitted_file_is_usable_by_its_creator_only() {
    let stage = Stage::new();
    let storage = stage.storage(stage.files());
    let (there, other) = (stage.remote(), stage.remote());
    let session = |catalogue: &dyn Catalogue| catalogue.session().unwrap();
    let (mine, theirs) = (there.reserve_database().unwrap(), other.reserve_database().unwrap());
    let _mine = there.locks().owner().share_database(mine, LONG).unwrap();
    let _theirs = other.locks().owner().share_database(theirs, LONG).unwrap();
    assert_eq!(open_run8(&storage, Creation::New, mine, session(&there)), None);
    let refused = open_run8(&storage, Creation::Existing, theirs, session(&other));
    assert_eq!(refused, Some(Errno::EINVAL));
    let remove = |database: DatabaseId, session: Uuid| {
        let opaque = format!("fb.raw=1&fb.database={database}&fb.session={session}");
        errno_of(storage.remove_file(&run8(), Opaque(opaque.as_bytes())))
    };
    assert_eq!(errno_of(storage.remove_file(&run8(), Opaque(b"fb.raw=1"))), Some(Errno::EROFS));
    assert_eq!(remove(theirs, session(&other)), Some(Errno::EROFS));
    assert!(stage.place().join(RUN8).exists());
    assert_eq!(remove(mine, session(&there)), None);
    assert_eq!(open_run8(&storage, Creation::New, theirs, session(&other)), None);
}

/// A commit may have succeeded although its answer was lost.
#[test]
fn file_is_kept_once_its_database_was_sent_to_be_published() {
    let stage = Stage::new();
    let storage = stage.storage(stage.files());
    let there = stage.remote();
    let database = there.reserve_database().unwrap();
    let new = |name: &str| NewDatabase {
        id: database,
        uuid: Uuid::new_v4(),
        name: name.into(),
        path: RUN8.into(),
        state: DatabaseState::Open,
    };
    let publish = |name| {
        let (transaction, new_databases) = (Uuid::new_v4(), vec![new(name)]);
        there.commit(Commit { transaction, new_databases, ..Commit::default() })
    };
    let unlocked = publish("run8").unwrap_err();
    assert_eq!(unlocked.kind(), ErrorKind::Conflict, "{unlocked}");
    let owner = there.locks().owner();
    let lock = owner.share_database(database, LONG).unwrap();
    assert_eq!(open_run8(&storage, Creation::New, database, there.session().unwrap()), None);
    assert_eq!(publish("run7").unwrap_err().kind(), ErrorKind::Exists);
    drop(lock);
    stage.end_all_sessions();
    let again = stage.local();
    drop(again.locks().owner().lock_database_exclusive(database, LONG).unwrap());
    assert!(stage.place().join(RUN8).exists());
}

//! Writers that have lost their locks and do not know it yet: their writes are refused.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use femtobarn::{Class, ContainerOptions, Federation, OpenOptions, TransactionOptions};
use femtobarn_catalog::{Catalogue, Commit, Csn, DatabaseId, ErrorKind, LockTarget};
use femtobarn_server::auth::Authenticator;
use femtobarn_server::physical::{
    Call, CallKind, FederationStorage, Gate, Gated, Opaque, OpenMode, PosixStorage, Storage,
    StorageError, StoragePath, StorageResult, StoredFile, Writers,
};
use nix::errno::Errno;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::engine::{events, numbers};
use super::{LONG, Stage, until};
use crate::remote::serve_files;

const RUN7: &str = "databases/run7.root";

impl Stage {
    /// The federation's files, writable by sessions that have locked their databases.
    pub(super) fn storage(&self, files: Arc<dyn Storage>) -> FederationStorage {
        let served = Arc::clone(self.served());
        FederationStorage::new(served.catalog().clone(), files).writable(Arc::new(served))
    }

    pub(super) fn files(&self) -> Arc<dyn Storage> {
        Arc::new(PosixStorage::new(&self.place()).unwrap())
    }

    /// Locks the database exclusively and raises its epoch, as vacuum does before freed space is reused.
    fn raise_epoch(&self, database: DatabaseId) {
        let here = self.local();
        let owner = here.locks().owner();
        let _alone = owner.lock_database_exclusive(database, LONG).unwrap();
        here.raise_epoch(database).unwrap();
    }

    /// The engine with the stage's catalogue, and these files through a separate file server.
    pub(super) fn engine(&self, files: Arc<dyn Storage>) -> (Federation, Runtime) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (server, _) = serve_files(listener, self.storage(files));
        let url = format!("root://127.0.0.1:{port}//test.fed");
        let catalogue: Arc<dyn Catalogue> = Arc::new(self.remote());
        let options = OpenOptions::default();
        (Federation::over_server(catalogue, &url, options).unwrap(), server)
    }

    pub(super) fn end_all_sessions(&self) {
        let _inside = self.server.as_ref().unwrap().0.enter();
        for session in self.served().sessions() {
            // The number of its client's last stream, which has opened few.
            (1..100).for_each(|generation| self.served().end(&session, generation));
        }
    }
}

pub(super) fn class() -> Class {
    let json = r#"{"name": "Hit", "version": 1, "fields": [{"name": "number", "type": "uint64"}]}"#;
    Class::from_json(json).unwrap()
}

/// Creates a database with a container of ten events.
fn with_ten_events(federation: &Federation) -> DatabaseId {
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.create_database("run8").unwrap();
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "events", &class(), options).unwrap();
    transaction.extend(key, events(0..10)).unwrap();
    transaction.commit().unwrap();
    database
}

pub(super) fn errno_of<T>(answer: StorageResult<T>) -> Option<Errno> {
    match answer {
        Err(StorageError::Refused(errno, _)) => Some(errno),
        _ => None,
    }
}

#[test]
fn writes_are_refused_after_the_session_ended() {
    let stage = Stage::new();
    let (remote, _files) = stage.engine(stage.files());
    let database = with_ten_events(&remote);
    let begin = || remote.transaction(TransactionOptions::default()).unwrap();
    let mut transaction = begin();
    let key = transaction.container(database, "events").unwrap();
    // So many that some are written before the commit.
    transaction.extend(key, events(10..1_000_000)).unwrap();
    stage.end_all_sessions();
    stage.raise_epoch(database);
    let file = stage.place().join("databases/run8.root");
    let theirs = vec![0xEE; std::fs::metadata(&file).unwrap().len() as usize];
    let before = std::fs::read(&file).unwrap();
    std::fs::write(&file, &theirs).unwrap();
    let extended = transaction.extend(key, events(1_000_000..2_000_000));
    let error = extended.and_then(|_| transaction.commit().map(drop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("was lost"), "{error}");
    let after = std::fs::read(&file).unwrap();
    assert!(after[..theirs.len()] == theirs[..], "the writer overwrote space of another one");

    // Readers still see the file as it was.
    std::fs::write(&file, &before).unwrap();
    let mut transaction = begin();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(10..20)).unwrap();
    transaction.commit().unwrap();
    assert!(numbers(&remote, "run8/events").into_iter().eq(0..20));
}

/// A server keeps the session until its locks are free, which takes until the catalogue answers. The error once stated
/// that the session is over, after which no caller runs the transaction again.
#[test]
fn a_commit_of_a_session_that_has_ended_is_a_conflict() {
    let stage = Stage::new();
    let _client = stage.remote();
    let session = stage.served().sessions().remove(0);
    stage.end_all_sessions();
    let runtime = &stage.server.as_ref().unwrap().0;
    for again in [None, Some(Csn::ZERO)] {
        let transaction = Uuid::new_v4();
        let commit = Commit { transaction, ..Commit::default() };
        let published = runtime.block_on(stage.served().publish(&session, commit, again));
        assert_eq!(published.unwrap_err().kind(), ErrorKind::Conflict);
    }
}

/// Delays writes, and counts them.
#[derive(Default)]
struct Slow(Arc<AtomicUsize>);

impl Gate for Slow {
    fn pass(&self, call: Call<'_>) -> StorageResult<usize> {
        if call.kind == CallKind::Write {
            thread::sleep(Duration::from_millis(10));
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Ok(call.size)
    }
}

/// A write that arrived after the unlock would be refused, and the refusal would reach later users of the same
/// file.
#[test]
fn rollback_waits_for_writes_under_way() {
    let stage = Stage::new();
    let slow = Slow::default();
    let written = Arc::clone(&slow.0);
    let (remote, _files) = stage.engine(Arc::new(Gated::new(stage.files(), slow)));
    let database = with_ten_events(&remote);
    let mut transaction = remote.transaction(TransactionOptions::default()).unwrap();
    let key = transaction.container(database, "events").unwrap();
    let before = written.load(Ordering::SeqCst);
    transaction.extend(key, events(0..1_000_000)).unwrap();
    drop(transaction);
    let after = written.load(Ordering::SeqCst);
    assert!(after > before);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(written.load(Ordering::SeqCst), after, "a write arrived after the rollback");
}

/// Lets writes pass one by one.
struct OneByOne {
    arrived: Sender<()>,
    may_pass: Mutex<Receiver<()>>,
}

impl Gate for OneByOne {
    fn pass(&self, call: Call<'_>) -> StorageResult<usize> {
        if call.kind == CallKind::Write {
            self.arrived.send(()).unwrap();
            self.may_pass.lock().unwrap_or_else(PoisonError::into_inner).recv().unwrap();
        }
        Ok(call.size)
    }
}

/// Opens the stage's database for writing by a session.
fn open_to_write(
    storage: &FederationStorage,
    stage: &Stage,
    session: Uuid,
) -> StorageResult<Arc<dyn StoredFile>> {
    let how = OpenMode { write: true, ..OpenMode::default() };
    let opaque = format!("fb.raw=1&fb.database={}&fb.session={session}", stage.database);
    let path = StoragePath::new(format!("/{RUN7}").as_bytes()).unwrap();
    storage.open(&path, how, Opaque(opaque.as_bytes()))
}

/// The stage's storage, with eight blanks in the file of its database. Each write reports its arrival, and waits
/// for permission to continue.
fn with_gate(stage: &Stage) -> (FederationStorage, Receiver<()>, Sender<()>) {
    std::fs::create_dir_all(stage.place().join("databases")).unwrap();
    std::fs::write(stage.place().join(RUN7), b"        ").unwrap();
    let ((arrived, arrives), (pass, may_pass)) = (channel(), channel());
    let gate = OneByOne { arrived, may_pass: Mutex::new(may_pass) };
    (stage.storage(Arc::new(Gated::new(stage.files(), gate))), arrives, pass)
}

/// Writes in a thread, as a server does.
fn writing<'scope>(
    scope: &'scope Scope<'scope, '_>,
    runtime: &Runtime,
    file: Arc<dyn StoredFile>,
) -> ScopedJoinHandle<'scope, StorageResult<()>> {
    let handle = runtime.handle().clone();
    scope.spawn(move || {
        let _inside = handle.enter();
        file.write_at(0, b"mine")
    })
}

#[test]
fn lock_is_not_free_before_the_writes_of_its_session_have_ended() {
    let stage = Stage::new();
    let (storage, arrives, pass) = with_gate(&stage);
    let there = stage.remote();
    let owner = there.locks().owner();
    let guard = owner.share_database(stage.database, LONG).unwrap();
    let file = open_to_write(&storage, &stage, there.session().unwrap()).unwrap();
    let runtime = Runtime::new().unwrap();
    thread::scope(|scope| {
        let _inside = runtime.enter();
        let writing = writing(scope, &runtime, file.clone());
        arrives.recv().unwrap();
        stage.end_all_sessions();
        assert!(stage.served().sessions().is_empty());
        let here = stage.local();
        let local = here.locks().owner();
        let busy = local.lock_database_exclusive(stage.database, Duration::ZERO);
        assert_eq!(busy.unwrap_err().kind(), ErrorKind::Busy, "a write is under way");
        pass.send(()).unwrap();
        // Another write is refused.
        drop(pass);
        writing.join().unwrap().unwrap();
        drop(local.lock_database_exclusive(stage.database, LONG).unwrap());
    });
    assert_eq!(errno_of(file.write_at(0, b"late")), Some(Errno::ENOLCK));
    assert_eq!(errno_of(file.truncate(0)), Some(Errno::ENOLCK));
    assert_eq!(errno_of(file.sync()), Some(Errno::ENOLCK));
    assert_eq!(std::fs::read(stage.place().join(RUN7)).unwrap(), b"mine    ");
    drop(guard);
}

/// The last write under way frees the locks that its session has released, also if the same session waits for them.
#[test]
fn lock_freed_by_the_last_write_is_granted_to_a_waiter_of_the_same_session() {
    let stage = Stage::new();
    let (storage, arrives, pass) = with_gate(&stage);
    let there = stage.remote();
    let (owner, other) = (there.locks().owner(), there.locks().owner());
    let guard = owner.share_database(stage.database, LONG).unwrap();
    let session = there.session().unwrap();
    let file = open_to_write(&storage, &stage, session).unwrap();
    let runtime = Runtime::new().unwrap();
    thread::scope(|scope| {
        let writing = writing(scope, &runtime, file);
        arrives.recv().unwrap();
        let waiting = scope.spawn(|| other.lock_database_exclusive(stage.database, LONG).map(drop));
        until("waiting", || !there.locks().waiting().unwrap().is_empty());
        drop(guard);
        let known = stage.served().session(session).unwrap();
        until("unlocking", || known.locks() == 0);
        assert!(!there.locks().waiting().unwrap().is_empty(), "a write is under way");
        pass.send(()).unwrap();
        writing.join().unwrap().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

/// A transaction may lock a database again that the previous transaction of the same owner has released.
#[test]
fn released_lock_is_granted_again_after_the_write_that_frees_it() {
    let stage = Stage::new();
    let (storage, arrives, pass) = with_gate(&stage);
    let there = stage.remote();
    let (owner, other) = (there.locks().owner(), there.locks().owner());
    let of_other = other.share_database(stage.database, LONG).unwrap();
    let file = open_to_write(&storage, &stage, there.session().unwrap()).unwrap();
    let runtime = Runtime::new().unwrap();
    thread::scope(|scope| {
        let writing = writing(scope, &runtime, file);
        arrives.recv().unwrap();
        drop(owner.share_database(stage.database, LONG).unwrap());
        let (locked, is_locked) = channel();
        scope.spawn(move || locked.send(owner.share_database(stage.database, LONG)).unwrap());
        assert!(
            is_locked.recv_timeout(Duration::from_millis(200)).is_err(),
            "the lock is not free yet"
        );
        pass.send(()).unwrap();
        writing.join().unwrap().unwrap();
        drop(is_locked.recv().unwrap().unwrap());
    });
    drop(of_other);
}

#[test]
fn write_is_admitted_only_to_the_holder_in_the_epoch_of_its_file() {
    let stage = Stage::with(Duration::from_millis(1), Authenticator::open());
    std::fs::create_dir_all(stage.place().join("databases")).unwrap();
    std::fs::write(stage.place().join(RUN7), b"        ").unwrap();
    let storage = stage.storage(stage.files());
    // Once a lease has passed since the start, unknown sessions are refused.
    let nobody = Uuid::new_v4();
    until("refusing", || errno_of(open_to_write(&storage, &stage, nobody)) == Some(Errno::ENOLCK));
    drop(storage);

    let stage = Stage::new();
    std::fs::create_dir_all(stage.place().join("databases")).unwrap();
    std::fs::write(stage.place().join(RUN7), b"        ").unwrap();
    let storage = stage.storage(stage.files());
    let unknown = open_to_write(&storage, &stage, nobody);
    assert!(matches!(unknown, Err(StorageError::NotBefore(..))), "the session may still reconnect");
    assert_eq!(errno_of(stage.served().admit(None, stage.database)), Some(Errno::ENOLCK));
    let there = stage.remote();
    let session = there.session().unwrap();
    let owner = there.locks().owner();
    let guard = owner.share_database(stage.database, LONG).unwrap();
    let file = open_to_write(&storage, &stage, session).unwrap();
    file.write_at(0, b"one").unwrap();
    drop(guard);
    let target = LockTarget::Database(stage.database);
    let known = stage.served().session(session).unwrap();
    until("unlocking", || !known.holds(target));
    assert_eq!(errno_of(file.write_at(0, b"two")), Some(Errno::ENOLCK));
    let guard = owner.share_database(stage.database, LONG).unwrap();
    file.write_at(0, b"three").unwrap();
    drop(guard);
    until("unlocking", || !known.holds(target));
    stage.raise_epoch(stage.database);
    let _guard = owner.share_database(stage.database, LONG).unwrap();
    assert_eq!(errno_of(file.write_at(0, b"four")), Some(Errno::ENOLCK));
    let again = open_to_write(&storage, &stage, session).unwrap();
    again.write_at(0, b"five").unwrap();
    assert_eq!(std::fs::read(stage.place().join(RUN7)).unwrap(), b"fivee   ");
}

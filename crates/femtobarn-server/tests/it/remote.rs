//! The engine reads and writes a federation's files through a server.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use femtobarn::{
    Class, ContainerKey, ContainerOptions, ErrorKind, Federation, OpenOptions, Profile,
    Transaction, TransactionOptions,
};
use femtobarn_catalog::{Csn, DatabaseId, LocalCatalogue};
use femtobarn_server::auth::Authenticator;
use femtobarn_server::logical::exports::{ExportOptions, Exports};
use femtobarn_server::logical::{Logical, Settings};
use femtobarn_server::physical::{
    FederationStorage, FilesElsewhere, Opaque, Permit, PosixStorage, StoragePath, StorageResult,
    Writers,
};
use femtobarn_server::protocol::xroot::{RootService, serve};
use rntuple::{Array, Primitive, Value};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

/// A federation in a folder, and a server of its files.
struct Stage {
    folder: TempDir,
    port: u16,
    server: Option<(Runtime, Arc<Logical>)>,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Federation::create(&folder.path().join("test.fed"), "test").unwrap();
        let mut stage = Stage { folder, port: 0, server: None };
        stage.start();
        stage
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("test.fed")
    }

    /// Starts the server, on its previous port.
    fn start(&mut self) {
        let catalogue = Arc::new(LocalCatalogue::open(&self.place()).unwrap());
        let files = Arc::new(PosixStorage::new(&self.place()).unwrap());
        let storage = FederationStorage::new(catalogue, files).writable(Arc::new(Anyone));
        let listener = TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        self.port = listener.local_addr().unwrap().port();
        self.server = Some(serve_files(listener, storage));
    }

    /// Stops the server: all its connections are lost.
    fn stop(&mut self) {
        self.server.take().unwrap().0.shutdown_background();
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            assert!(Instant::now() < deadline, "the server does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The federation, whose files are read and written through the server.
    fn remote(&self) -> Federation {
        let catalogue = Arc::new(LocalCatalogue::open(&self.place()).unwrap());
        let url = format!("root://127.0.0.1:{}//test.fed", self.port);
        let options = OpenOptions { threads: 2, ..OpenOptions::default() };
        Federation::over_server(catalogue, &url, options).unwrap()
    }

    fn local(&self) -> Federation {
        Federation::open(&self.place()).unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.0.shutdown_background();
        }
    }
}

/// Serves the files of a federation, and nothing else.
pub(crate) fn serve_files(
    listener: TcpListener,
    storage: FederationStorage,
) -> (Runtime, Arc<Logical>) {
    let mut exports = Exports::default();
    let manner = ExportOptions { is_quick: false, is_read_only: false };
    exports.add(&StoragePath::new(b"/test.fed").unwrap(), Arc::new(storage), manner).unwrap();
    // The engine of these tests represents one on another machine.
    let settings = Settings { pass_files: false, ..Settings::default() };
    let logical = Arc::new(Logical::new(settings, exports));
    let shared = Arc::new(RootService::new(Arc::clone(&logical), Authenticator::open()));
    listener.set_nonblocking(true).unwrap();
    let runtime = Runtime::new().unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, shared.clone()));
        }
    });
    (runtime, logical)
}

/// Admits every writer: the clients lock in the local folder.
pub(crate) struct Anyone;

impl Writers for Anyone {
    fn admit(
        &self,
        _session: Option<Uuid>,
        _database: DatabaseId,
    ) -> StorageResult<Arc<dyn Permit>> {
        Ok(Arc::new(Anyone))
    }

    fn file_created(&self, _path: &StoragePath, _database: DatabaseId) {}

    fn file_removed(&self, _path: &StoragePath) {}

    fn uncommitted_database(&self, _path: &StoragePath) -> Option<DatabaseId> {
        None
    }

    fn has_others(&self) -> bool {
        false
    }

    fn redirect(&self, _database: DatabaseId, _opaque: Opaque<'_>) -> StorageResult<()> {
        Ok(())
    }

    fn files_elsewhere(&self, _at: Csn, _are_asked: bool) -> StorageResult<FilesElsewhere> {
        Ok(FilesElsewhere::default())
    }
}

impl Permit for Anyone {
    fn during(&self, write: &mut dyn FnMut() -> StorageResult<()>) -> StorageResult<()> {
        write()
    }
}

fn class() -> Class {
    let json = r#"{"name": "Event", "version": 1, "fields": [
        {"name": "event", "type": "uint64"}, {"name": "weight", "type": "float64"}]}"#;
    Class::from_json(json).unwrap()
}

fn events(numbers: std::ops::Range<u64>) -> Array {
    let weights: Vec<f64> = numbers.clone().map(|number| (number as f64).sin()).collect();
    let events: Vec<u64> = numbers.collect();
    Array::Record {
        length: events.len(),
        members: vec![
            ("event".to_owned(), Array::primitive(Primitive::UInt64, events)),
            ("weight".to_owned(), Array::primitive(Primitive::Float64, weights)),
        ],
    }
}

fn begin(federation: &Federation) -> Transaction {
    federation.transaction(TransactionOptions::default()).unwrap()
}

fn create(transaction: &mut Transaction) -> ContainerKey {
    let database = transaction.create_database("run7").unwrap();
    let options = ContainerOptions::default();
    transaction.create_container(database, "events", &class(), options).unwrap()
}

fn with_events(federation: &Federation, count: u64) {
    let mut transaction = begin(federation);
    let key = create(&mut transaction);
    transaction.extend(key, events(0..count)).unwrap();
    transaction.commit().unwrap();
}

fn open(transaction: &mut Transaction) -> ContainerKey {
    let database = transaction.database("run7").unwrap();
    transaction.container(database, "events").unwrap()
}

/// The event number of each object that is not deleted, by reading them all as an array.
fn numbers(federation: &Federation) -> Vec<u64> {
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let selection = view.select(&["event"]).unwrap();
    let array = view.read(&selection, 0..view.entries()).unwrap();
    let number = |position| {
        let event = array.value(position).unwrap();
        event.member("event").and_then(Value::as_integer).unwrap() as u64
    };
    (0..array.len()).map(number).collect()
}

#[test]
fn objects_written_through_a_server_are_read_remotely_and_locally() {
    let stage = Stage::new();
    let remote = stage.remote();
    with_events(&remote, 300_000);
    for federation in [&remote, &stage.remote(), &stage.local()] {
        assert!(numbers(federation).into_iter().eq(0..300_000));
    }
    let mut transaction = begin(&remote);
    let key = open(&mut transaction);
    transaction.extend(key, events(300_000..300_100)).unwrap();
    transaction.delete(key, &[3]).unwrap();
    transaction.update(key, &[5], events(1_000_000..1_000_001)).unwrap();
    transaction.commit().unwrap();
    let mut expected: Vec<u64> = (0..300_100).collect();
    expected[5] = 1_000_000;
    expected.remove(3);
    for federation in [&remote, &stage.remote(), &stage.local()] {
        assert!(numbers(federation) == expected);
    }
}

/// Writes 20 MB of events with lists of numbers, uncompressed and in many pieces, so that the pages of different
/// columns alternate in the file.
fn with_tracks(federation: &Federation) {
    const ENTRIES: usize = 5_000;
    let json = r#"{"name": "Event", "version": 1, "fields": [{"name": "event", "type": "uint64"},
        {"name": "pt", "type": {"list": "float32"}}, {"name": "hits", "type": {"list": "uint16"}}]}"#;
    let options = ContainerOptions { compression: Profile::Plain, ..ContainerOptions::default() };
    let mut transaction = begin(federation);
    let database = transaction.create_database("run7").unwrap();
    let class = Class::from_json(json).unwrap();
    let key = transaction.create_container(database, "events", &class, options).unwrap();
    for piece in 0..30_u64 {
        let sizes = (0..ENTRIES as i64).map(|entry| entry * 7 % 41);
        let offsets = std::iter::once(0).chain(sizes.scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        }));
        let offsets: Vec<i64> = offsets.collect();
        let items = *offsets.last().unwrap() as u64;
        let pts: Vec<f32> = (0..items).map(|item| (piece * items + item) as f32).collect();
        let hits: Vec<u16> = (0..items).map(|item| (piece ^ item) as u16).collect();
        let lists = |content| Array::List {
            offsets: rntuple::bytes_of(offsets.clone()),
            content: Box::new(content),
            optional: false,
        };
        let numbers: Vec<u64> = (0..ENTRIES as u64).map(|entry| piece << 32 | entry).collect();
        let members = vec![
            ("event".to_owned(), Array::primitive(Primitive::UInt64, numbers)),
            ("pt".to_owned(), lists(Array::primitive(Primitive::Float32, pts))),
            ("hits".to_owned(), lists(Array::primitive(Primitive::UInt16, hits))),
        ];
        transaction.extend(key, Array::Record { length: ENTRIES, members }).unwrap();
    }
    transaction.commit().unwrap();
}

/// Whether arrays of records, lists and numbers are the same, bit by bit.
fn same(left: &Array, right: &Array) -> bool {
    match (left, right) {
        (Array::Primitive { values: left, .. }, Array::Primitive { values: right, .. }) => {
            left == right
        }
        (
            Array::List { offsets, content, .. },
            Array::List { offsets: others, content: other, .. },
        ) => offsets == others && same(content, other),
        (Array::Record { members: left, .. }, Array::Record { members: right, .. }) => {
            let pairs = left.iter().zip(right);
            left.len() == right.len() && pairs.into_iter().all(|(one, two)| same(&one.1, &two.1))
        }
        _ => false,
    }
}

#[test]
fn columns_are_the_same_however_they_are_read_from_a_server() {
    let stage = Stage::new();
    with_tracks(&stage.local());
    let here = stage.local().snapshot(None).unwrap().view("run7/events").unwrap();
    let open = || stage.remote().snapshot(None).unwrap().view("run7/events").unwrap();
    let entries = here.entries();
    let whole = here.read(&here.select_all(), 0..entries).unwrap();
    let far = open();
    assert!(same(&far.read(&far.select_all(), 0..entries).unwrap(), &whole));
    // In order, by two threads with a part each, which share the prefetch buffers.
    let far = open();
    std::thread::scope(|scope| {
        for part in [0..entries / 2, entries / 2..entries] {
            let (far, here) = (&far, &here);
            scope.spawn(move || {
                let (of_far, of_here) = (far.select_all(), here.select_all());
                for start in part.clone().step_by(3_333) {
                    let piece = start..part.end.min(start + 3_333);
                    let wanted = here.read(&of_here, piece.clone()).unwrap();
                    assert!(same(&far.read(&of_far, piece).unwrap(), &wanted), "from {start}");
                }
            });
        }
    });
    let far = open();
    for entry in (0..entries).step_by(9_973) {
        assert_eq!(far.value(entry).unwrap(), here.value(entry).unwrap());
    }
}

impl Stage {
    /// The number of requests over `root://` so far.
    fn requests(&self) -> u64 {
        let (_, logical) = self.server.as_ref().unwrap();
        logical.sessions.totals().requests.load(Ordering::SeqCst)
    }
}

/// Each commit leaves a sorted run of the index, or merges some.
#[test]
fn lookups_by_key_take_few_round_trips() {
    let stage = Stage::new();
    let local = stage.local();
    let mut transaction = begin(&local);
    let key = create(&mut transaction);
    transaction.create_index(key, "by event", &["event".to_owned()], true).unwrap();
    transaction.extend(key, events(0..300_000)).unwrap();
    transaction.commit().unwrap();
    for commit in 0..20 {
        let mut transaction = begin(&local);
        let key = open(&mut transaction);
        let first = 300_000 + commit * 5_000;
        transaction.extend(key, events(first..first + 5_000)).unwrap();
        transaction.commit().unwrap();
    }
    assert!(
        local.snapshot(None).unwrap().view("run7/events").unwrap().indexes().unwrap()[0].runs >= 3
    );
    for number in [7, 123_456, 333_333, 399_999] {
        let remote = stage.remote();
        let view = remote.snapshot(None).unwrap().view("run7/events").unwrap();
        let find = |number: u64| {
            let before = stage.requests();
            let found = view.find(&[("event", Value::UInt(number))]).unwrap();
            assert_eq!(found, (number < 400_000).then_some(number));
            stage.requests() - before
        };
        // The annex, the upper levels of the indexes, a block of keys, the page list, and a page.
        assert!(find(number) <= 5);
        // A block of keys, and a page.
        assert!(find(number ^ 4096) <= 2);
        assert_eq!(find(number), 0);
        assert!(find(1 << 40) <= 1);
    }
}

#[test]
fn a_rolled_back_transaction_leaves_nothing() {
    let stage = Stage::new();
    let remote = stage.remote();
    let mut transaction = begin(&remote);
    let key = create(&mut transaction);
    transaction.extend(key, events(0..1000)).unwrap();
    drop(transaction);
    assert!(remote.snapshot(None).unwrap().view("run7/events").is_err());
    with_events(&remote, 10);
    assert_eq!(numbers(&stage.local()).len(), 10);
}

#[test]
fn threads_read_through_one_connection() {
    let stage = Stage::new();
    with_events(&stage.local(), 200_000);
    let remote = stage.remote();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let remote = &remote;
            scope.spawn(move || {
                let view = remote.snapshot(None).unwrap().view("run7/events").unwrap();
                for index in 0..50u64 {
                    let entry = (index * 7919 + thread * 104_729) % 200_000;
                    let event = view.value(entry).unwrap();
                    let number = event.member("event").and_then(Value::as_integer).unwrap();
                    assert_eq!(number as u64, entry);
                }
            });
        }
    });
}

#[test]
fn a_server_restart_fails_only_transactions_in_progress() {
    let mut stage = Stage::new();
    let remote = stage.remote();
    with_events(&remote, 1000);
    let mut transaction = begin(&remote);
    let key = open(&mut transaction);
    // So many that some are written before the commit.
    transaction.extend(key, events(1000..1_500_000)).unwrap();
    stage.stop();
    stage.start();
    let error = transaction.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("run the transaction again"), "{error}");
    remote.release_pages();
    assert_eq!(numbers(&remote).len(), 1000);

    let mut transaction = begin(&remote);
    let key = open(&mut transaction);
    transaction.extend(key, events(1000..1010)).unwrap();
    transaction.commit().unwrap();
    assert!(numbers(&stage.remote()).into_iter().eq(0..1010));
}

#[test]
fn opening_without_a_server_is_an_error() {
    let mut stage = Stage::new();
    stage.stop();
    let catalogue = Arc::new(LocalCatalogue::open(&stage.place()).unwrap());
    let url = format!("root://127.0.0.1:{}//test.fed", stage.port);
    let opened = Federation::over_server(catalogue.clone(), &url, OpenOptions::default());
    assert_eq!(opened.err().unwrap().kind(), ErrorKind::Unavailable);
    let opened = Federation::over_server(catalogue, "http://host", OpenOptions::default());
    assert_eq!(opened.err().unwrap().kind(), ErrorKind::Invalid);
}

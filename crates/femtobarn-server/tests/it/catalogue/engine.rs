//! The engine over a whole server: catalogue, locks and files behind one port.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use femtobarn::{
    CheckLevel, Class, ContainerOptions, ErrorKind, Federation, OpenOptions, TransactionOptions,
};
use femtobarn_server::Server;
use femtobarn_server::config::{Allowed, AuthConfig, Config, ExportConfig};
use rntuple::{Array, Primitive, Value};

use super::until;
use crate::ending::EndsOthers;
use crate::killable::{self, Killable};

pub(super) fn config(folder: &Path, port: u16) -> Config {
    let export = ExportConfig {
        folder: folder.to_owned(),
        name: String::new(),
        read_only: false,
        cache: None,
        throttle: None,
        faults: vec![],
    };
    Config {
        address: "127.0.0.1".into(),
        port,
        exports: vec![export],
        auth: AuthConfig { anonymous: Allowed::All, ..AuthConfig::default() },
        ..Config::default()
    }
}

pub(super) fn open(port: u16) -> Federation {
    let url = format!("root://127.0.0.1:{port}//test.fed");
    let options = OpenOptions { threads: 1, cache_bytes: 16 << 20, ..OpenOptions::default() };
    Federation::open_url(&url, options).unwrap()
}

pub(crate) fn class() -> Class {
    let json =
        r#"{"name": "Event", "version": 1, "fields": [{"name": "number", "type": "uint64"}]}"#;
    Class::from_json(json).unwrap()
}

pub(crate) fn events(numbers: std::ops::Range<u64>) -> Array {
    let numbers: Vec<u64> = numbers.collect();
    let length = numbers.len();
    let numbers = Array::primitive(Primitive::UInt64, numbers);
    Array::Record { length, members: vec![("number".to_owned(), numbers)] }
}

pub(super) fn create(
    federation: &Federation,
    database: &str,
    containers: impl Iterator<Item = String>,
) {
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.create_database(database).unwrap();
    for name in containers {
        let options = ContainerOptions::default();
        transaction.create_container(database, &name, &class(), options).unwrap();
    }
    transaction.commit().unwrap();
}

/// Appends some numbers in a transaction.
pub(super) fn append(
    federation: &Federation,
    database: &str,
    container: &str,
    numbers: std::ops::Range<u64>,
) -> femtobarn::Result<()> {
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let database = transaction.database(database)?;
    let key = transaction.container(database, container)?;
    transaction.extend(key, events(numbers))?;
    transaction.commit().map(drop)
}

pub(super) fn numbers(federation: &Federation, path: &str) -> Vec<u64> {
    let view = federation.snapshot(None).unwrap().view(path).unwrap();
    let selection = view.select(&["number"]).unwrap();
    let array = view.read(&selection, 0..view.entries()).unwrap();
    let number = |position| {
        let event = array.value(position).unwrap();
        event.member("number").and_then(Value::as_integer).unwrap() as u64
    };
    (0..array.len()).map(number).collect()
}

#[test]
fn remote_federation_behaves_as_a_local_one() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    let local = Federation::create(&place, "test").unwrap();
    let server = Server::start(config(&place, 0)).unwrap();
    let remote = open(server.address().port());
    assert_eq!((remote.name(), remote.uuid()), (local.name(), local.uuid()));
    create(&remote, "run7", ["events".to_owned()].into_iter());
    append(&remote, "run7", "events", 0..100_000).unwrap();
    append(&local, "run7", "events", 100_000..100_010).unwrap();
    append(&remote, "run7", "events", 100_010..100_020).unwrap();
    for federation in [&remote, &local, &open(server.address().port())] {
        assert!(numbers(federation, "run7/events").into_iter().eq(0..100_020));
    }
    let old = remote.snapshot(Some(local.history(2).unwrap()[1].csn)).unwrap();
    assert_eq!(old.view("run7/events").unwrap().entries(), 100_010);
    remote.tag("best", None, "so far").unwrap();
    assert_eq!(local.tags().unwrap(), remote.tags().unwrap());
    let history = remote.history(10).unwrap();
    assert_eq!(history, local.history(10).unwrap());
    assert!(local.check(CheckLevel::Full, &mut |_| true).unwrap().problems.is_empty());
    let refused = remote.check(CheckLevel::Quick, &mut |_| true).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("run it on the server"), "{refused}");
}

#[test]
fn remote_client_creates_a_database_in_a_place() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    let local = Federation::create(&place, "test").unwrap();
    let server = Server::start(config(&place, 0)).unwrap();
    let remote = open(server.address().port());
    let begin = || remote.transaction(TransactionOptions::default()).unwrap();
    let mut transaction = begin();
    let database = transaction.create_database_in("run7", Some("disk1")).unwrap();
    let options = ContainerOptions::default();
    transaction.create_container(database, "events", &class(), options).unwrap();
    transaction.reserve(database, 3_000_000).unwrap();
    assert!(place.join("databases/disk1/run7.root").metadata().unwrap().len() > 3_000_000);
    transaction.commit().unwrap();
    // Several extents, each of which the server allocates.
    append(&remote, "run7", "events", 0..1_000_000).unwrap();
    append(&open(server.address().port()), "run7", "events", 1_000_000..1_000_010).unwrap();
    assert!(numbers(&local, "run7/events").into_iter().eq(0..1_000_010));
    assert!(numbers(&remote, "run7/events").into_iter().eq(0..1_000_010));
    assert!(place.join("databases/disk1/run7.root").is_file());
    let mut transaction = begin();
    transaction.create_database_in("run8", Some("disk2")).unwrap();
    transaction.rollback();
    until("removing", || files(&place.join("databases/disk2")).is_empty());
    let refused = begin().create_database_in("run8", Some("../locks")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(local.check(CheckLevel::Full, &mut |_| true).unwrap().problems.is_empty());
}

fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn local_and_remote_writers_wait_for_each_other() {
    const EACH: u64 = 20;
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    let local = Federation::create(&place, "test").unwrap();
    create(&local, "run7", ["events".to_owned()].into_iter());
    let server = Server::start(config(&place, 0)).unwrap();
    let port = server.address().port();
    thread::scope(|scope| {
        for writer in 0..4 {
            let place = &place;
            scope.spawn(move || {
                let federation = match writer {
                    0 => Federation::open(place).unwrap(),
                    _ => open(port),
                };
                let mut done = 0;
                while done < EACH {
                    let numbers = writer * EACH + done..writer * EACH + done + 1;
                    match append(&federation, "run7", "events", numbers) {
                        Ok(()) => done += 1,
                        // Remote and local processes do not see each other's locks of containers.
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                    }
                }
            });
        }
    });
    let mut found = numbers(&local, "run7/events");
    found.sort_unstable();
    assert!(found.into_iter().eq(0..4 * EACH));
}

/// A server in a separate process.
fn killable(folder: &Path, port: u16) -> Killable {
    let server =
        Killable::start("catalogue::engine::serves", format!("{port} {}", folder.display()));
    // A client fails at once if its first connection is refused.
    until("starting", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    server
}

/// Not a test: the server's process runs it.
#[test]
#[ignore = "run by other tests as another process"]
fn serves() {
    let Some(argument) = killable::argument() else { return };
    let (port, folder) = argument.split_once(' ').unwrap();
    let config = config(&PathBuf::from(folder), port.parse().unwrap());
    let _server = Server::start(config).unwrap();
    loop {
        thread::park();
    }
}

/// A free port. The kernel does not soon assign it again to servers of other tests, which take any port.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn writers_continue_after_the_server_was_killed() {
    const WRITERS: u64 = 64;
    const DATABASES: u64 = 4;
    const KILLS: u64 = 3;
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    let local = Federation::create(&place, "test").unwrap();
    let (database, container) = (|w| format!("run{}", w % DATABASES), |w| format!("events{w}"));
    for run in 0..DATABASES {
        let own = (0..WRITERS).filter(|writer| writer % DATABASES == run);
        create(&local, &database(run), own.map(container));
    }
    let port = free_port();
    let mut server = killable(&place, port);
    let (is_over, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = |writer| {
        let (federation, mut done) = (open(port), 0);
        while !is_over.load(Ordering::SeqCst) {
            let numbers = done..done + 10;
            match append(&federation, &database(writer), &container(writer), numbers) {
                Ok(()) => {
                    done += 10;
                    total.fetch_add(1, Ordering::SeqCst);
                }
                // A transaction whose unsynced bytes were lost with the server fails; the outcome is never in doubt.
                Err(error) => {
                    let kind = error.kind();
                    let is_clean = matches!(kind, ErrorKind::Unavailable | ErrorKind::Conflict);
                    assert!(is_clean, "{kind:?}: {error}");
                    let is_known = !error.to_string().contains("whether the commit is durable");
                    assert!(is_known, "{error}");
                }
            }
        }
        done
    };
    let acknowledged: Vec<u64> = thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        let ends = EndsOthers(&is_over);
        for kill in 0..=KILLS {
            let before = total.load(Ordering::SeqCst);
            until("committing", || total.load(Ordering::SeqCst) >= before + 2 * WRITERS);
            if kill < KILLS {
                drop(server);
                server = killable(&place, port);
            }
        }
        drop(ends);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (writer, done) in (0..WRITERS).zip(acknowledged) {
        let path = format!("{}/{}", database(writer), container(writer));
        assert!(
            numbers(&local, &path).into_iter().eq(0..done),
            "{path}: acknowledged commits are lost or repeated"
        );
    }
    let report = local.check(CheckLevel::Full, &mut |_| true).unwrap();
    let damages = report.problems.iter().filter(|it| it.severity == femtobarn::Severity::Damage);
    assert_eq!(damages.count(), 0, "{:?}", report.problems);
}

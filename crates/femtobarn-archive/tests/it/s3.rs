//! A store in a bucket of a real server, `rclone serve s3`, and one of a server that is silent. Without that program,
//! the tests that need it report that and pass, but fail if `CI` is `true`.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use femtobarn_archive::stores::{S3Settings, S3Store};
use femtobarn_archive::{Error, Store};
use femtobarn_catalog::{ErrorKind, ReplicaRow, ResidenceState, StoredObject};
use tempfile::TempDir;

use crate::sealed::{Sealed, on};
use crate::store_rules::check;

const WAIT: Duration = Duration::from_secs(10);
/// Two variables that the environment of every test has.
const KEY: [&str; 2] = ["CARGO_PKG_NAME", "CARGO_PKG_VERSION"];

/// A bucket.
fn bucket(url: &str, prefix: &str) -> S3Store {
    let key_variables = KEY.map(str::to_owned);
    let settings = S3Settings {
        url: url.to_owned(),
        bucket: "lhc".to_owned(),
        region: "us-east-1".to_owned(),
        prefix: prefix.to_owned(),
        key_variables,
        in_place: false,
    };
    S3Store::new(settings).unwrap()
}

/// A server of a folder with the bucket `lhc`, which has one object, and no mark.
struct Server {
    folder: TempDir,
    url: String,
    process: Child,
}

impl Server {
    /// Starts a server; none if the program is not installed.
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("lhc/old/x")).unwrap();
        fs::write(folder.path().join("lhc/old/x/1"), b"old").unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let [name, key] = KEY.map(|name| std::env::var(name).unwrap());
        let started = Command::new("rclone")
            .args(["serve", "s3", "--addr", &address.to_string()])
            .args(["--auth-key", &format!("{name},{key}")])
            .arg(folder.path())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = started else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no rclone");
            eprintln!("skipped: there is no rclone");
            return None;
        };
        let server = Server { folder, url: format!("http://{address}"), process };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "the server does not start");
            thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    /// The folder with the objects of the bucket below a prefix.
    fn below(&self, prefix: &str) -> PathBuf {
        self.folder.path().join("lhc").join(prefix)
    }

    /// The settings of a store `s3` below a prefix.
    fn settings(&self, prefix: &str) -> String {
        format!(
            "[stores.s3]\nkind = 's3'\nurl = '{}'\nbucket = 'lhc'\nprefix = '{prefix}'\n\
             key_variables = {KEY:?}\n",
            self.url
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn a_bucket_keeps_the_rules() {
    let Some(server) = Server::start() else { return };
    let work = tempfile::tempdir().unwrap();
    let store = bucket(&server.url, "raw");
    check(&store, work.path());
    store.put("x/1", &work.path().join("from"), &mut *on()).unwrap();
    assert_eq!(store.list("x/").unwrap(), [("x/1".to_owned(), 6)]);
}

#[test]
fn a_wrong_prefix_or_bucket_has_lost_nothing() {
    let Some(server) = Server::start() else { return };
    let of = Sealed::new();
    of.settings(&server.settings("raw"));
    let (run7, run8) = (of.database("run7", b"seven"), of.database("run8", b"eight"));
    let copy = of.archive().migrate(run7, "s3", &mut *on()).unwrap();
    assert!(server.below("raw/.femtobarn-store").is_file());
    of.archive().migrate(run8, "s3", &mut *on()).unwrap();
    of.archive().evict(run7, &mut *on()).unwrap();
    let discarded = StoredObject { store: "s3".to_owned(), key: format!("{}-2", copy.key) };
    let other = ReplicaRow { key: discarded.key.clone(), ..of.copy(run8, "s3") };
    of.catalogue.record_replica(&other).unwrap();
    of.catalogue.discard_replica(&of.row(run8), "s3", true).unwrap();
    let known = of.catalogue.discarded_objects().unwrap();
    assert_eq!(known.len(), 2);
    let unavailable = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    };
    for settings in [server.settings("rwa"), server.settings("raw").replace("'lhc'", "'lhcb'")] {
        of.settings(&settings);
        let archive = of.archive();
        unavailable(archive.stage(run7, WAIT, &mut *on()));
        unavailable(archive.migrate(run8, "s3", &mut *on()).map(drop));
        unavailable(archive.sweep(&mut *on()).map(drop));
        assert!(!server.below("rwa").exists());
    }
    assert_eq!(of.catalogue.discarded_objects().unwrap(), known);
    assert_eq!(of.catalogue.residence(run7).unwrap().state(), ResidenceState::Nearline);
    of.settings(&server.settings("raw"));
    let archive = of.archive();
    archive.migrate(run8, "s3", &mut *on()).unwrap();
    assert_eq!(archive.sweep(&mut *on()).unwrap(), 2);
    bucket(&server.url, "raw").remove(&copy.key, &mut *on()).unwrap();
    let lost = archive.stage(run7, WAIT, &mut *on()).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::NotFound, "{lost}");
    assert_eq!(of.catalogue.residence(run7).unwrap().state(), ResidenceState::Lost);
}

#[test]
fn a_bucket_without_a_mark_is_a_store_if_it_has_objects() {
    let Some(server) = Server::start() else { return };
    let (work, store) = (tempfile::tempdir().unwrap(), bucket(&server.url, "old"));
    let from = work.path().join("from");
    fs::write(&from, b"seven").unwrap();
    assert_eq!(store.stat("x/1").unwrap().size, 3);
    let gone = store.stat("x/2");
    assert!(matches!(gone, Err(Error::NoObject { .. })), "{gone:?}");
    store.put("x/2", &from, &mut *on()).unwrap();
    assert_eq!(store.list("").unwrap().len(), 2);
    for key in ["x/1", "x/2"] {
        store.remove(key, &mut *on()).unwrap();
    }
    store.put("x/2", &from, &mut *on()).unwrap();
    assert!(server.below("old/.femtobarn-store").is_file(), "it got its mark before it was empty");
    let store = bucket(&server.url, "empty");
    let nothing = store.put("x/2", &from, &mut *on());
    assert!(matches!(nothing, Err(Error::Unavailable { .. })), "{nothing:?}");
    store.begin(&mut *on()).unwrap();
    store.put("x/2", &from, &mut *on()).unwrap();
}

#[test]
fn a_bucket_without_a_mark_whose_last_object_is_removed_stays_a_store() {
    let Some(server) = Server::start() else { return };
    let store = bucket(&server.url, "old");
    store.remove("x/1", &mut *on()).unwrap();
    assert_eq!(store.list("").unwrap(), []);
    store.remove("x/1", &mut *on()).unwrap();
}

#[test]
fn waiting_for_a_silent_server_can_be_stopped() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        // Connections stay open, and nothing is ever sent.
        let _held: Vec<_> = listener.incoming().collect();
    });
    let store = bucket(&url, "");
    let folder = tempfile::tempdir().unwrap();
    let (small, large, to) =
        (folder.path().join("small"), folder.path().join("large"), folder.path().join("to"));
    fs::write(&small, b"seven bytes").unwrap();
    fs::write(&large, vec![7; 9 << 20]).unwrap();
    let began = Instant::now();
    for stopped in [
        store.begin(&mut |_| false),
        store.put("a", &small, &mut |_| false).map(drop),
        store.put("a", &large, &mut |_| false).map(drop),
        store.get("a", &to, &mut |_| false),
        store.examine("a", 11, &mut |_| false).map(drop),
        store.remove("a", &mut |_| false),
    ] {
        assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(!to.exists());
}

#[test]
fn a_bucket_that_a_later_generation_has_marked_loses_nothing() {
    let Some(server) = Server::start() else { return };
    let of = Sealed::new();
    of.settings(&server.settings("raw"));
    let run7 = of.database("run7", b"seven");
    let archive = of.archive();
    let key = archive.migrate(run7, "s3", &mut *on()).unwrap().key;
    let (successor, from) = (bucket(&server.url, "raw"), of.top().join("from"));
    let mark = format!("{}/generation-1", of.catalogue.archive_id().unwrap().unwrap());
    fs::write(&from, b"a mark").unwrap();
    successor.put(&mark, &from, &mut *on()).unwrap();
    let refused = archive.discard(run7, "s3", &mut *on()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert_eq!(archive.sweep(&mut *on()).unwrap_err().kind(), ErrorKind::Denied);
    assert!(server.below(&format!("raw/{key}")).exists());
    successor.remove(&mark, &mut *on()).unwrap();
    assert_eq!(archive.sweep(&mut *on()).unwrap(), 1);
}

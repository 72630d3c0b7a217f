//! A store on a real server, whose program `XRD_TEST_XROOTD` names, such as `/usr/bin/xrootd`: its rules, and its
//! failures. If the variable is not set, the tests report that and pass, but fail if `CI` is `true`.
//!
//! The server refuses to run as the superuser; tests run as the superuser start it as the user `xrootd`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use femtobarn_archive::stores::{XrootdSettings, XrootdStore};
use femtobarn_archive::{Error, ObjectRange, Store};
use femtobarn_catalog::{ErrorKind, ReplicaState, ResidenceState};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, User, geteuid};
use tempfile::TempDir;

use crate::sealed::{Sealed, on};
use crate::store_rules::check;

const WAIT: Duration = Duration::from_secs(10);

/// A server of a folder `data`, which has an empty folder `store`.
struct Server {
    folder: TempDir,
    port: u16,
    process: Child,
}

impl Server {
    /// Starts a server; none if no program is named.
    fn start() -> Option<Self> {
        let program = std::env::var_os("XRD_TEST_XROOTD").filter(|program| !program.is_empty());
        let Some(program) = program else {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "XRD_TEST_XROOTD names no server"
            );
            eprintln!("skipped: XRD_TEST_XROOTD names no server");
            return None;
        };
        let folder = TempDir::new().unwrap();
        for name in ["", "data", "data/store", "admin"] {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = run(&program, folder.path(), port);
        let server = Server { folder, port, process };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", server.port)).is_err() {
            assert!(Instant::now() < deadline, "the server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    fn url(&self) -> String {
        format!("root://127.0.0.1:{}//store", self.port)
    }

    /// The folder of the store.
    fn store(&self) -> PathBuf {
        self.folder.path().join("data/store")
    }

    /// The files in the store, without its mark.
    fn files(&self) -> Vec<PathBuf> {
        let (mut found, mut folders) = (vec![], vec![self.store()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                match entry.unwrap().path() {
                    path if path.is_dir() => folders.push(path),
                    path if path.ends_with(".femtobarn-store") => {}
                    path => found.push(path),
                }
            }
        }
        found
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Stops all threads. The signal alone returns before they have stopped, and one may still answer.
    fn suspend(&self) {
        self.signal(Signal::SIGSTOP);
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(stopped, WaitStatus::Stopped(self.pid(), Signal::SIGSTOP));
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id() as i32)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn run(program: &OsString, folder: &Path, port: u16) -> Child {
    let place = folder.display();
    let config = format!(
        "all.export /\noss.localroot {place}/data\nall.adminpath {place}/admin\n\
         all.pidpath {place}/admin\nxrd.port {port}\nxrd.network nodnr\n\
         xrootd.chksum max 2 adler32 crc32c\n"
    );
    fs::write(folder.join("config"), config).unwrap();
    let log = File::create(folder.join("log")).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(folder.join("config")).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log).current_dir(folder);
    if geteuid().is_root() {
        let user = User::from_name("xrootd").unwrap().expect("the user xrootd exists");
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command.spawn().unwrap()
}

pub(crate) fn store_at(url: &str, answer_seconds: u64) -> XrootdStore {
    let settings = XrootdSettings { url: url.to_owned(), answer_seconds, in_place: false };
    XrootdStore::new(settings).unwrap()
}

/// A federation with the store `eos` on a server.
fn federation_on(server: &Server) -> Sealed {
    let of = Sealed::new();
    of.settings(&format!(
        "[stores.eos]\nkind = 'xrootd'\nurl = '{}'\nanswer_seconds = 2\n",
        server.url()
    ));
    of
}

#[test]
fn a_server_keeps_the_rules() {
    let Some(server) = Server::start() else { return };
    let work = tempfile::tempdir().unwrap();
    let store = store_at(&server.url(), 20);
    check(&store, work.path());
    assert_eq!(server.files(), Vec::<PathBuf>::new(), "nothing is left of what failed");
    let from = work.path().join("from");
    for key in ["x/1", "x/y/2", "z/1"] {
        store.put(key, &from, &mut *on()).unwrap();
    }
    let found = store.list("x/").unwrap();
    assert_eq!(found, [("x/1".to_owned(), 6), ("x/y/2".to_owned(), 6)]);
    assert_eq!(store.list("").unwrap().len(), 3);
    let told = store.examine("x/1", 6, &mut *on()).unwrap();
    assert_eq!((told.size, told.checksum.as_deref()), (6, Some("adler32:090a0296")));
    let told = store.examine("x/1", 7, &mut *on()).unwrap();
    assert_eq!((told.size, told.checksum), (6, None), "what is too short is not read");
}

#[test]
fn large_objects_come_and_go_in_pieces() {
    let Some(server) = Server::start() else { return };
    let work = tempfile::tempdir().unwrap();
    let store = store_at(&server.url(), 20);
    store.begin(&mut *on()).unwrap();
    let bytes: Vec<u8> = (0..40_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (from, to) = (work.path().join("from"), work.path().join("to"));
    fs::write(&from, &bytes).unwrap();
    let mut told = vec![];
    store
        .put("a/large.root", &from, &mut |done| {
            told.push(done);
            true
        })
        .unwrap();
    assert!(told.len() > 4 && told.is_sorted() && told.last() == Some(&40_000_000), "{told:?}");
    let stopped = store.put("a/other", &from, &mut |done| done < 20_000_000);
    assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
    let stopped = store.get("a/large.root", &to, &mut |done| done < 20_000_000);
    assert!(matches!(stopped, Err(Error::Stopped { .. })) && !to.exists(), "{stopped:?}");
    store.get("a/large.root", &to, &mut *on()).unwrap();
    assert!(fs::read(&to).unwrap() == bytes);
    let deadline = Instant::now() + WAIT;
    while server.files().len() > 1 {
        assert!(Instant::now() < deadline, "a part stays: {:?}", server.files());
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut parts = [vec![0; 10], vec![0; 3_000_000], vec![0; 251]];
    let offsets = [5_u64, 20_000_000, 39_999_749];
    let ranges = parts.iter_mut().zip(offsets);
    let mut ranges: Vec<_> =
        ranges.map(|(buffer, offset)| ObjectRange { offset, buffer: &mut buffer[..] }).collect();
    store.read("a/large.root", &mut ranges).unwrap();
    for (part, offset) in parts.iter().zip(offsets) {
        assert!(part[..] == bytes[offset as usize..][..part.len()]);
    }
    let mut part = [0; 10];
    let behind = store
        .read("a/large.root", &mut [ObjectRange { offset: 39_999_991, buffer: &mut part }])
        .unwrap_err();
    assert!(matches!(behind, Error::Corrupt { .. }), "{behind}");
    let none = store.read("a/none", &mut [ObjectRange { offset: 0, buffer: &mut part }]);
    assert!(matches!(none, Err(Error::NoObject { .. })), "{none:?}");
}

#[test]
fn a_copy_on_a_server_that_is_damaged_is_noticed() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("another letter", |object| {
            fs::write(object, b"sevem").unwrap();
            // The server keeps checksums, and takes them anew of files that were changed later, by the second.
            let file = File::options().write(true).open(object).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
        }),
        ("truncated", |object| fs::write(object, b"sev").unwrap()),
        ("longer", |object| fs::write(object, b"seven and more").unwrap()),
        ("gone", |object| fs::remove_file(object).unwrap()),
    ];
    let Some(server) = Server::start() else { return };
    for (number, (what, damage)) in damages.into_iter().enumerate() {
        let of = federation_on(&server);
        let name = format!("run{number}");
        let run = of.database(&name, b"seven");
        let archive = of.archive();
        archive.migrate(run, "eos", &mut *on()).unwrap();
        damage(&server.files()[0]);
        // Copies that are damaged before the file has left the disk keep it there.
        assert_eq!(archive.evict(run, &mut *on()).unwrap_err().kind(), ErrorKind::Denied, "{what}");
        archive.migrate(run, "eos", &mut *on()).unwrap();
        archive.sweep(&mut *on()).unwrap();
        archive.evict(run, &mut *on()).unwrap();
        damage(&server.files()[0]);
        let error = archive.stage(run, WAIT, &mut *on()).unwrap_err();
        assert!(
            [ErrorKind::Corrupt, ErrorKind::NotFound].contains(&error.kind()),
            "{what}: {error}"
        );
        let residence = of.catalogue.residence(run).unwrap();
        assert_eq!(residence.replicas[0].state, ReplicaState::Lost, "{what}");
        for file in server.files() {
            fs::remove_file(file).unwrap();
        }
        fs::remove_file(server.store().join(".femtobarn-store")).unwrap();
        fs::remove_dir_all(server.store()).unwrap();
        fs::create_dir(server.store()).unwrap();
        fs::set_permissions(server.store(), PermissionsExt::from_mode(0o777)).unwrap();
    }
}

#[test]
fn copies_are_not_lost_while_their_server_has_no_disk_mounted() {
    let Some(server) = Server::start() else { return };
    let of = federation_on(&server);
    let (run7, run8) = (of.database("run7", b"seven"), of.database("run8", b"eight"));
    let archive = of.archive();
    archive.migrate(run7, "eos", &mut *on()).unwrap();
    archive.evict(run7, &mut *on()).unwrap();
    let elsewhere = server.folder.path().join("elsewhere");
    fs::rename(server.store(), &elsewhere).unwrap();
    let unavailable = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    };
    unavailable(archive.stage(run7, WAIT, &mut *on()));
    fs::create_dir(server.store()).unwrap();
    unavailable(archive.stage(run7, WAIT, &mut *on()));
    unavailable(archive.migrate(run8, "eos", &mut *on()).map(drop));
    assert_eq!(of.catalogue.residence(run7).unwrap().state(), ResidenceState::Nearline);
    fs::remove_dir(server.store()).unwrap();
    fs::rename(&elsewhere, server.store()).unwrap();
    archive.stage(run7, WAIT, &mut *on()).unwrap();
    fs::write(server.store().join("something"), b"").unwrap();
    fs::remove_file(server.store().join(".femtobarn-store")).unwrap();
    let begun = store_at(&server.url(), 2).begin(&mut *on());
    assert!(begun.as_ref().unwrap_err().to_string().ends_with("does the server have its disk?"));
    unavailable(begun);
}

#[test]
fn a_server_that_hangs_is_not_waited_for_without_end() {
    let Some(server) = Server::start() else { return };
    let work = tempfile::tempdir().unwrap();
    let store = store_at(&server.url(), 2);
    store.begin(&mut *on()).unwrap();
    let (from, to) = (work.path().join("from"), work.path().join("to"));
    fs::write(&from, b"seven bytes").unwrap();
    store.put("a", &from, &mut *on()).unwrap();
    let began = Instant::now();
    server.suspend();
    for refused in [
        store.put("b", &from, &mut *on()).map(drop),
        store.get("a", &to, &mut *on()),
        store.stat("a").map(drop),
        store.remove("a", &mut *on()),
        store.list("").map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
    let stopped = store.examine("a", 11, &mut |_| false);
    assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    server.signal(Signal::SIGCONT);
    store.get("a", &to, &mut *on()).unwrap();
    assert_eq!(fs::read(&to).unwrap(), b"seven bytes");
}

#[test]
fn a_folder_that_may_not_be_written_is_denied() {
    let Some(server) = Server::start() else { return };
    let store = store_at(&server.url(), 20);
    store.begin(&mut *on()).unwrap();
    let work = tempfile::tempdir().unwrap();
    let from = work.path().join("from");
    fs::write(&from, b"seven bytes").unwrap();
    store.put("a/1", &from, &mut *on()).unwrap();
    fs::set_permissions(server.store(), PermissionsExt::from_mode(0o555)).unwrap();
    fs::set_permissions(server.store().join("a"), PermissionsExt::from_mode(0o555)).unwrap();
    let denied = store.put("b/1", &from, &mut *on());
    assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
}

#[test]
fn malformed_addresses_are_refused() {
    for (url, why) in [("http://a//b", "root://"), ("root://a//b?authz=x", "'?'")] {
        let settings = XrootdSettings { url: url.to_owned(), answer_seconds: 1, in_place: false };
        let error = XrootdStore::new(settings).unwrap_err();
        assert!(matches!(&error, Error::Invalid { what } if what.contains(why)), "{error}");
    }
}

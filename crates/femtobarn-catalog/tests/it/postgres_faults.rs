//! PostgreSQL that is full, slow, crowded, or not trusted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use femtobarn_catalog::{
    Commit, Contents, Csn, DatabaseState, ErrorKind, LocalCatalogue, VersionRow,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uuid::Uuid;

use crate::child::{Player, listen, say};
use crate::federation::{Federation, new_container, new_database, version};
use crate::postgres::Postgres;
use crate::storm::Storm;

/// A file system in memory, until this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let disk = SmallDisk(at);
        let mounted = disk.run(&["-t", "tmpfs", "tmpfs", "-o", &format!("size={size}")]);
        if !mounted {
            eprintln!("skipped: this machine does not let a test mount a file system");
        }
        mounted.then_some(disk)
    }

    fn grow(&self, size: &str) {
        assert!(self.run(&["-o", &format!("remount,size={size}")]));
    }

    fn run(&self, arguments: &[&str]) -> bool {
        let mut mount = Command::new("mount");
        mount.args(arguments).arg(&self.0).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

pub(crate) fn a_full_disk_loses_nothing(server: &Postgres) {
    let Some(disk) = SmallDisk::mount(server.folder().join("small"), "1536k") else { return };
    server.own(&disk.0, 0o700);
    server.psql(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.0.display()));
    server.psql("CREATE ROLE crowded LOGIN SUPERUSER");
    server.psql("ALTER ROLE crowded SET default_tablespace = small");
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let url = server.url_of("crowded");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &url).unwrap();
    let mut storm = Storm::new(&catalog, "run7", 1);
    let (kind, text) = storm.until_refused(&catalog);
    assert_eq!(kind, ErrorKind::Full, "{text}");
    assert!(text.contains("PostgreSQL"), "{text}");
    storm.check(&catalog);
    disk.grow("30m");
    storm.during(&catalog, || thread::sleep(Duration::from_millis(100)));
    storm.check(&catalog);
    server.psql(&format!("DROP SCHEMA femtobarn_{} CASCADE", catalog.uuid().simple()));
    server.psql("DROP TABLESPACE small");
}

/// The commits exist, but the connections for their answers are closed: they waited for a standby that does not exist.
pub(crate) fn commits_whose_answers_were_lost_are_found(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let mut storm = Storm::new(&catalog, "run7", 4);
    let set = |standby: &str| {
        server.psql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{standby}'"));
        server.psql("SELECT pg_reload_conf()");
    };
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    storm.during(&catalog, || {
        thread::sleep(Duration::from_millis(50));
        set("nobody");
        while server.psql(end) == "0" {
            thread::sleep(Duration::from_millis(5));
        }
        set("");
        thread::sleep(Duration::from_millis(50));
    });
    storm.check(&catalog);
    assert_eq!(catalog.head().unwrap(), storm.last(), "no gap");
}

/// Role: says the name of a transaction, and commits it when it is told to, again and again.
pub(crate) fn commit_when_told(folder: &Path) {
    let catalog = LocalCatalogue::open(folder).unwrap();
    let database = catalog.database("run7", Csn::MAX).unwrap().id;
    let events = catalog.container(database, "events", Csn::MAX).unwrap().id;
    let newest = catalog.version(database, events, Csn::MAX).unwrap();
    let mut base = newest.map(|row| row.csn);
    loop {
        let transaction = Uuid::new_v4();
        say(transaction);
        listen();
        let versions = vec![version(database, events, base, 1)];
        let commit = Commit { transaction, versions, ..Commit::default() };
        base = Some(catalog.commit(commit).unwrap());
    }
}

/// A process sends its commit together with the request for the lock, and dies. The session that has got all of it, and is
/// suspended, executes it when it is resumed.
pub(crate) fn a_commit_is_not_published_behind_a_look_up_that_did_not_find_it(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let database = new_database(&catalog, "run7", DatabaseState::Open).unwrap();
    let events = new_container(&catalog, database, "events").unwrap();
    let find = |transaction| catalog.find_commit(transaction, Csn::ZERO).unwrap();
    let sessions = || -> Vec<i32> {
        let of = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'femtobarn %'";
        server.psql(of).lines().map(|pid| pid.parse().unwrap()).collect()
    };
    let schema = format!("femtobarn_{}", catalog.uuid().simple());
    let older =
        format!("UPDATE {schema}.federation SET value = '3' WHERE key = 'postgresql_tables'");
    let arrived = format!("INSERT INTO {schema}.federation VALUES ('move', 'arrived')");
    for how in ["nothing", "an interrupted move", "a look-up", "a vacuum", "older tables"] {
        find(Uuid::new_v4());
        let others = sessions();
        let mut player = Player::start("commit when told", &place);
        player.hear().unwrap();
        player.tell("first");
        let transaction: Uuid = player.hear().unwrap().parse().unwrap();
        let own: Vec<_> = sessions().into_iter().filter(|pid| !others.contains(pid)).collect();
        let signal = |signal| own.iter().for_each(|pid| kill(Pid::from_raw(*pid), signal).unwrap());
        signal(Signal::SIGSTOP);
        player.tell("second");
        while !waits_at_socket(player.id()) {
            thread::sleep(Duration::from_millis(1));
        }
        match how {
            "a look-up" => assert_eq!(find(transaction), None),
            "a vacuum" => catalog.end_lost_commits().unwrap(),
            "an interrupted move" => drop(server.psql(&arrived)),
            "older tables" => drop(server.psql(&older)),
            _ => {}
        }
        player.kill();
        signal(Signal::SIGCONT);
        while sessions().iter().any(|pid| own.contains(pid)) {
            thread::sleep(Duration::from_millis(10));
        }
        let has_effect = ["nothing", "an interrupted move"].contains(&how);
        assert_eq!(find(transaction).is_some(), has_effect, "{how}");
    }
    // Programs that know only older tables may be there, so this one is applied under the lock.
    let newest = catalog.version(database, events, Csn::MAX).unwrap();
    let versions = vec![version(database, events, newest.map(|row| row.csn), 1)];
    let commit = Commit { transaction: Uuid::new_v4(), versions, ..Commit::default() };
    let (transaction, csn) = (commit.transaction, catalog.commit(commit).unwrap());
    assert_eq!(find(transaction), Some(csn));
}

/// Whether a thread of a process is in a system call whose first argument is a socket.
fn waits_at_socket(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks.flatten().any(|task| {
        let call = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        let first = call.split_whitespace().nth(1).and_then(|it| it.strip_prefix("0x"));
        let file = first.and_then(|it| u64::from_str_radix(it, 16).ok()).unwrap_or(u64::MAX);
        let file = fs::read_link(format!("/proc/{process}/fd/{file}"));
        file.is_ok_and(|file| file.to_string_lossy().starts_with("socket:"))
    })
}

pub(crate) fn a_slow_server_is_waited_for(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let url = format!("{}&connect_timeout=1", server.url());
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &url).unwrap();
    let mut storm = Storm::new(&catalog, "run7", 2);
    let error = storm.during(&catalog, || {
        thread::sleep(Duration::from_millis(100));
        server.signal_all(Signal::SIGSTOP);
        let error = LocalCatalogue::open(&place).unwrap_err();
        server.signal_all(Signal::SIGCONT);
        error
    });
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("has not answered in time"), "{error}");
    storm.check(&catalog);
}

/// A process uses no more connections than its limit.
pub(crate) fn many_threads_use_few_connections(server: &Postgres) {
    server.psql("CREATE ROLE few LOGIN CONNECTION LIMIT 9");
    server.psql("GRANT CREATE ON DATABASE postgres TO few");
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let url = server.url_of("few");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &url).unwrap();
    // The connection that made the tables ends on its own.
    while server.psql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'few'") != "1" {
        thread::sleep(Duration::from_millis(10));
    }
    let mut storm = Storm::new(&catalog, "run7", 16);
    storm.during(&catalog, || {
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| (0..40).for_each(|_| drop(catalog.history(1).unwrap())));
            }
        });
    });
    storm.check(&catalog);
    let error = LocalCatalogue::open(&place).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("too many connections"), "{error}");
}

/// More rows than the buffers of both sides have room for are inserted without waiting for each answer.
pub(crate) fn many_versions_are_restored(server: &Postgres) {
    let fed = Federation::new();
    let container = fed.container("events");
    let csn = fed.publish(container, None, 1).unwrap();
    let contents = fed.catalog.contents().unwrap();
    let one = contents.versions[0];
    let count = 7_000;
    let of = |n: u64| VersionRow { csn: Csn(csn.0 + n), ..one };
    let commit = |n: u64| {
        let mut row = contents.commits.last().unwrap().clone();
        row.csn = Csn(csn.0 + n);
        row
    };
    let mut commits = contents.commits.clone();
    commits.extend((1..count).map(commit));
    let versions = (0..count).map(of).collect();
    let contents = Contents { commits, versions, ..contents };
    let place = fed.keep.path().join("restored.fed");
    let restored = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    restored.restore(&contents).unwrap();
    assert_eq!(restored.versions(fed.database, container).unwrap().len() as u64, count);
    // Bytes that a transaction left to the log of a catalogue in a file are written by its commit.
    let file = place.join("databases/run7.root");
    fs::write(&file, [0; 64]).unwrap();
    let writes =
        vec![femtobarn_catalog::FileWrite { database: fed.database, offset: 8, bytes: vec![7; 4] }];
    let base = Some(Csn(csn.0 + count - 1));
    let versions = vec![version(fed.database, container, base, 2)];
    restored.commit(Commit { writes, versions, ..Commit::default() }).unwrap();
    assert_eq!(fs::read(&file).unwrap()[..16], [[0; 8], [7, 7, 7, 7, 0, 0, 0, 0]].concat());
}

/// Rows that did not change have the same mark, in whatever order PostgreSQL has them.
pub(crate) fn rows_rewritten_without_a_change_keep_the_mark_of_followers(server: &Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lhc.fed");
    let catalog = LocalCatalogue::create_in_postgres(&place, "lhc", &server.url()).unwrap();
    let csn = catalog.commit(Commit::default()).unwrap();
    ["a", "b", "c"].iter().for_each(|name| drop(catalog.create_tag(name, csn, "").unwrap()));
    let mark = catalog.rows_since(csn, None, false).unwrap().mark;
    let schema = format!("femtobarn_{}", catalog.uuid().simple());
    server.psql(&format!("UPDATE {schema}.tags SET message = message WHERE name = 'a'"));
    assert_eq!(catalog.rows_since(csn, None, false).unwrap().mark, mark);
}

pub(crate) fn a_server_that_is_not_trusted_is_refused(server: &mut Postgres) {
    let folder = tempfile::tempdir().unwrap();
    let made = ["ca", "other"].iter().all(|name| make_authority(folder.path(), name));
    if !made || !make_certificate(folder.path()) {
        return eprintln!("skipped: this machine has no openssl that makes certificates");
    }
    for name in ["server.pem", "server.key"] {
        let copy = server.folder().join(name);
        fs::copy(folder.path().join(name), &copy).unwrap();
        server.own(&copy, 0o600);
        let setting = if name == "server.pem" { "ssl_cert_file" } else { "ssl_key_file" };
        server.settings.push(format!("{setting}={}", copy.display()));
    }
    server.listen();
    let place = |name: &str| folder.path().join(name);
    let url = |host: &str, rest: &str| {
        format!("postgresql://postgres@{host}:{}/postgres?{rest}", server.port)
    };
    let verified = |host: &str, mode: &str, authority: &str| {
        url(host, &format!("sslmode={mode}&sslrootcert={}", place(authority).display()))
    };
    let create =
        |name: &str, url: &str| LocalCatalogue::create_in_postgres(&place(name), "lhc", url);
    let refused = |url: &str, text: &str| {
        let error = create("refused", url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    let all = verified("localhost", "verify-full", "ca.pem");
    refused(&all, "it does not encrypt, and sslmode in the URL demands that");
    server.psql("ALTER SYSTEM SET ssl = on");
    server.psql("SELECT pg_reload_conf()");
    while create("good.fed", &all).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    let good = LocalCatalogue::open(&place("good.fed")).unwrap();
    assert_eq!(good.commit(Commit::default()).unwrap(), Csn(1));
    create("any.fed", &verified("127.0.0.1", "verify-ca", "ca.pem")).unwrap();
    refused(
        &verified("localhost", "verify-full", "other.pem"),
        "is not signed by an authority of sslrootcert",
    );
    refused(
        &verified("localhost", "verify-ca", "other.pem"),
        "is not signed by an authority of sslrootcert",
    );
    refused(&verified("127.0.0.1", "verify-full", "ca.pem"), "for another name than 127.0.0.1");
    fs::write(place("empty.pem"), "").unwrap();
    refused(&verified("localhost", "verify-full", "empty.pem"), "it has no certificate");
    refused(&verified("localhost", "verify-full", "none.pem"), "none.pem cannot be used");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::Write;
            other.accept().unwrap().0.write_all(b"HTTP/1.1 400\r\n").unwrap();
        });
        refused(&format!("postgresql://postgres@127.0.0.1:{port}/postgres"), "is not PostgreSQL's");
    });
}

fn openssl(folder: &Path, arguments: &str) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args(arguments.split_whitespace()).current_dir(folder).stderr(Stdio::null());
    openssl.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

fn make_authority(folder: &Path, name: &str) -> bool {
    let make =
        format!("req -x509 {KEY} -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem");
    openssl(folder, &make)
}

fn make_certificate(folder: &Path) -> bool {
    fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl(folder, &format!("req {KEY} -subj /CN=localhost -keyout server.key -out server.csr"))
        && openssl(
            folder,
            "x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names \
             -out server.pem",
        )
}

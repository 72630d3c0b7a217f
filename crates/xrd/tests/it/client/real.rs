//! The client against a real server, whose program `XRD_TEST_XROOTD` names, such as `/usr/bin/xrootd`. If the variable
//! is not set, the tests report that and pass.
//!
//! The server refuses to run as the superuser; tests run as the superuser start it as the user `xrootd`.

use std::ffi::OsString;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use xrd::client::blocking::Client;
use xrd::client::{ClientError, Options, ReadPiece, Url};
use xrd::flags::*;
use xrd::request::AttributeAction;
use xrd::{ErrorCode, Location, QueryCode};

fn program() -> Option<OsString> {
    std::env::var_os("XRD_TEST_XROOTD").filter(|program| !program.is_empty())
}

/// A server with its folder.
struct Server {
    folder: TempDir,
    port: u16,
    process: Child,
}

impl Server {
    /// Starts a server with additional lines of configuration; `None` if no program is named.
    fn start(more: &str) -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("skipped: XRD_TEST_XROOTD names no server");
            return None;
        };
        let mut folder = TempDir::new().unwrap();
        for name in ["data", "admin"] {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        }
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let process = run(&program, folder.path(), port, more);
            let mut server = Server { folder, port, process };
            if server.has_started() {
                return Some(server);
            }
            // Another process has taken the port.
            let log = server.log();
            assert!(log.contains("address already in use"), "{log}");
            folder = std::mem::replace(&mut server.folder, TempDir::new().unwrap());
        }
        panic!("no port stays free");
    }

    /// Waits until the server listens, or has ended.
    fn has_started(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < deadline, "{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Kills the server and starts it again.
    fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let program = program().unwrap();
        self.process = run(&program, self.folder.path(), self.port, "");
        assert!(self.has_started(), "{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until the log has a text at least `times` times, since the server writes it after its answer.
    fn await_log(&self, text: &str, times: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.log().matches(text).count() < times {
            assert!(
                Instant::now() < deadline,
                "the log has {text:?} less than {times} times: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("root://127.0.0.1:{}/{path}", self.port)).unwrap()
    }

    fn client(&self, options: Options) -> Client {
        Client::connect(&self.url("/"), options).unwrap_or_else(|error| {
            panic!("{error}\n{}", self.log());
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn run(program: &std::ffi::OsStr, folder: &Path, port: u16, more: &str) -> Child {
    let place = folder.display();
    let config = format!(
        "all.export /\noss.localroot {place}/data\nall.adminpath {place}/admin\n\
         all.pidpath {place}/admin\nxrd.port {port}\nxrd.network nodnr\n\
         xrootd.chksum max 2 adler32 crc32c md5 chkcgi\n{more}\n"
    );
    std::fs::write(folder.join("config"), config).unwrap();
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(folder.join("config")).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log).current_dir(folder);
    if nix::unistd::geteuid().is_root() {
        let user = nix::unistd::User::from_name("xrootd").unwrap().expect("the user xrootd exists");
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command.spawn().unwrap()
}

fn at(path: &str) -> Location {
    Location::new(path.to_owned()).unwrap()
}

fn content(length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Writes a file through the client.
fn write(client: &Client, path: &str, bytes: &[u8]) {
    let options = OpenOptions::DELETE | OpenOptions::UPDATE | OpenOptions::MAKE_PATH;
    let file = client.open(&at(path), options).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
}

#[test]
fn files_are_written_and_read() {
    let Some(server) = Server::start("") else { return };
    let client = server.client(Options::default());
    let bytes = content(20_000_000);
    let options = OpenOptions::DELETE | OpenOptions::UPDATE;
    let file = client.open(&at("/file"), options).unwrap();
    file.write_at(0, &bytes[..9_000_000]).unwrap();
    file.write_checked(9_000_000, &bytes[9_000_000..]).unwrap();
    file.sync().unwrap();
    assert_eq!(file.stat().unwrap().size, 20_000_000);

    let mut found = vec![0; bytes.len() + 10];
    assert_eq!(file.read_at(0, &mut found).unwrap(), bytes.len());
    assert!(found[..bytes.len()] == bytes);
    found.fill(0);
    assert_eq!(file.read_checked(1000, &mut found).unwrap(), bytes.len() - 1000);
    assert!(found[..bytes.len() - 1000] == bytes[1000..]);
    assert_eq!(file.read_at(20_000_000, &mut found).unwrap(), 0);
    assert_eq!(file.read_checked(20_000_000, &mut found).unwrap(), 0);
    file.truncate(100).unwrap();
    assert_eq!(file.read_at(0, &mut found).unwrap(), 100);
    file.close().unwrap();
}

#[test]
fn deferred_writes_are_seen_by_later_stats_and_reads() {
    let Some(server) = Server::start("") else { return };
    let client = server.client(Options::default());
    let bytes = content(20_000_000);
    let file = client.open(&at("/file"), OpenOptions::DELETE | OpenOptions::UPDATE).unwrap();
    for (index, part) in bytes.chunks(1_000_000).enumerate() {
        file.write_later(index as u64 * 1_000_000, part).unwrap();
        if index % 7 == 0 {
            assert_eq!(file.stat().unwrap().size, (index as u64 + 1) * 1_000_000);
        }
    }
    let mut found = vec![0; bytes.len()];
    assert_eq!(file.read_at(0, &mut found).unwrap(), bytes.len());
    assert!(found == bytes);
    file.sync().unwrap();
}

#[test]
fn many_pieces_are_read_at_once() {
    let Some(server) = Server::start("") else { return };
    let client = server.client(Options::default());
    let bytes = content(12_000_000);
    write(&client, "/file", &bytes);
    let file = client.open(&at("/file"), OpenOptions::READ).unwrap();
    // More pieces than one request can have; adjacent, empty and large ones among them.
    let mut ranges: Vec<(usize, usize)> = (0..3000).map(|index| (index * 3100, 1000)).collect();
    ranges.extend([(0, 5_000_000), (7, 16), (23, 0), (23, 50_000), (50_023, 5), (1, 2_500_000)]);
    let mut buffers: Vec<Vec<u8>> = ranges.iter().map(|(_, length)| vec![0; *length]).collect();
    let pieces = ranges.iter().zip(&mut buffers);
    let mut pieces: Vec<ReadPiece<'_>> =
        pieces.map(|((offset, _), buffer)| ReadPiece { offset: *offset as u64, buffer }).collect();
    file.read_many(&mut pieces).unwrap();
    for ((offset, length), buffer) in ranges.iter().zip(&buffers) {
        assert!(buffer[..] == bytes[*offset..*offset + *length], "{length} bytes from {offset} on");
    }
    let mut buffer = [0; 100];
    for offset in [11_999_950, 11_999_900] {
        let mut other = [0; 8];
        let mut pieces = [
            ReadPiece { offset: 0, buffer: &mut other },
            ReadPiece { offset, buffer: &mut buffer },
        ];
        assert_eq!(file.read_many(&mut pieces).is_ok(), offset == 11_999_900);
    }
}

#[test]
fn large_reads_are_spread_over_streams() {
    let Some(server) = Server::start("") else { return };
    let client = server.client(Options { streams: 3, ..Options::default() });
    // The server logs this for each stream that is bound.
    server.await_log(" bound", 3);
    let bytes = content(30_000_001);
    write(&client, "/file", &bytes);
    let file = client.open(&at("/file"), OpenOptions::READ).unwrap();
    std::thread::scope(|scope| {
        for start in [0, 1, 4_000_000] {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                let mut found = vec![0; bytes.len()];
                let count = file.read_at(start as u64, &mut found).unwrap();
                assert_eq!(count, bytes.len() - start);
                assert!(found[..count] == bytes[start..]);
            });
        }
    });
}

#[test]
fn threads_share_a_connection() {
    let Some(server) = Server::start("") else { return };
    let client = server.client(Options::default());
    let bytes = content(3_000_000);
    write(&client, "/file", &bytes);
    let file = client.open(&at("/file"), OpenOptions::READ).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                for index in 0..200 {
                    let start = (index * 7919 + thread * 104_729) % 1_000_000;
                    let mut found = vec![0; 1 << (8 + (index + thread) % 12)];
                    assert_eq!(file.read_at(start as u64, &mut found).unwrap(), found.len());
                    assert!(found == bytes[start..start + found.len()]);
                }
            });
        }
    });
}

#[test]
fn tasks_share_a_connection() {
    let Some(server) = Server::start("") else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let options = Options { streams: 2, ..Options::default() };
        let client = xrd::client::Client::connect(&server.url("/"), options).await.unwrap();
        let bytes = content(10_000_000);
        let options = OpenOptions::DELETE | OpenOptions::UPDATE;
        let file = client.open(&at("/file"), options).await.unwrap();
        file.write_checked(0, &bytes).await.unwrap();
        file.sync().await.unwrap();
        let file = std::sync::Arc::new(file);
        let tasks = (0..8).map(|index| {
            let (file, bytes) = (file.clone(), bytes.clone());
            tokio::spawn(async move {
                let mut found = vec![0; 5_000_000];
                let start = index * 500_000;
                let read = file.read_at(start as u64, &mut found).await.unwrap();
                assert_eq!(read, found.len());
                assert!(found == bytes[start..start + found.len()]);
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
}

#[test]
fn all_requests_about_paths_succeed() {
    let Some(server) = Server::start("") else { return };
    let client = server.client(Options::default());
    client.ping().unwrap();
    let mode = Mode(0o755);
    client.mkdir(&at("/a/b"), MkdirOptions::MAKE_PATH, mode).unwrap();
    write(&client, "/a/b/file", b"some bytes");
    assert_eq!(client.stat(&at("/a/b/file")).unwrap().size, 10);
    let list = client.dirlist(&at("/a/b"), DirlistOptions::STAT).unwrap();
    assert_eq!(&list.entries[0].name[..], b"file");
    assert!(client.space(&at("/")).unwrap().writable_free_mib > 0);
    // The answer is delayed, since the server has to compute it.
    assert_eq!(client.checksum(&at("/a/b/file")).unwrap().digest, "15c103fc");
    let config = client.query(QueryCode::CONFIG, "readv_iov_max").unwrap();
    assert!(config.starts_with(b"1024"));
    assert_eq!(client.locate(&at("/a/b/file"), LocateOptions::default()).unwrap().len(), 1);

    let set = AttributeAction::Set(vec![("one".into(), "1".into())]);
    let outcomes = client.attributes(&at("/a/b/file"), set, FattrOptions::default()).unwrap();
    assert_eq!(outcomes.outcomes[0].error, None);
    let names = client.attribute_list(&at("/a/b/file"), true).unwrap();
    assert_eq!(names.attributes, [("one".into(), Some("1".into()))]);

    client.truncate(&at("/a/b/file"), 4).unwrap();
    client.chmod(&at("/a/b/file"), Mode(0o600)).unwrap();
    client.mv(&at("/a/b/file"), &at("/a/other")).unwrap();
    client.rm(&at("/a/other")).unwrap();
    let error = client.rm(&at("/a/other")).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NOT_FOUND));
    let text = error.to_string();
    assert!(text.contains("/a/other") && text.contains("127.0.0.1"), "{text}");
    client.rmdir(&at("/a/b")).unwrap();
}

#[test]
fn a_restart_of_the_server_fails_only_unsynced_writers() {
    let Some(mut server) = Server::start("") else { return };
    let client = server.client(Options::default());
    let bytes = content(100_000);
    for path in ["/read", "/synced", "/unsynced"] {
        write(&client, path, &bytes);
    }
    let read = client.open(&at("/read"), OpenOptions::READ).unwrap();
    let synced = client.open(&at("/synced"), OpenOptions::UPDATE).unwrap();
    let unsynced = client.open(&at("/unsynced"), OpenOptions::UPDATE).unwrap();
    synced.write_at(0, b"x").unwrap();
    synced.sync().unwrap();
    unsynced.write_at(1, b"y").unwrap();
    server.restart();
    let mut found = vec![0; 100_000];
    assert_eq!(read.read_at(0, &mut found).unwrap(), 100_000);
    assert!(found == bytes);
    synced.write_at(2, b"z").unwrap();
    let error = unsynced.sync().unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    let error = unsynced.write_at(1, b"y").unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
}

#[test]
fn unix_credentials_have_the_users_name() {
    let more = "xrootd.seclib libXrdSec.so\nsec.protocol unix\n";
    let Some(server) = Server::start(more) else { return };
    let client = server.client(Options { user: Some("ann".into()), ..Options::default() });
    write(&client, "/file", b"abc");
    server.await_log("login as ann", 1);
}

#[cfg(feature = "tls")]
#[test]
fn files_are_written_and_read_over_tls() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]);
    let made = made.unwrap();
    let folder = TempDir::new().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    if nix::unistd::geteuid().is_root()
        && let Ok(Some(user)) = nix::unistd::User::from_name("xrootd")
    {
        std::os::unix::fs::chown(&key, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        std::os::unix::fs::chown(folder.path(), Some(user.uid.as_raw()), None).unwrap();
    }
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o400)).unwrap();
    let place = folder.path().display();
    let tls = format!("xrd.tls {place}/cert.pem {place}/key.pem\nxrd.tlsca noverify\n");
    for (policy, scheme) in
        [("capable all", "root"), ("session", "root"), ("capable none", "roots")]
    {
        let Some(server) = Server::start(&format!("{tls}xrootd.tls {policy}\n")) else { return };
        let url = format!("{scheme}://127.0.0.1:{}", server.port);
        let options =
            Options { authorities: Some(certificate.clone()), streams: 1, ..Options::default() };
        let client = Client::connect(&Url::parse(&url).unwrap(), options)
            .unwrap_or_else(|error| panic!("{policy}: {error}\n{}", server.log()));
        let bytes = content(5_000_000);
        write(&client, "/file", &bytes);
        let file = client.open(&at("/file"), OpenOptions::READ).unwrap();
        let mut found = vec![0; bytes.len()];
        assert_eq!(file.read_at(0, &mut found).unwrap(), bytes.len(), "{policy}");
        assert!(found == bytes);
        server.await_log("TLS", 1);
    }
}

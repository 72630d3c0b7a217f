//! The status and metrics of a whole server, and the clients that may read them.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::net::TcpStream;
use std::time::Duration;

use femtobarn::{Federation, OpenOptions, TransactionOptions};
use femtobarn_server::Server;
use femtobarn_server::config::Config;
use tempfile::TempDir;
use xrd::ErrorCode;
use xrd::flags::OpenOptions as Flags;

use crate::catalogue::{class, events};
use crate::xroot::{Peer, open, read, to_make, write};

/// The answer to a request for a page.
pub(crate) fn get(server: SocketAddr, path: &str) -> String {
    ask(server, "GET", path)
}

/// The answer to a request without a body.
fn ask(server: SocketAddr, method: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(server).unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut bytes = vec![];
    socket.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A server of a federation and a folder, with these settings.
pub(crate) fn serving(settings: &str) -> (Server, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (fed, store) = (folder.path().join("lhc.fed"), folder.path().join("store"));
    Federation::create(&fed, "lhc").unwrap();
    std::fs::create_dir(&store).unwrap();
    let text = format!(
        "address = '127.0.0.1'\nport = 0\n{settings}\n[[export]]\nfolder = {fed:?}\n\
         [[export]]\nfolder = {store:?}"
    );
    (Server::start(Config::from_toml(&text).unwrap()).unwrap(), folder)
}

#[test]
fn metrics_are_refused_without_the_right_to_read_them() {
    let nobody = "auth.anonymous = 'nothing'\n";
    for (settings, is_told) in [
        ("", true),
        // Anonymous clients may read `/`, but not the metrics.
        ("http.metrics = 'closed'", false),
        (nobody, false),
        (&format!("{nobody}http.metrics = 'open'"), true),
        (&format!("{nobody}http.metrics_from = ['127.0.0.0/8']"), true),
        (&format!("{nobody}http.metrics_from = ['10.0.0.0/8']"), false),
    ] {
        let (server, _folder) = serving(settings);
        let answer = get(server.address(), "/metrics");
        assert_eq!(answer.starts_with("HTTP/1.1 200"), is_told, "{settings}: {answer}");
        assert!(get(server.address(), "/healthz").starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn metrics_have_request_times_by_kind_and_export() {
    let (server, _folder) = serving("auth.anonymous = 'all'");
    let mut peer = Peer::logged_in(server.address());
    let file = peer.open("/store/file", to_make());
    peer.ask(write(file, 0, b"0123456789"), b"0123456789");
    let file = peer.open("/store/file", Flags::READ);
    for _ in 0..3 {
        assert_eq!(peer.read(file, 0, 10), "0123456789");
    }
    let url = format!("root://{}//lhc.fed", server.address());
    let far = Federation::open_url(&url, OpenOptions::default()).unwrap();
    let mut transaction = far.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.create_database("run7").unwrap();
    let options = femtobarn::ContainerOptions::default();
    let key = transaction.create_container(database, "events", &class(), options).unwrap();
    transaction.extend(key, events(0..10)).unwrap();
    transaction.commit().unwrap();
    let metrics = get(server.address(), "/metrics");
    for line in [
        "# TYPE femtobarn_request_seconds histogram\n",
        "femtobarn_request_seconds_count{export=\"/store\",kind=\"open\"} 2\n",
        "femtobarn_request_seconds_bucket{export=\"/store\",kind=\"read\",le=\"+Inf\"} 3\n",
        "femtobarn_request_seconds_count{export=\"/store\",kind=\"write\"} 1\n",
        "femtobarn_request_seconds_count{export=\"/lhc.fed\",kind=\"commit\"} 1\n",
        "femtobarn_federation_commits_total{export=\"/lhc.fed\"} 1\n",
        "femtobarn_federation_sessions{export=\"/lhc.fed\"} 1\n",
        "# TYPE femtobarn_export_free_bytes gauge\n",
        "# TYPE process_resident_memory_bytes gauge\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    let status = server.status();
    assert!(status.memory_bytes > 1 << 20 && status.exports[0].total_bytes > 0);
    let waits = status.latencies.iter().find(|row| row.kind == "lock_wait").unwrap();
    assert!(waits.buckets.iter().sum::<u64>() > 0, "no wait for the locked database was counted");
}

/// The errors of a protocol that a server has counted, without kinds that did not occur.
fn errors(server: &Server, protocol: &str) -> Vec<(&'static str, u64)> {
    let status = server.status();
    let of_it = status.protocols.into_iter().find(|it| it.name == protocol).unwrap();
    of_it.errors.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn each_request_that_fails_is_counted_once_by_its_protocol_and_kind() {
    let ill = tempfile::tempdir().unwrap();
    let disk = ill.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    std::fs::write(disk.join("file"), "0123456789").unwrap();
    let faults = format!("[[export]]\nfolder = {disk:?}\nfaults = ['read:1+=EIO']\n");
    let (server, _folder) = serving(&format!("auth.anonymous = 'read'\n{faults}"));
    let address = server.address();
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    assert_eq!([errors(&server, "root"), errors(&server, "http")], [vec![], vec![]]);

    let mut peer = Peer::logged_in(address);
    assert_eq!(peer.refused(open("/store/none", Flags::READ), &[]), ErrorCode::NOT_FOUND);
    assert_eq!(peer.refused(open("/store/new", to_make()), &[]), ErrorCode::NOT_AUTHORIZED);
    let unreadable = peer.open("/disk/file", Flags::READ);
    assert_eq!(peer.refused(read(unreadable, 0, 10), &[]), ErrorCode::IO_ERROR);
    assert_eq!(errors(&server, "root"), [("denied", 1), ("not-found", 1), ("storage", 1)]);

    for (method, path) in [
        ("GET", "/store/none"),
        ("PROPFIND", "/store/none"),
        ("GET", "/api/tape/v1/stage/none"),
        ("GET", "/api/containers/none"),
        ("MKCOL", "/store/new"),
        ("GET", "/disk/file"),
    ] {
        assert!(ask(address, method, path).starts_with("HTTP/1.1 "), "{method} {path}");
    }
    assert_eq!(errors(&server, "http"), [("denied", 1), ("not-found", 4), ("storage", 1)]);

    assert_eq!(errors(&server, "grpc"), []);
    let url = format!("root://{address}//none.fed");
    assert!(Federation::open_url(&url, OpenOptions::default()).is_err());
    assert_eq!(errors(&server, "grpc"), [("not-found", 1)]);
    let metrics = get(address, "/metrics");
    for line in [
        "femtobarn_requests_total{protocol=\"http\"} 7\n",
        "femtobarn_errors_total{protocol=\"http\",kind=\"not-found\"} 4\n",
        "femtobarn_errors_total{protocol=\"grpc\",kind=\"conflict\"} 0\n",
        "femtobarn_errors_total{protocol=\"root\",kind=\"storage\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    assert_eq!(server.status().totals.errors, 3 + 6 + 1);
}

#[test]
fn status_lists_locks_with_their_names_and_holders() {
    let (server, _folder) = serving("auth.anonymous = 'all'");
    let url = format!("root://{}//lhc.fed", server.address());
    let far = Federation::open_url(&url, OpenOptions::default()).unwrap();
    let mut transaction = far.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.create_database("run7").unwrap();
    let options = femtobarn::ContainerOptions::default();
    transaction.create_container(database, "events", &class(), options).unwrap();
    transaction.commit().unwrap();
    let wait = Duration::from_secs(60);
    let options = TransactionOptions { lock_wait: wait, ..TransactionOptions::default() };
    let mut transaction = far.transaction(options).unwrap();
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(0..10)).unwrap();
    let locks = server.status().locks;
    let targets: Vec<_> = locks.iter().map(|lock| lock.target.as_str()).collect();
    assert_eq!(targets, ["container run7/events", "database run7"]);
    let process = format!("process {} on ", std::process::id());
    assert!(locks.iter().all(|lock| lock.by.contains(&process)), "{locks:?}");
    transaction.rollback();
}

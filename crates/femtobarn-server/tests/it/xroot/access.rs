//! Access of clients: TLS, authentication, rights, redirects.

use femtobarn_server::auth::{Action, Rights};
use femtobarn_server::config::TlsConfig;
use femtobarn_server::logical::placement::{Neighbour, Overflow, Replicas};
use femtobarn_server::tls::server_config;
use xrd::client::blocking::Client;
use xrd::client::{Options, Url};
use xrd::flags::{MkdirOptions, Mode};
use xrd::response::Redirect;

use super::*;

fn logical(folder: &TempDir, manner: ExportOptions) -> Logical {
    let storage = Arc::new(PosixStorage::new(folder.path()).unwrap());
    let mut exports = Exports::default();
    exports.add(&StoragePath::new(b"/").unwrap(), storage, manner).unwrap();
    Logical::new(Settings::default(), exports)
}

fn quick() -> ExportOptions {
    ExportOptions { is_quick: true, is_read_only: false }
}

fn guarded(authenticator: Authenticator) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let logical = Arc::new(logical(&folder, quick()));
    Server::of(folder, RootService::new(logical, authenticator))
}

fn unix(name: &str) -> Auth {
    Auth { protocol: *b"unix", credentials: format!("unix\0{name} users\0").into_bytes().into() }
}

#[test]
fn unauthenticated_clients_are_refused() {
    let server =
        guarded(Authenticator { unix: Some(Rights::reading()), ..Authenticator::default() });
    server.write("file", b"abc");
    let mut hasty = server.greeted();
    let answer = LoginAnswer::decode(&hasty.ok(login())).unwrap();
    assert_eq!(answer.security, "&P=unix");
    let refused = hasty.refused(open("/file", OpenOptions::READ), &[]);
    assert_eq!(refused, ErrorCode::INVALID_REQUEST);
    hasty.assert_closed();

    let mut wrong = server.greeted();
    wrong.ok(login());
    assert_eq!(wrong.refused(unix(""), &[]), ErrorCode::AUTH_FAILED);
    wrong.assert_closed();

    let mut peer = server.greeted();
    peer.session = LoginAnswer::decode(&peer.ok(login())).unwrap().session;
    // No connection can be bound to a session before its login is complete.
    let mut early = server.greeted();
    assert_eq!(early.refused(Bind { session: peer.session }, &[]), ErrorCode::NOT_FOUND);
    peer.ok(unix("alice"));
    let handle = peer.open("/file", OpenOptions::READ);
    assert_eq!(peer.read(handle, 0, 3), &b"abc"[..]);
    let session = server.logical.sessions.get(&peer.session.0).unwrap();
    assert_eq!(session.identity().unwrap().name, "alice");
    let denied = ErrorCode::NOT_AUTHORIZED;
    assert_eq!(peer.refused(open("/file", OpenOptions::UPDATE), &[]), denied);
    assert_eq!(peer.refused(open("/new", to_make()), &[]), denied);
    assert_eq!(peer.refused(Rm { location: at("/file") }, &[]), denied);
    let mkdir = Mkdir { options: MkdirOptions(0), mode: Mode(0), location: at("/a") };
    assert_eq!(peer.refused(mkdir, &[]), denied);
    assert_eq!(
        peer.refused(unix("root"), &[]),
        ErrorCode::AUTH_FAILED,
        "a session is one client's"
    );
}

#[test]
fn the_right_to_create_does_not_allow_changing_existing_files() {
    let rights = Rights::at("/in", &[Action::Create]);
    let server = guarded(Authenticator { anonymous: Some(rights), ..Authenticator::default() });
    std::fs::create_dir(server.folder.path().join("in")).unwrap();
    server.write("in/old", b"abc");
    let mut peer = server.client();
    peer.open("/in/new", OpenOptions::DELETE | OpenOptions::UPDATE);
    let emptied = open("/in/old", OpenOptions::DELETE | OpenOptions::UPDATE);
    assert_eq!(peer.refused(emptied, &[]), ErrorCode::IT_EXISTS);
    let denied = ErrorCode::NOT_AUTHORIZED;
    assert_eq!(peer.refused(open("/in/old", OpenOptions::UPDATE), &[]), denied);
    assert_eq!(peer.refused(open("/in/old", OpenOptions::READ), &[]), denied);
    assert_eq!(peer.refused(open("/out", to_make()), &[]), denied);
    let stat = |path| Stat {
        options: Default::default(),
        wants: Default::default(),
        target: FileRef::Location(at(path)),
    };
    peer.ok(stat("/in/old"));
    assert_eq!(peer.refused(stat("/"), &[]), denied);
    assert_eq!(server.bytes_of("in/old"), b"abc");
}

#[test]
fn read_only_exports_refuse_changes() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"abc").unwrap();
    let logical = Arc::new(logical(&folder, ExportOptions { is_quick: true, is_read_only: true }));
    let server = Server::of(folder, RootService::new(logical, Authenticator::open()));
    let mut peer = server.client();
    let read_only = ErrorCode::FS_READ_ONLY;
    assert_eq!(peer.refused(open("/file", OpenOptions::UPDATE), &[]), read_only);
    assert_eq!(peer.refused(open("/new", to_make()), &[]), read_only);
    assert_eq!(peer.refused(Rm { location: at("/file") }, &[]), read_only);
    assert_eq!(peer.refused(Mv { from: at("/file"), to: at("/x") }, &[]), read_only);
    peer.open("/file", OpenOptions::READ);
}

#[test]
fn several_exports_are_one_tree() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(two.path().join("file"), b"abc").unwrap();
    let mut exports = Exports::default();
    for (prefix, folder) in [("/data/one", &one), ("/data/two", &two)] {
        let storage = Arc::new(PosixStorage::new(folder.path()).unwrap());
        exports.add(&StoragePath::new(prefix.as_bytes()).unwrap(), storage, quick()).unwrap();
    }
    let logical = Arc::new(Logical::new(Settings::default(), exports));
    let server = Server::of(one, RootService::new(logical, Authenticator::open()));
    let mut peer = server.client();
    let mut list = |path: &str| {
        let list = Dirlist { options: Default::default(), location: at(path) };
        let body = peer.ok(list);
        let listed = xrd::response::DirectoryList::decode(&body).unwrap();
        let names = listed.entries.iter().map(|entry| entry.name.escape_ascii().to_string());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!([list("/"), list("/data"), list("/data/two")], ["data", "one two", "file"]);
    peer.open("/data/two/file", OpenOptions::READ);
    let not_found = ErrorCode::NOT_FOUND;
    assert_eq!(peer.refused(open("/data/three", OpenOptions::READ), &[]), not_found);
    assert_eq!(peer.refused(open("/data/onefile", OpenOptions::READ), &[]), not_found);
    assert_eq!(peer.refused(open("/data", OpenOptions::READ), &[]), ErrorCode::IS_DIRECTORY);
    assert_eq!(peer.refused(Rmdir { location: at("/data") }, &[]), ErrorCode::NOT_AUTHORIZED);
    let moved = Mv { from: at("/data/two/file"), to: at("/data/one/file") };
    assert_eq!(peer.refused(moved, &[]), ErrorCode::UNSUPPORTED);
}

#[test]
fn policies_redirect_clients() {
    let neighbour =
        Neighbour { host: "elsewhere.example".to_owned(), port: 1095, opaque: String::new() };
    let redirect = Redirect::Host { port: 1095, host: neighbour.host.clone() };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"abc").unwrap();
    let mut crowded = logical(&folder, quick());
    crowded.placement = Arc::new(Overflow { sessions_max: 1, neighbours: vec![neighbour.clone()] });
    let server = Server::of(folder, RootService::new(Arc::new(crowded), Authenticator::open()));
    let mut first = server.client();
    first.open("/file", OpenOptions::READ);
    let mut second = server.client();
    let sent = second.ask(open("/file", OpenOptions::READ), &[]);
    assert_eq!(sent, Response::Redirect(redirect.clone()));
    second.open("/file?tried=elsewhere.example", OpenOptions::READ);

    let folder = tempfile::tempdir().unwrap();
    let mut partial = logical(&folder, quick());
    partial.placement = Arc::new(Replicas { replicas: vec![(b"/raw".to_vec(), vec![neighbour])] });
    let server = Server::of(folder, RootService::new(Arc::new(partial), Authenticator::open()));
    let sent = server.client().ask(open("/raw/file", OpenOptions::READ), &[]);
    assert_eq!(sent, Response::Redirect(redirect));
}

#[test]
fn clients_follow_redirects() {
    let there = Server::start();
    std::fs::create_dir(there.folder.path().join("raw")).unwrap();
    there.write("raw/file", b"abc");
    let neighbour = Neighbour {
        host: "127.0.0.1".to_owned(),
        port: there.address.port(),
        opaque: String::new(),
    };
    let folder = tempfile::tempdir().unwrap();
    let mut here = logical(&folder, quick());
    here.placement = Arc::new(Replicas { replicas: vec![(b"/raw".to_vec(), vec![neighbour])] });
    let here = Server::of(folder, RootService::new(Arc::new(here), Authenticator::open()));
    let url = Url::parse(&format!("root://127.0.0.1:{}//", here.address.port())).unwrap();
    let client = Client::connect(&url, Options::default()).unwrap();
    let file = client.open(&at("/raw/file"), OpenOptions::READ).unwrap();
    let mut found = [0; 3];
    file.read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"abc");
}

/// A server with TLS, whose certificate is in its folder.
fn encrypted(requires_tls: bool) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("certificate"), folder.path().join("key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut service = RootService::new(Arc::new(logical(&folder, quick())), Authenticator::open());
    let tls = server_config(&TlsConfig { certificate, key, ..TlsConfig::default() }).unwrap();
    service.tls = tls.map(|(config, _)| config);
    service.requires_tls = requires_tls;
    Server::of(folder, service)
}

fn connect(server: &Server, scheme: &str) -> xrd::client::Result<Client> {
    let port = server.address.port();
    let url = Url::parse(&format!("{scheme}://localhost:{port}//")).unwrap();
    let authorities = Some(server.folder.path().join("certificate"));
    let patience = PATIENCE;
    let client = Client::connect(&url, Options { authorities, patience, ..Options::default() })?;
    client.ping()?;
    Ok(client)
}

#[test]
fn tls_connections_support_all_requests() {
    let server = encrypted(false);
    let content = pattern(3_000_000);
    let client = connect(&server, "roots").unwrap();
    let file = client.open(&at("/file"), to_make()).unwrap();
    file.write_checked(0, &content).unwrap();
    file.write_at(0, &content[..1000]).unwrap();
    let mut found = vec![0; content.len()];
    assert_eq!(file.read_at(0, &mut found).unwrap(), content.len());
    assert!(found == content, "read");
    found.fill(0);
    assert_eq!(file.read_checked(0, &mut found).unwrap(), content.len());
    assert!(found == content, "read with checksums");
    file.close().unwrap();
    assert!(server.bytes_of("file") == content, "the file");
    // TLS is optional for clients.
    connect(&server, "root").unwrap();
}

#[test]
fn unencrypted_clients_are_refused_if_tls_is_required() {
    let server = encrypted(true);
    connect(&server, "roots").unwrap();
    // A client that supports TLS is asked to use it.
    connect(&server, "root").unwrap();
    let mut plain = server.greeted();
    assert_eq!(plain.refused(login(), &[]), ErrorCode::TLS_REQUIRED);
    plain.assert_closed();
}

#[test]
fn bytes_injected_before_tls_close_the_connection() {
    let server = encrypted(false);
    let mut peer = server.greeted();
    let protocol = Protocol {
        version: xrd::ProtocolVersion::CURRENT,
        options: xrd::flags::ProtocolOptions::WANT_TLS,
        expect: xrd::codes::Expect::LOGIN,
    };
    let mut bytes = Vec::new();
    Request::from(protocol).encode(StreamId([0, 1]), &mut bytes).unwrap();
    Request::from(login()).encode(StreamId([0, 2]), &mut bytes).unwrap();
    peer.send_bytes(&bytes);
    peer.assert_closed();
    assert_eq!(server.logical.sessions.begun(), 0);
}

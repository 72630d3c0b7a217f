//! Whole servers behind a redirector: the rights that it asks for, its answers, and a silent server.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use femtobarn_server::Server;
use femtobarn_server::config::{Allowed, Config, UnixAllowed};
use tempfile::TempDir;
use xrd::client::blocking::Client;
use xrd::client::{ClientError, Options, Url};
use xrd::flags::{LocateOptions, MkdirOptions, Mode, OpenOptions, PrepareMore, PrepareOptions};
use xrd::response::LocatedServer;
use xrd::{ErrorCode, Location, QueryCode};

use crate::xroot::wait_until;

/// Two servers of folders, and a redirector to them, with different addresses.
struct Site {
    servers: [Server; 2],
    folder: TempDir,
    redirector: Server,
}

impl Site {
    fn start() -> Self {
        Self::start_with(&[], |_| {})
    }

    /// The redirector also redirects to these URLs, which need not be up; `set` changes its settings.
    fn start_with(others: &[String], set: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let servers = [1, 2].map(|number: u8| {
            let place = folder.path().join(number.to_string()).join("data");
            std::fs::create_dir_all(&place).unwrap();
            let mut config = local(number);
            config.auth.anonymous = Allowed::All;
            config.export(place, "/data".to_owned());
            Server::start(config).unwrap()
        });
        let mut config = local(1);
        config.redirect.to = servers.iter().map(|server| url(server, "/data")).collect();
        config.redirect.to.extend_from_slice(others);
        set(&mut config);
        let redirector = Server::start(config).unwrap();
        wait_until("both servers are up", || {
            redirector.status().data_servers.iter().take(2).all(|server| server.is_up)
        });
        Site { servers, folder, redirector }
    }

    /// The path of a file at a server, 1 or 2.
    fn at(&self, number: u8, name: &str) -> PathBuf {
        self.folder.path().join(number.to_string()).join("data").join(name)
    }

    fn put(&self, number: u8, name: &str) {
        std::fs::write(self.at(number, name), format!("{name} of {number}")).unwrap();
    }

    fn connect(&self, options: Options) -> Result<Client, ClientError> {
        Client::connect(&Url::parse(&url(&self.redirector, "/")).unwrap(), options)
    }

    fn client(&self) -> Client {
        self.connect(Options::default()).unwrap()
    }
}

fn local(number: u8) -> Config {
    let address = format!("127.0.0.{number}");
    let mut config = Config { address, port: 0, ..Config::default() };
    config.limits.drain_seconds = 0;
    config
}

fn url(server: &Server, path: &str) -> String {
    format!("root://{}/{path}", server.address())
}

fn at(path: &str) -> Location {
    Location::new(path.to_owned()).unwrap()
}

/// The code and text of a server's refusal.
fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (ErrorCode, String) {
    match answer.unwrap_err() {
        ClientError::Refused { code, message, .. } => (code, message),
        other => panic!("{other}"),
    }
}

/// A server that accepts connections and never answers: its URL, and the number of accepted connections.
fn silent_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.3:0").unwrap();
    let url = format!("root://{}//data", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    // The thread ends with the process of the tests.
    std::thread::spawn(move || {
        let mut held = vec![];
        for socket in listener.incoming() {
            held.push(socket);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (url, accepted)
}

#[test]
fn a_silent_server_delays_no_client() {
    let (silent, accepted) = silent_server();
    let site = Site::start_with(&[silent], |_| {});
    site.put(2, "file");
    let client = site.client();
    // Whether the silent server is known to be down yet makes no difference for files of the other ones.
    assert_eq!(client.stat(&at("/data/file")).unwrap().size, 9);
    let status = || site.redirector.status().data_servers[2].clone();
    wait_until("it counts as down", || !status().why_down.contains("not asked"));
    assert!(!status().is_up && accepted.load(Ordering::SeqCst) >= 1);
    assert_eq!(client.stat(&at("/data/file")).unwrap().size, 9);
    let (code, said) = refusal(client.stat(&at("/data/none")));
    assert_eq!(code, ErrorCode::NOT_FOUND, "{said}");
    // Clients learn no more of its state.
    assert!(said.contains(" is down") && !said.contains("answer"), "{said}");
    wait_until("it is asked again", || accepted.load(Ordering::SeqCst) >= 2);
    client.mkdir(&at("/data/new"), MkdirOptions::default(), Mode(0o755)).unwrap();
    assert!(site.at(1, "new").is_dir() != site.at(2, "new").is_dir());
}

#[test]
fn the_redirector_asks_for_the_rights_of_its_clients() {
    let closed = |config: &mut Config| {
        config.auth.anonymous = Allowed::Nothing;
        config.auth.unix = UnixAllowed(Allowed::Read);
    };
    let site = Site::start_with(&[], closed);
    site.put(2, "file");
    let nobody = site.connect(Options { without_credentials: true, ..Options::default() });
    assert!(matches!(nobody.unwrap_err(), ClientError::Login { .. }));
    let user = Some("ann".to_owned());
    let client = site.connect(Options { user, ..Options::default() }).unwrap();
    assert_eq!(client.stat(&at("/data/file")).unwrap().size, 9);
}

#[test]
fn a_path_that_is_not_moved_stays_where_it_is() {
    let site = Site::start();
    let client = site.client();
    for (number, name) in [(1, "one"), (2, "two")] {
        site.put(number, name);
    }
    let (code, said) = refusal(client.mv(&at("/data/one"), &at("/data/two")));
    assert_eq!(code, ErrorCode::UNSUPPORTED);
    let other = site.servers[1].address();
    assert!(said.contains(&format!("/data/two exists at {other}")), "{said}");
    assert!(site.at(1, "one").exists() && site.at(2, "two").exists());
    client.mv(&at("/data/one"), &at("/data/three")).unwrap();
    assert!(site.at(1, "three").exists() && !site.at(1, "one").exists());
}

#[test]
fn files_are_prepared_where_all_of_them_are() {
    let site = Site::start();
    let client = site.client();
    for (number, name) in [(1, "both"), (2, "both"), (2, "two"), (1, "one")] {
        site.put(number, name);
    }
    let (options, more) = (PrepareOptions::STAGE, PrepareMore::default());
    let prepare = |names: &[&str]| {
        let locations: Vec<_> = names.iter().map(|name| at(&format!("/data/{name}"))).collect();
        client.prepare(&locations, options, more, 0)
    };
    prepare(&["both", "two"]).unwrap();
    let (code, said) = refusal(prepare(&["one", "two"]));
    assert_eq!(code, ErrorCode::UNSUPPORTED);
    assert!(said.contains("send a request for each"), "{said}");
    assert_eq!(refusal(prepare(&["one", "none"])).0, ErrorCode::NOT_FOUND);
    let (code, said) = refusal(client.query(QueryCode::PREPARE, "some-id"));
    assert_eq!(code, ErrorCode::UNSUPPORTED);
    assert!(said.contains("ask that one"), "{said}");
    let cancelled = client.prepare(&[at("some-id")], PrepareOptions::CANCEL, more, 0);
    assert_eq!(refusal(cancelled).0, ErrorCode::UNSUPPORTED);
}

#[test]
fn all_servers_are_named() {
    let site = Site::start();
    site.put(2, "two");
    let client = site.client();
    let named = |path: &str| {
        let found = client.locate(&at(path), LocateOptions::default()).unwrap();
        let mut found: Vec<_> = found.into_iter().map(|it: LocatedServer| it.address).collect();
        found.sort();
        found
    };
    let all = site.servers.each_ref().map(|server| {
        let address = server.address();
        format!("[::{}]:{}", address.ip(), address.port())
    });
    assert_eq!(named("*"), all);
    assert_eq!(named("*/data"), all);
    assert_eq!(named("*/data/two"), all[1..]);
}

#[test]
fn files_of_other_servers_take_no_space_at_the_redirector() {
    let site = Site::start();
    assert_eq!(site.redirector.exports(), ["/data"]);
    assert!(site.redirector.status().exports.is_empty());
}

#[test]
fn a_client_that_came_back_is_sent_to_the_only_server_left() {
    let site = Site::start();
    for number in [1, 2] {
        site.put(number, "file");
    }
    let client = site.client();
    let tried = |host: &str| {
        let file = client.open(&at(&format!("/data/file?tried={host}")), OpenOptions::READ);
        let (file, mut found) = (file.unwrap(), [0; 9]);
        file.read_at(0, &mut found).unwrap();
        String::from_utf8(found.to_vec()).unwrap()
    };
    assert_eq!(tried("127.0.0.1"), "file of 2".to_owned());
    assert_eq!(tried("127.0.0.2"), "file of 1".to_owned());
}

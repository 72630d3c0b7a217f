//! Bearer tokens over TLS, from login to commit: `root://` and gRPC with the clients of both.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use femtobarn_catalog::{Catalogue, Commit, ContainerId, Csn, ErrorKind, LocalCatalogue};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use femtobarn_server::Server;
use femtobarn_server::auth::Issuer;
use femtobarn_server::config::{Allowed, Config};
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;
use xrd::Location;
use xrd::client::blocking::Client;
use xrd::client::{ClientCertificate, ClientError, Options, Token, Url};
use xrd::flags::OpenOptions;

pub(crate) const ISSUER: &str = "https://issuer.example";
/// Longer than any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);
pub(crate) const AUDIENCE: &str = "root://storage.example";

/// A server with TLS that demands tokens; it serves a federation and a folder, and has an audit log.
pub(crate) struct Guarded {
    pub(crate) server: Server,
    pub(crate) config: Config,
    pub(crate) key: EncodingKey,
    pub(crate) certificate: PathBuf,
    pub(crate) folder: TempDir,
}

impl Guarded {
    pub(crate) fn start() -> Self {
        Guarded::start_with(|config| config.auth.anonymous = Allowed::Nothing)
    }

    /// Starts the server with other settings.
    pub(crate) fn start_with(set: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(at("certificate"), made.cert.pem()).unwrap();
        std::fs::write(at("key"), made.signing_key.serialize_pem()).unwrap();
        let key = signing_key(&at("issuers"));
        LocalCatalogue::create(&at("lhc.fed"), "lhc").unwrap();
        std::fs::create_dir(at("store")).unwrap();
        std::fs::write(at("store/file"), "for the authorised").unwrap();
        let mut config = Config { address: "127.0.0.1".into(), port: 0, ..Config::default() };
        config.export(at("lhc.fed"), String::new());
        config.export(at("store"), String::new());
        config.tls.certificate = at("certificate");
        config.tls.key = at("key");
        config.auth.audiences = vec![AUDIENCE.to_owned()];
        let issuer = Issuer { issuer: ISSUER.into(), keys: at("issuers"), base: String::new() };
        config.auth.issuers = vec![issuer];
        config.audit.file = at("audit");
        set(&mut config);
        let server = Server::start(config.clone()).unwrap();
        Guarded { server, config, key, certificate: at("certificate"), folder }
    }

    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://localhost:{}/{path}", self.server.address().port())
    }

    /// The answer to a request for a page with a bearer token.
    fn get_page(&self, path: &str, token: &str) -> String {
        self.ask("GET", path, token, "")
    }

    /// The answer to a request with a bearer token.
    pub(crate) fn ask(&self, method: &str, path: &str, token: &str, body: &str) -> String {
        self.ask_with(method, path, &format!("Authorization: Bearer {token}\r\n"), body)
    }

    /// The answer to a request with these headers.
    pub(crate) fn ask_with(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        self.try_ask(method, path, headers, body, None).unwrap()
    }

    /// The answer to a client that may have a certificate, which may be refused.
    pub(crate) fn try_ask(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
        own: Option<&ClientCertificate>,
    ) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.certificate).unwrap()).unwrap();
        let provider = rustls::crypto::ring::default_provider().into();
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some(own) => {
                let chain = CertificateDer::from_pem_file(&own.certificate).unwrap();
                let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
                config.with_client_auth_cert(vec![chain], key).unwrap()
            }
        };
        let name = "localhost".try_into().unwrap();
        let secret = ClientConnection::new(config.into(), name).unwrap();
        let socket = TcpStream::connect(self.server.address()).unwrap();
        let mut stream = StreamOwned::new(secret, socket);
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut text = Vec::new();
        match stream.read_to_end(&mut text) {
            Err(error) if text.is_empty() => Err(error),
            // The server may close the connection without a closing message of TLS.
            _ => Ok(String::from_utf8(text).unwrap()),
        }
    }

    pub(crate) fn token(&self, scope: &str) -> String {
        self.token_for(scope, 660)
    }

    /// A token that is valid for this number of seconds.
    pub(crate) fn token_for(&self, scope: &str, seconds: u64) -> String {
        self.token_of("alice", scope, seconds)
    }

    /// A token for another subject.
    fn token_of(&self, subject: &str, scope: &str, seconds: u64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        // Clocks may differ by a minute.
        let expires = now + seconds - 60;
        self.token_with(&json!({"sub": subject, "exp": expires, "scope": scope}))
    }

    /// A token of alice for this server without a scope, but for these changes.
    pub(crate) fn token_with(&self, changes: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({"iss": ISSUER, "sub": "alice", "aud": AUDIENCE, "exp": now + 600});
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        encode(&Header::new(Algorithm::ES256), &claims, &self.key).unwrap()
    }

    pub(crate) fn catalogue(
        &self,
        scheme: &str,
        scope: Option<&str>,
    ) -> femtobarn_catalog::Result<RemoteCatalogue> {
        self.catalogue_by(scheme, scope.map(|scope| self.token(scope)))
    }

    pub(crate) fn catalogue_by(
        &self,
        scheme: &str,
        token: Option<String>,
    ) -> femtobarn_catalog::Result<RemoteCatalogue> {
        self.catalogue_with(scheme, ConnectOptions { token, ..ConnectOptions::default() })
    }

    fn catalogue_with(
        &self,
        scheme: &str,
        options: ConnectOptions,
    ) -> femtobarn_catalog::Result<RemoteCatalogue> {
        let options = ConnectOptions {
            certificate: Some(std::fs::read(&self.certificate).unwrap()),
            patience: Duration::from_secs(20),
            ..options
        };
        RemoteCatalogue::connect(&self.url(scheme, "/lhc.fed"), &options)
    }

    pub(crate) fn client(&self, scheme: &str, scope: &str) -> xrd::client::Result<Client> {
        self.client_by(scheme, Some(self.token(scope)))
    }

    pub(crate) fn client_by(
        &self,
        scheme: &str,
        token: Option<String>,
    ) -> xrd::client::Result<Client> {
        let without_credentials = token.is_none();
        let token = token.map(Token);
        self.client_with(scheme, Options { without_credentials, token, ..Options::default() })
    }

    fn client_with(&self, scheme: &str, options: Options) -> xrd::client::Result<Client> {
        let url = Url::parse(&self.url(scheme, "/")).unwrap();
        let options = Options { authorities: Some(self.certificate.clone()), ..options };
        Client::connect(&url, options)
    }
}

/// A key, and its public part as a file of the issuer's keys.
fn signing_key(file: &Path) -> EncodingKey {
    let pair = rcgen::KeyPair::generate().unwrap();
    let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
    let set = JwkSet { keys: vec![Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap()] };
    std::fs::write(file, serde_json::to_vec(&set).unwrap()).unwrap();
    key
}

#[test]
fn a_token_gives_its_rights_to_a_catalogue() {
    let guarded = Guarded::start();
    let reader = guarded.catalogue("roots", Some("storage.read:/lhc.fed")).unwrap();
    assert_eq!(reader.head().unwrap().0, 0);
    assert!(reader.reserve_database().is_err(), "the token allows only reading");
    let find = |by: &RemoteCatalogue| by.find_commit(Uuid::nil(), Csn::ZERO);
    let refused = find(&reader).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "PostgreSQL would write for each: {refused}");
    for right in ["femtobarn.write", "storage.create", "femtobarn.drop"] {
        let scope = format!("storage.read:/ {right}:/lhc.fed");
        let committer = guarded.catalogue("roots", Some(&scope)).unwrap();
        assert_eq!(find(&committer).unwrap(), None, "{right}");
    }
    let writer =
        guarded.catalogue("roots", Some("storage.read:/ storage.modify:/lhc.fed")).unwrap();
    assert_eq!(writer.reserve_database().unwrap().0, 1);
    let elsewhere = guarded.catalogue("roots", Some("storage.read:/store"));
    assert!(elsewhere.is_err(), "the token is for another path");
    assert_eq!(guarded.catalogue("roots", None).unwrap_err().kind(), ErrorKind::Denied);
}

/// The client once retried for a minute, as it does with a server that restarts.
#[test]
fn an_untrusted_certificate_is_an_error_at_once() {
    let guarded = Guarded::start();
    let options = ConnectOptions { patience: LONG, ..ConnectOptions::default() };
    let refused = RemoteCatalogue::connect(&guarded.url("roots", "/lhc.fed"), &options);
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("cannot be reached") && text.contains("SSL_CERT_FILE"), "{text}");

    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let trusted = guarded.folder.path().join("another");
    std::fs::write(&trusted, other.cert.pem()).unwrap();
    let url = Url::parse(&guarded.url("roots", "/")).unwrap();
    let options = Options { authorities: Some(trusted), ..Options::default() };
    let error = Client::connect(&url, options).unwrap_err();
    let is_said =
        matches!(&error, ClientError::Unreachable { reason, .. } if reason.contains("TLS"));
    assert!(is_said, "{error:?}");
}

#[test]
fn reload_takes_a_new_certificate_and_refuses_an_invalid_one() {
    let guarded = Guarded::start();
    let mut config = guarded.config.clone();
    let scope = Some("storage.read:/lhc.fed");
    let old = std::fs::read(&guarded.certificate).unwrap();
    std::fs::write(&guarded.certificate, "no certificate").unwrap();
    let wrong = guarded.server.reload(&config).unwrap_err();
    assert!(wrong.iter().any(|what| what.contains("tls.certificate")), "{wrong:?}");
    std::fs::write(&guarded.certificate, &old).unwrap();
    assert!(guarded.catalogue("roots", scope).is_ok(), "the old certificate stays");

    let new = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&guarded.certificate, new.cert.pem()).unwrap();
    std::fs::write(&config.tls.key, new.signing_key.serialize_pem()).unwrap();
    guarded.server.reload(&config).unwrap();
    assert!(guarded.catalogue("roots", scope).is_ok(), "the new certificate, the only trusted one");
    config.limits.connections += 1;
    assert!(guarded.server.reload(&config).unwrap_err()[0].contains("restart"));
    std::fs::write(guarded.folder.path().join("issuers"), "no keys").unwrap();
    assert!(guarded.server.reload(&guarded.config).unwrap_err()[0].contains("keys of"));
    assert!(guarded.catalogue("roots", scope).is_ok(), "the old keys stay");
}

#[test]
fn a_token_is_refused_without_tls() {
    let guarded = Guarded::start();
    let scope = "storage.read:/ storage.modify:/";
    assert_eq!(guarded.catalogue("root", Some(scope)).unwrap_err().kind(), ErrorKind::Denied);
    let file = Location::new("/store/file").unwrap();
    let plain = guarded.client("root", scope).and_then(|c| c.open(&file, OpenOptions::READ));
    assert!(plain.is_err());
}

#[test]
fn a_token_with_rights_to_the_top_reads_the_metrics() {
    let guarded = Guarded::start();
    let metrics = |scope| guarded.get_page("/metrics", &guarded.token(scope));
    assert!(metrics("storage.read:/").starts_with("HTTP/1.1 200"));
    assert!(metrics("storage.read:/store").starts_with("HTTP/1.1 403"));
    assert!(guarded.get_page("/metrics", "none").starts_with("HTTP/1.1 401"));
}

#[test]
fn a_token_gives_its_rights_to_files() {
    let guarded = Guarded::start();
    let client = guarded.client("roots", "storage.read:/store").unwrap();
    let file = client.open(&Location::new("/store/file").unwrap(), OpenOptions::READ).unwrap();
    let mut text = vec![0; 100];
    let count = file.read_at(0, &mut text).unwrap();
    assert_eq!(&text[..count], b"for the authorised");
    let new = Location::new("/store/new").unwrap();
    let creating = OpenOptions::NEW | OpenOptions::UPDATE;
    assert!(client.open(&new, creating).is_err(), "the token allows only reading");
    let writer = guarded.client("roots", "storage.create:/store").unwrap();
    writer.open(&new, creating).unwrap().write_at(0, b"x").unwrap();
    assert!(guarded.folder.path().join("store/new").exists());
}

/// These clients once had the rights of anonymous ones over `root://`, and could commit but not write files.
#[test]
fn a_token_counts_where_anonymous_clients_may_read() {
    let guarded = Guarded::start_with(|_| {});
    let at = |path: &str| Location::new(path.to_owned()).unwrap();
    let creating = OpenOptions::NEW | OpenOptions::UPDATE;
    let may = |client: &Client, name: &str| {
        let reads = client.open(&at("/store/file"), OpenOptions::READ).is_ok();
        (reads, client.open(&at(&format!("/store/{name}")), creating).is_ok())
    };
    let both = "storage.read:/ storage.create:/store";
    assert_eq!(may(&guarded.client("roots", both).unwrap(), "a"), (true, true));
    let narrow = guarded.client("roots", "storage.read:/lhc.fed").unwrap();
    assert_eq!(may(&narrow, "b"), (false, false), "it has the rights of its token alone");
    let anonymous = guarded.client_by("roots", None).unwrap();
    assert_eq!(may(&anonymous, "b"), (true, false));
    assert_eq!(may(&guarded.client("root", both).unwrap(), "b"), (true, false), "without TLS");
    let wrong = guarded.client_by("roots", Some("no.token".to_owned()));
    assert!(wrong.is_err_and(|error| error.to_string().contains("the token is refused")));
}

#[test]
fn a_token_of_a_request_is_refused_without_tls() {
    let guarded = Guarded::start_with(|_| {});
    let token = guarded.token("storage.create:/store");
    let new = Location::new(format!("/store/new?authz=Bearer%20{token}")).unwrap();
    let creating = OpenOptions::NEW | OpenOptions::UPDATE;
    let open = |scheme| guarded.client_by(scheme, None).unwrap().open(&new, creating);
    let error = open("root").unwrap_err().to_string();
    assert!(error.contains("over TLS"), "{error}");
    assert!(!guarded.folder.path().join("store/new").exists());
    open("roots").unwrap();
}

/// This session could once open no more files until its client connected again.
#[test]
fn a_session_loses_its_rights_with_its_token_and_has_those_of_the_next() {
    /// The token that clients find.
    static FOUND: Mutex<Option<String>> = Mutex::new(None);
    fn found() -> Option<String> {
        FOUND.lock().clone()
    }
    let find_token = || found().map(Token);
    let guarded = Guarded::start_with(|config| {
        config.auth.anonymous = Allowed::Nothing;
        (config.limits.lease_seconds, config.limits.grace_seconds) = (1, 0);
    });
    let scope = "storage.read:/ storage.modify:/";
    let file = Location::new("/store/file").unwrap();
    let lasting = guarded.catalogue("roots", Some(scope)).unwrap();
    let database = lasting.reserve_database().unwrap();
    let container = ContainerId(1);
    // On a busy machine a token may have expired before it was used for all of this.
    let (client, open, catalogue, lock) = (0..20)
        .find_map(|_| {
            *FOUND.lock() = Some(guarded.token_for(scope, 3));
            let options = Options { find_token, ..Options::default() };
            let client = guarded.client_with("roots", options).ok()?;
            let open = client.open(&file, OpenOptions::READ).ok()?;
            let options = ConnectOptions { find_token: found, ..ConnectOptions::default() };
            let catalogue = guarded.catalogue_with("roots", options).ok()?;
            let lock = catalogue.locks().lock_container(database, container, LONG).ok()?;
            Some((client, open, catalogue, lock))
        })
        .expect("a token is valid for three seconds");
    let next = lasting.locks().lock_container(database, container, LONG);
    assert!(next.is_ok(), "the lock is free when the token has expired");
    assert!(open.read_at(0, &mut [0; 3]).is_ok(), "what is open stays open");
    let error = client.open(&file, OpenOptions::READ).unwrap_err().to_string();
    assert!(error.contains("expired"), "{error}");
    assert_eq!(catalogue.head().unwrap_err().kind(), ErrorKind::Denied);
    drop(lock);

    *FOUND.lock() = Some(guarded.token_of("bob", scope, 660));
    let error = client.open(&file, OpenOptions::READ).unwrap_err().to_string();
    assert!(error.contains("expired"), "a session is one client's: {error}");
    *FOUND.lock() = Some(guarded.token(scope));
    let _other = client.open(&file, OpenOptions::READ).unwrap();
    let sessions = guarded.server.status().sessions;
    let has_both = sessions.iter().any(|it| it.protocol == "root" && it.open_files == 2);
    assert!(has_both, "the session goes on: {sessions:?}");
    assert_eq!(catalogue.head().unwrap().0, 0);
    assert_eq!(catalogue.reserve_database().unwrap().0, 2);
}

/// The server once ended the session unanswered, so that the client could not know whether the commit was made. A commit after
/// the session had ended waited for the client's patience, and told of a server that does not answer.
#[test]
fn a_commit_with_a_token_that_has_expired_is_denied() {
    for lease_seconds in [60, 1] {
        let guarded = Guarded::start_with(|config| {
            config.auth.anonymous = Allowed::Nothing;
            (config.limits.lease_seconds, config.limits.grace_seconds) = (lease_seconds, 0);
        });
        let scope = "storage.read:/ storage.modify:/";
        // On a busy machine a token may have expired before it was used for all of this.
        let (token, catalogue, _lock) = (0..20)
            .find_map(|_| {
                let token = guarded.token_for(scope, 3);
                let options = ConnectOptions {
                    token: Some(token.clone()),
                    find_token: || None,
                    ..ConnectOptions::default()
                };
                let catalogue = guarded.catalogue_with("roots", options).ok()?;
                let database = catalogue.reserve_database().ok()?;
                let lock = catalogue.locks().lock_container(database, ContainerId(1), LONG).ok()?;
                Some((token, catalogue, lock))
            })
            .expect("a token is valid for three seconds");
        while guarded.client_by("roots", Some(token.clone())).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
        let has_ended = || guarded.server.status().locks.is_empty();
        while lease_seconds == 1 && !has_ended() {
            std::thread::sleep(Duration::from_millis(50));
        }
        let commit = Commit { transaction: Uuid::from_u128(7), ..Commit::default() };
        let error = catalogue.commit(commit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("expired"), "{error}");
    }
}

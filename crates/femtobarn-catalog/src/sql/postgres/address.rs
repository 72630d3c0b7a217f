//! The URL of a catalogue in PostgreSQL:
//! `postgresql://user:password@host:port,host:port/database?sslmode=verify-full&target_session_attrs=read-write`.
//!
//! `host` may be the folder of a socket, with `%2F` for `/`, or as the parameter `host=/run/postgresql`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::password_file;
use crate::clock;
use crate::error::{Error, Result};
use crate::host;

const DEFAULT_PORT: u16 = 5432;
const DEFAULT_HOST: &str = "/var/run/postgresql";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a server that accepts no changes is not asked again whether it accepts them.
const ASKED_AGAIN: Duration = Duration::from_secs(1);
/// Parameters of the URL that are understood.
const PARAMETERS: [&str; 11] = [
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "connect_timeout",
    "application_name",
    "passfile",
];

/// Where PostgreSQL is, and how to log in there.
pub(crate) struct PostgresAddress {
    /// Hosts, or folders of sockets, and ports; they are tried in this order.
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) user: String,
    password: Option<String>,
    password_file: Option<PathBuf>,
    pub(super) database: String,
    pub(super) tls: TlsMode,
    /// The authorities that may sign the server's certificate; those of the system if there are none.
    pub(super) authorities: Option<PathBuf>,
    /// Whether a server that accepts no changes is passed over. If not, it is used while no other server answers.
    pub(super) must_be_writable: bool,
    /// The server that this process has connected to last.
    pub(super) last: Mutex<Option<LastServer>>,
    pub(super) connect_timeout: Duration,
    pub(super) application_name: String,
    /// The schema that has the tables of the federation.
    pub(super) schema: String,
    /// For messages; without the password.
    pub(super) shown: Arc<str>,
}

/// A server that a process has connected to.
#[derive(Clone, Copy)]
pub(super) struct LastServer {
    /// Its number among the hosts.
    pub(super) host: usize,
    pub(super) kind: ServerKind,
    pub(super) since: Instant,
}

/// The operations that a server allows its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    /// Change the catalogue.
    Writable,
    /// Read it, by the settings of the user or the database.
    ReadOnly,
    /// Read the part of the catalogue that it has received.
    Standby,
}

/// Whether and how a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// Never.
    Disable,
    /// If the server can. Its certificate is not checked.
    Prefer,
    /// Always. The server's certificate is not checked, unless `sslrootcert` is given.
    Require,
    /// Always, and the server's certificate is one that an authority signed.
    VerifyAuthority,
    /// As before, and for this host.
    VerifyFull,
}

impl PostgresAddress {
    /// Reads a URL. Texts of errors have no part of it that could be a password.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the reason.
    pub(crate) fn parse(url: &str, schema: &str) -> Result<Self> {
        let schemes = ["postgresql://", "postgres://"];
        let rest = schemes
            .iter()
            .find_map(|scheme| url.strip_prefix(scheme))
            .ok_or_else(|| invalid("it must begin with postgresql://"))?;
        if url.chars().any(char::is_control) {
            return Err(invalid("it has a control character"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password)?)),
            None => (login, None),
        };
        let parameters = parameters(query)?;
        let parameter = |name: &str| {
            parameters.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone())
        };
        let hosts = match parameter("host") {
            Some(hosts) => hosts_of(&hosts, parameter("port").as_deref())?,
            None if hosts.is_empty() => hosts_of(DEFAULT_HOST, parameter("port").as_deref())?,
            None => hosts_and_ports(hosts)?,
        };
        let own_name = || host::user_name().to_owned();
        let user = Some(decoded(user)?).filter(|user| !user.is_empty());
        let user = parameter("user").or(user).unwrap_or_else(own_name);
        let database = Some(decoded(database)?).filter(|name| !name.is_empty());
        let database = parameter("dbname").or(database).unwrap_or_else(|| user.clone());
        let must_be_writable = match parameter("target_session_attrs").as_deref() {
            None => hosts.len() > 1,
            Some("any") => false,
            Some("read-write" | "primary") => true,
            Some(_) => {
                return Err(invalid("target_session_attrs must be any, read-write or primary"));
            }
        };
        let seconds = parameter("connect_timeout").map(|text| {
            let seconds =
                text.parse().map_err(|_| invalid("connect_timeout must be whole seconds"));
            seconds.map(|seconds: u32| Duration::from_secs(u64::from(seconds.max(1))))
        });
        let default_name = || format!("femtobarn {}", host::host_name());
        let shown = shown(&hosts, &user, &database);
        Ok(PostgresAddress {
            hosts,
            user,
            password: parameter("password").or(password),
            password_file: parameter("passfile").map(PathBuf::from),
            database,
            tls: tls_mode(parameter("sslmode").as_deref())?,
            authorities: parameter("sslrootcert").map(PathBuf::from),
            must_be_writable,
            last: Mutex::default(),
            connect_timeout: seconds.transpose()?.unwrap_or(CONNECT_TIMEOUT),
            application_name: parameter("application_name").unwrap_or_else(default_name),
            schema: schema.to_owned(),
            shown: shown.into(),
        })
    }

    /// Whether the URL itself has a password.
    pub(crate) fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// The server and its database, for messages.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The schema with the federation's tables.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Whether a server may be read that is of this kind now. Reads must not go back in time: a standby may lack commits
    /// that another server, or it itself before it was made a standby, has shown to this process.
    pub(super) fn may_read_from(&self, host: usize, kind: ServerKind) -> bool {
        match (kind, *self.last.lock()) {
            (ServerKind::Writable, _) => true,
            _ if self.must_be_writable => false,
            (ServerKind::ReadOnly, _) | (_, None) => true,
            (_, Some(last)) => last.kind == ServerKind::Standby && last.host == host,
        }
    }

    /// Notes that this process has a connection to a server.
    pub(super) fn note(&self, host: usize, kind: ServerKind) {
        *self.last.lock() = Some(LastServer { host, kind, since: clock::now() });
    }

    /// Whether no server took changes when this process connected last, and that was not just now: then the caller looks
    /// again.
    pub(crate) fn begin_asking_again(&self) -> bool {
        let now = clock::now();
        let is_time = |last: &&mut LastServer| {
            last.kind != ServerKind::Writable && now.duration_since(last.since) >= ASKED_AGAIN
        };
        let mut last = self.last.lock();
        last.as_mut().filter(is_time).map(|last| last.since = now).is_some()
    }

    /// Whether this process is connected, and not to a server that takes changes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.last.lock().is_some_and(|last| last.kind != ServerKind::Writable)
    }

    /// The password for one of the hosts, if there is one.
    pub(super) fn password_for(&self, host: &str, port: u16) -> Option<String> {
        let is_socket = host.starts_with('/');
        let host = if is_socket { "localhost" } else { host };
        let wanted = [host, &port.to_string(), &self.database, &self.user];
        self.password
            .clone()
            .or_else(|| password_file::password(self.password_file.as_deref(), wanted))
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresAddress").field(&self.shown).finish()
    }
}

fn invalid(what: &str) -> Error {
    Error::invalid(format!("invalid URL of a catalogue: {what}"))
}

fn shown(hosts: &[(String, u16)], user: &str, database: &str) -> String {
    let hosts: Vec<String> = hosts
        .iter()
        .map(|(host, port)| match *port {
            DEFAULT_PORT => host.clone(),
            port => format!("{host}:{port}"),
        })
        .collect();
    format!("database {database:?} of PostgreSQL at {} as {user}", hosts.join(","))
}

fn tls_mode(text: Option<&str>) -> Result<TlsMode> {
    Ok(match text {
        Some("disable") => TlsMode::Disable,
        None | Some("prefer" | "allow") => TlsMode::Prefer,
        Some("require") => TlsMode::Require,
        Some("verify-ca") => TlsMode::VerifyAuthority,
        Some("verify-full") => TlsMode::VerifyFull,
        Some(_) => {
            let what = "sslmode must be disable, prefer, require, verify-ca or verify-full";
            return Err(invalid(what));
        }
    })
}

/// The parameters behind `?`, decoded.
fn parameters(query: &str) -> Result<Vec<(String, String)>> {
    let mut found = vec![];
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) =
            part.split_once('=').ok_or_else(|| invalid("a parameter has no value"))?;
        if !PARAMETERS.contains(&key) {
            let known = PARAMETERS.join(", ");
            // The key may be a part of a password with a question mark.
            return Err(invalid(&format!("it has an unknown parameter; known are {known}")));
        }
        found.push((key.to_owned(), decoded(value)?));
    }
    Ok(found)
}

/// Hosts with their ports behind colons, as they stand before the first `/`.
fn hosts_and_ports(text: &str) -> Result<Vec<(String, u16)>> {
    text.split(',')
        .map(|one| {
            let (host, number) = match one.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                Some((address, rest)) => (address, rest.strip_prefix(':')),
                None => match one.rsplit_once(':') {
                    Some((host, number)) => (host, Some(number)),
                    None => (one, None),
                },
            };
            let port = number.map_or(Ok(DEFAULT_PORT), port)?;
            let host = Some(decoded(host)?).filter(|host| !host.is_empty());
            Ok((host.unwrap_or_else(|| DEFAULT_HOST.to_owned()), port))
        })
        .collect()
}

/// Hosts and ports as two parameters, with commas.
fn hosts_of(hosts: &str, ports: Option<&str>) -> Result<Vec<(String, u16)>> {
    let ports =
        ports.map_or(Ok(vec![]), |text| text.split(',').map(port).collect::<Result<_>>())?;
    let hosts: Vec<&str> = hosts.split(',').collect();
    if ports.len() > 1 && ports.len() != hosts.len() {
        return Err(invalid("there must be as many ports as hosts"));
    }
    let port_of = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
    Ok(hosts.iter().enumerate().map(|(at, host)| ((*host).to_owned(), port_of(at))).collect())
}

fn port(text: &str) -> Result<u16> {
    text.parse().map_err(|_| invalid("a port must be a number up to 65535"))
}

/// Resolves `%2F` and the like.
fn decoded(text: &str) -> Result<String> {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        (rest, _) = match (first, others) {
            (b'%', [a, b, others @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (a, b) =
                    digit(*a).zip(digit(*b)).ok_or_else(|| invalid("a % without two digits"))?;
                (others, bytes.push((a * 16 + b) as u8))
            }
            (b'%', _) => return Err(invalid("a % without two digits")),
            (other, others) => (others, bytes.push(*other)),
        };
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(invalid("a part of it is not UTF-8 text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<PostgresAddress> {
        PostgresAddress::parse(url, "fb")
    }

    #[test]
    fn urls_name_hosts_users_databases_and_how_to_connect() {
        let address = parse(
            "postgresql://anna:a%40b@db1:5433,[::1],db3/lhc?sslmode=verify-full&connect_timeout=3",
        )
        .unwrap();
        let hosts = [("db1", 5433), ("::1", 5432), ("db3", 5432)];
        assert_eq!(address.hosts, hosts.map(|(host, port)| (host.to_owned(), port)));
        assert_eq!((&*address.user, &*address.database), ("anna", "lhc"));
        assert_eq!(address.password.as_deref(), Some("a@b"));
        assert_eq!(address.tls, TlsMode::VerifyFull);
        assert!(address.must_be_writable, "several hosts: the primary is meant");
        assert_eq!(address.connect_timeout, Duration::from_secs(3));
        assert!(!format!("{address:?}").contains("a@b"));

        let address = parse("postgres:///lhc?host=/run/pg&port=6432&user=bob").unwrap();
        assert_eq!(address.hosts, [("/run/pg".to_owned(), 6432)]);
        assert_eq!((&*address.user, address.must_be_writable), ("bob", false));
        let address = parse("postgresql://%2Frun%2Fpg/lhc").unwrap();
        assert_eq!(address.hosts, [("/run/pg".to_owned(), 5432)]);
    }

    #[test]
    fn reads_do_not_go_back_to_a_standby() {
        let url = "postgresql://db1,db2,db3/lhc?target_session_attrs=any";
        let address = parse(url).unwrap();
        assert!(address.may_read_from(1, ServerKind::Standby), "nothing was read before");
        address.note(1, ServerKind::Standby);
        assert!(address.is_read_only());
        assert!(address.may_read_from(1, ServerKind::Standby));
        assert!(!address.may_read_from(2, ServerKind::Standby), "it may lag behind the other");
        assert!(address.may_read_from(0, ServerKind::Writable));
        address.note(0, ServerKind::Writable);
        assert!(!address.may_read_from(1, ServerKind::Standby));
        assert!(!address.may_read_from(0, ServerKind::Standby), "it was the primary");
        let address = parse("postgresql://db1,db2/lhc").unwrap();
        assert!(!address.may_read_from(0, ServerKind::Standby), "the primary is meant");
    }

    #[test]
    fn bad_urls_are_refused_without_their_passwords() {
        for url in [
            "mysql://anna:secret@db/lhc",
            "postgresql://anna:secret@db:port/lhc",
            "postgresql://anna:secret%2@db/lhc",
            "postgresql://anna:secret%ff@db/lhc",
            "postgresql://anna:secret@db/lhc?sslmode=often",
            "postgresql://anna:secret@db/lhc?service=x",
            "postgresql://anna:secret@db/lhc?password",
            "postgresql://anna:secret@db/lhc\n",
            "postgresql://anna:secret@db/lhc?target_session_attrs=write",
            "postgresql:///lhc?host=a,b,c&port=1,2",
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}

//! The server's configuration: a TOML file in which every setting may be left out.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::auth::{Authenticator, Issuer, Rights, Tokens};
use crate::logical::placement::{FirstOf, Neighbour, Overflow, Placement, Replicas};

mod network;

pub use network::{MetricsReaders, Network};

/// The whole of a configuration file with all defaults, and comments for people.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// What the operator wants; see [`DEFAULTS`].
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where to listen.
    pub address: String,
    /// The port; 0 for any.
    pub port: u16,
    /// Nobody may change anything.
    pub read_only: bool,
    /// What is served.
    #[serde(rename = "export")]
    pub exports: Vec<ExportConfig>,
    /// Who may do what.
    pub auth: AuthConfig,
    /// Encryption.
    pub tls: TlsConfig,
    /// The status page and the metrics.
    pub http: HttpConfig,
    /// How much of anything.
    pub limits: Limits,
    /// What the logical layer does to save work.
    pub logical: LogicalConfig,
    /// Who else opens files.
    pub redirect: RedirectConfig,
    /// What is logged.
    pub log: LogConfig,
}

/// A folder that is served.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// The folder: of a federation, or of plain files.
    pub folder: PathBuf,
    /// What paths begin with; the folder's own name if empty.
    #[serde(default)]
    pub name: String,
    /// Nobody may change anything in it.
    #[serde(default)]
    pub read_only: bool,
    /// How slow it is made.
    pub throttle: Option<ThrottleConfig>,
    /// What goes wrong on purpose; see [`InjectedFault`](crate::physical::InjectedFault).
    #[serde(default)]
    pub faults: Vec<String>,
}

/// How slow an export is made.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ThrottleConfig {
    /// Bytes a second, of reading and writing together.
    pub bytes_per_second: u64,
    /// Seeks a second.
    pub seeks_per_second: u32,
    /// Folders that are a disk each, at the export's top or in `databases`, and all that is slow then; the
    /// whole export is one disk without.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Bytes that stay in memory after they were read from a disk or written to it.
    #[serde(default = "cache_bytes")]
    pub cache_bytes: u64,
    /// Seconds of work that a disk may have to do before those who write wait for it.
    #[serde(default = "write_behind_seconds")]
    pub write_behind_seconds: f64,
    /// Clients that would have to wait longer than this are told to come again.
    pub defer_above_seconds: Option<u32>,
}

fn cache_bytes() -> u64 {
    16 << 20
}

fn write_behind_seconds() -> f64 {
    1.0
}

/// Who may do what.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// What clients may do who say nothing of themselves.
    pub anonymous: Allowed,
    /// What clients may do who tell a user's name without proof.
    pub unix: UnixAllowed,
    /// The names by which tokens know this server.
    pub audiences: Vec<String>,
    /// Whose tokens count.
    #[serde(rename = "issuer")]
    pub issuers: Vec<Issuer>,
}

/// How much somebody may do.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Allowed {
    /// UnixAllowed; they are not let in.
    Nothing,
    /// Read.
    #[default]
    Read,
    /// Read and change.
    All,
}

/// As [`Allowed`], nothing by default.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct UnixAllowed(pub Allowed);

/// Encryption.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// The server's certificates, in PEM format; none if empty.
    pub certificate: PathBuf,
    /// The key of the first certificate, in PEM format.
    pub key: PathBuf,
    /// Refuse clients that do not encrypt.
    pub required: bool,
}

/// The status page and the metrics.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Who may read `/metrics`.
    pub metrics: MetricsAccess,
    /// From where it may be read without a token, too.
    pub metrics_from: Vec<Network>,
}

/// Who may read `/metrics`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum MetricsAccess {
    /// Everybody where anonymous clients may do something, and otherwise as [`MetricsAccess::Closed`].
    #[default]
    Auto,
    /// Everybody.
    Open,
    /// Those who may read `/` by their token, and those who come from the addresses named.
    Closed,
}

/// How much of anything.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Seconds after which a session that asks nothing is closed.
    pub idle_seconds: u64,
    /// Seconds that clients have to finish when the server is told to stop.
    pub drain_seconds: u64,
    /// Seconds that a session's locks are kept for it after nothing was heard of its client any more.
    pub lease_seconds: u64,
    /// Seconds that they are kept after its connection was closed without a goodbye, as by the end of
    /// its process; no longer than the lease.
    pub grace_seconds: u64,
}

/// What the logical layer does to save work.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct LogicalConfig {
    /// One open file for all sessions that read it.
    pub reuse_files: bool,
    /// No sync where nothing was written since the last one.
    pub eliminate_syncs: bool,
    /// Seconds after which files that nobody uses are closed; 0: never.
    pub close_idle_files_seconds: u64,
    /// Checksums are kept until their file changes.
    pub keep_checksums: bool,
}

/// Who else opens files.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct RedirectConfig {
    /// Sessions above which clients are sent to neighbours; 0: they never are.
    pub sessions_max: usize,
    /// Who has the same files, as `host:port`.
    pub neighbours: Vec<String>,
    /// What is opened elsewhere.
    #[serde(rename = "replica")]
    pub replicas: Vec<ReplicaConfig>,
}

/// A path whose files are opened elsewhere.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ReplicaConfig {
    /// The path.
    pub path: String,
    /// Who has a copy of what is below it, as `host:port`.
    pub servers: Vec<String>,
}

/// What is logged.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// For people or for machines.
    pub format: LogFormat,
    /// How much: a level, or what `tracing` calls directives.
    pub level: String,
}

/// For people or for machines.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON document a line.
    Json,
}

impl Config {
    /// A configuration from a file's text.
    ///
    /// # Errors
    /// A text that says where the file is wrong, and how.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check()?;
        Ok(config)
    }

    /// Serves one more folder; under its own name if that is empty.
    pub fn export(&mut self, folder: PathBuf, name: String) {
        self.exports.push(ExportConfig {
            folder,
            name,
            read_only: false,
            throttle: None,
            faults: vec![],
        });
    }

    /// What does not fit together.
    ///
    /// # Errors
    /// A text that names the settings.
    pub fn check(&self) -> Result<(), String> {
        let tls = &self.tls;
        let (has_certificate, has_key) =
            (!tls.certificate.as_os_str().is_empty(), !tls.key.as_os_str().is_empty());
        if has_certificate != has_key {
            return Err("tls.certificate and tls.key are two files: give both or none".to_owned());
        }
        if tls.required && !has_certificate {
            return Err("tls.required needs tls.certificate and tls.key".to_owned());
        }
        if !self.auth.issuers.is_empty() && !has_certificate {
            return Err(
                "tokens travel only over TLS: auth.issuer needs tls.certificate and tls.key"
                    .to_owned(),
            );
        }
        for export in &self.exports {
            if !export.name.is_empty() && !export.name.starts_with('/') {
                return Err(format!("export.name is a path: \"/{}\"?", export.name));
            }
            export.throttle.as_ref().map_or(Ok(()), ThrottleConfig::check)?;
        }
        Ok(())
    }

    /// Who else opens files: where there are copies, and where there is room.
    ///
    /// # Errors
    /// A text that names what is no `host:port`.
    pub fn placement(&self) -> Result<Arc<dyn Placement>, String> {
        let all = |servers: &[String]| {
            servers.iter().map(|server| neighbour(server)).collect::<Result<Vec<_>, _>>()
        };
        let redirect = &self.redirect;
        let replicas: Result<_, String> = redirect
            .replicas
            .iter()
            .map(|each| Ok((each.path.trim_end_matches('/').into(), all(&each.servers)?)))
            .collect();
        let overflow = Overflow {
            sessions_max: match redirect.sessions_max {
                0 => usize::MAX,
                most => most,
            },
            neighbours: all(&redirect.neighbours)?,
        };
        Ok(Arc::new(FirstOf(Replicas { replicas: replicas? }, overflow)))
    }

    /// Who may read the metrics.
    pub fn metrics_readers(&self) -> MetricsReaders {
        let is_open = match self.http.metrics {
            MetricsAccess::Open => true,
            MetricsAccess::Closed => false,
            MetricsAccess::Auto => self.auth.anonymous != Allowed::Nothing,
        };
        MetricsReaders { is_open, from: self.http.metrics_from.clone() }
    }

    /// Who may do what.
    ///
    /// # Errors
    /// A text that names the file of keys that cannot be read.
    pub fn authenticator(&self) -> Result<Authenticator, String> {
        let auth = &self.auth;
        let tokens = if auth.issuers.is_empty() {
            None
        } else {
            Some(Tokens::new(auth.issuers.clone(), auth.audiences.clone())?.into())
        };
        Ok(Authenticator { anonymous: auth.anonymous.rights(), unix: auth.unix.0.rights(), tokens })
    }
}

fn neighbour(text: &str) -> Result<Neighbour, String> {
    let parted = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parted {
        Some((host, port)) if !host.is_empty() => Ok(Neighbour { host: host.to_owned(), port }),
        _ => Err(format!("redirect: {text:?} is not a server; write it as \"host:port\"")),
    }
}

impl ThrottleConfig {
    fn check(&self) -> Result<(), String> {
        if Duration::try_from_secs_f64(self.write_behind_seconds).is_err() {
            let seconds = self.write_behind_seconds;
            return Err(format!("throttle.write_behind_seconds = {seconds} is not a time to wait"));
        }
        match self.disks.iter().find(|name| name.is_empty() || name.contains('/')) {
            Some(name) => Err(format!("throttle.disks: {name:?} is not the name of a folder")),
            None => Ok(()),
        }
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nothing" => Ok(Allowed::Nothing),
            "read" => Ok(Allowed::Read),
            "all" => Ok(Allowed::All),
            other => Err(format!("{other:?} is none of \"nothing\", \"read\" and \"all\"")),
        }
    }
}

impl Allowed {
    fn rights(self) -> Option<Rights> {
        match self {
            Allowed::Nothing => None,
            Allowed::Read => Some(Rights::reading()),
            Allowed::All => Some(Rights::everything()),
        }
    }
}

impl Default for UnixAllowed {
    fn default() -> Self {
        UnixAllowed(Allowed::Nothing)
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            address: "0.0.0.0".to_owned(),
            port: 1094,
            read_only: false,
            exports: vec![],
            auth: AuthConfig::default(),
            tls: TlsConfig::default(),
            http: HttpConfig::default(),
            limits: Limits::default(),
            logical: LogicalConfig::default(),
            redirect: RedirectConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 20_000,
            idle_seconds: 3600,
            drain_seconds: 10,
            lease_seconds: 10,
            grace_seconds: 2,
        }
    }
}

impl Default for LogicalConfig {
    fn default() -> Self {
        LogicalConfig {
            reuse_files: true,
            eliminate_syncs: true,
            close_idle_files_seconds: 600,
            keep_checksums: true,
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig { format: LogFormat::Text, level: "info".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logical::placement::Load;
    use crate::physical::{Opaque, StoragePath};

    #[test]
    fn what_is_printed_is_what_is_done() {
        assert_eq!(Config::from_toml(DEFAULTS), Ok(Config::default()));
        assert_eq!(Config::from_toml(""), Ok(Config::default()));
    }

    /// Examples in comments are indented by three blanks.
    #[test]
    fn the_examples_in_the_comments_are_right() {
        let with_examples: String = DEFAULTS
            .lines()
            .map(|line| line.strip_prefix("#   ").unwrap_or(line).to_owned() + "\n")
            .collect();
        // An array of tables may follow single values only in its own table.
        let config: Config = toml::from_str(&with_examples).expect("examples are settings");
        assert_eq!(config.exports.len(), 1);
        assert_eq!(config.auth.issuers.len(), 1);
        let throttle = config.exports[0].throttle.as_ref().expect("it is slow");
        assert_eq!((throttle.bytes_per_second, throttle.disks.len()), (22_000_000, 2));
        let faults: Vec<_> = config.exports[0].faults.iter().map(|fault| fault.parse()).collect();
        assert!(
            faults.len() == 2
                && faults.iter().all(Result::<crate::physical::InjectedFault, _>::is_ok)
        );
        let path = StoragePath::new(b"/lhc.fed/raw/x").expect("a path");
        let placement = config.placement().expect("servers are servers");
        let elsewhere = placement.redirect_target(&path, Opaque::default(), Load { sessions: 1 });
        assert_eq!(elsewhere.map(|server| server.host).as_deref(), Some("disk1.example"));
        assert!(config.check().is_err_and(|what| what.contains("TLS")));
    }

    #[test]
    fn metrics_are_closed_where_nobody_may_do_anything_unless_told() {
        let is_open = |text| Config::from_toml(text).unwrap().metrics_readers().is_open;
        assert!(is_open(""));
        assert!(!is_open("[auth]\nanonymous = 'nothing'"));
        assert!(is_open("[auth]\nanonymous = 'nothing'\n[http]\nmetrics = 'open'"));
        assert!(!is_open("[http]\nmetrics = 'closed'"));
    }

    fn throttled(setting: &str) -> String {
        let all = format!("bytes_per_second = 1, seeks_per_second = 1, {setting}");
        format!("[[export]]\nfolder = 'x'\nthrottle = {{ {all} }}")
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("prot = 1", "unknown field `prot`"),
            ("port = 70000", "line 1"),
            ("[http]\nmetrics_from = ['tau']", "\"tau\" is not an address"),
            ("[auth]\nanonymous = 'write'", "unknown variant `write`"),
            ("[tls]\nkey = 'a'", "give both or none"),
            ("[tls]\nrequired = true", "tls.required needs"),
            ("[[export]]\nfolder = 'x'\nname = 'x'", "\"/x\"?"),
            (&throttled("disks = ['a/b']"), "\"a/b\" is not the name of a folder"),
            (&throttled("write_behind_seconds = -1"), "-1 is not a time to wait"),
        ] {
            let error = Config::from_toml(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}

//! The tables of a configuration, with their defaults.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::copy_hosts::CopyHosts;
use crate::auth::{Issuer, Rights};
use crate::network::Network;

/// An exported folder.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// The folder of a federation, or of plain files.
    pub folder: PathBuf,
    /// The prefix of its paths; if empty, the folder's own name.
    #[serde(default)]
    pub name: String,
    /// Refuse all changes in the export.
    #[serde(default)]
    pub read_only: bool,
    /// The folder is that of a cache of another server.
    pub cache: Option<CacheConfig>,
    /// Simulated slow disks.
    pub throttle: Option<ThrottleConfig>,
    /// Injected faults; see [`InjectedFault`](crate::physical::InjectedFault).
    #[serde(default)]
    pub faults: Vec<String>,
}

/// A cache of another server, in an export's folder.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// The `root://` URL whose files are served.
    pub of: String,
    /// Further folders, on other disks; each file is kept in one of all the folders.
    #[serde(default)]
    pub more_folders: Vec<PathBuf>,
    /// The limit of kept bytes in each folder; by default, four fifths of its file system.
    pub bytes: Option<u64>,
    /// Files of the origin never change, so the origin is not asked about files that are partly kept.
    #[serde(default)]
    pub immutable: bool,
    /// Seconds after which unused files are removed; without it, they stay until space is needed.
    pub idle_seconds: Option<NonZeroU64>,
}

/// Simulated slow disks of an export.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ThrottleConfig {
    /// Bytes a second, of reading and writing together.
    pub bytes_per_second: u64,
    /// Seeks a second.
    pub seeks_per_second: u32,
    /// Folders at the export's top or in `databases` that are a disk each; all other paths are not slowed down. If
    /// empty, the whole export is one disk.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Bytes that stay in memory after they were read or written, for each disk.
    #[serde(default = "cache_bytes")]
    pub cache_bytes: u64,
    /// Seconds of queued work above which writers wait for the disk.
    #[serde(default = "write_behind_seconds")]
    pub write_behind_seconds: f64,
    /// Clients that would have to wait longer than this are asked to retry later.
    pub defer_above_seconds: Option<u32>,
}

fn cache_bytes() -> u64 {
    16 << 20
}

fn write_behind_seconds() -> f64 {
    1.0
}

/// Authentication and rights.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// The rights of clients without credentials.
    pub anonymous: Allowed,
    /// The rights of clients that send a user's name without proof.
    pub unix: UnixAllowed,
    /// The audiences of this server in tokens.
    pub audiences: Vec<String>,
    /// The issuers whose tokens are accepted.
    #[serde(rename = "issuer")]
    pub issuers: Vec<Issuer>,
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Allowed {
    /// No rights: clients are refused.
    Nothing,
    /// Reading.
    #[default]
    Read,
    /// Reading, changing and staging.
    Write,
    /// All rights, including promoting copies and managing servers.
    All,
}

/// [`Allowed`] with the default [`Allowed::Nothing`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct UnixAllowed(pub Allowed);

/// Encryption.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// The file of the server's certificates, in PEM format; empty for no TLS.
    pub certificate: PathBuf,
    /// The file of the first certificate's key, in PEM format.
    pub key: PathBuf,
    /// The file of the authorities that sign clients' certificates, in PEM format; if empty, clients are not asked for
    /// a certificate.
    pub clients: PathBuf,
    /// The file of the lists of revoked client certificates, in PEM format; empty for none.
    pub revoked: PathBuf,
    /// Refuse unencrypted connections.
    pub required: bool,
    /// Serve other machines without a certificate.
    pub off: bool,
}

impl TlsConfig {
    /// Whether there is a certificate.
    pub fn has_certificate(&self) -> bool {
        !self.certificate.as_os_str().is_empty()
    }
}

/// The status page, the metrics, and files over HTTP.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// The clients that may read `/metrics`.
    pub metrics: MetricsAccess,
    /// Addresses from which the metrics may be read without a token.
    pub metrics_from: Vec<Network>,
    /// The sites whose pages may read files by scripts, such as `https://root.cern`; `*` for all.
    pub origins: Vec<String>,
}

/// Copies from and to other servers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct CopyConfig {
    /// The servers.
    pub hosts: CopyHosts,
}

/// The clients that may read `/metrics`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum MetricsAccess {
    /// [`MetricsAccess::Closed`] if anonymous clients have no rights, and otherwise [`MetricsAccess::Open`].
    #[default]
    Auto,
    /// All clients.
    Open,
    /// Clients whose token lets them read `/`, and clients with the configured addresses.
    Closed,
}

/// The XRootD cluster of a data server.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// The socket on which the `cmsd` of this machine listens for its server; empty for none.
    pub cmsd: PathBuf,
}

/// One of several servers of a federation.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct SiteConfig {
    /// The server's name in the federation; empty if the federation has no other servers.
    pub name: String,
    /// The URL for clients and other servers, `root://host:port`; if empty, it is made from the address or the
    /// machine's name.
    pub url: String,
    /// The name of the server's disk; if empty, the name of the server.
    pub storage: String,
    /// Seconds after which the server counts as lost if it does not reach the catalogue.
    pub lease_seconds: u64,
}

/// Limits of the server.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// The percentage of connections, and of open files, that one machine may have.
    pub machine_percent: u8,
    /// Seconds after which a session without traffic is closed, and a connection of HTTP/2 without requests; 0 for
    /// never.
    pub idle_seconds: u64,
    /// Seconds that clients have to finish when the server is stopped.
    pub drain_seconds: u64,
    /// Seconds of silence after which a client counts as lost, and for which its session then keeps its locks.
    pub lease_seconds: u64,
    /// Seconds for which a session keeps its locks after its connection was closed without a goodbye, as when the
    /// client's process ends; at most the lease.
    pub grace_seconds: u64,
    /// Bytes of memory, for each federation, for layouts of databases as ROOT files, one for each snapshot of a database
    /// that was opened.
    pub layout_bytes: u64,
}

/// Optimisations of the logical layer.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct LogicalConfig {
    /// Sessions that read the same file share one open file.
    pub reuse_files: bool,
    /// A sync without writes since the last one does nothing.
    pub eliminate_syncs: bool,
    /// Seconds after which unused files are closed; 0 for never.
    pub close_idle_files_seconds: u64,
    /// Checksums are cached until their file changes.
    pub keep_checksums: bool,
    /// Pass open files to clients on this machine, which then read them without the server.
    pub pass_files: bool,
}

/// Redirects to other servers.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct RedirectConfig {
    /// Servers, as `root://host:port//path`, to which clients are redirected by a server without exports.
    pub to: Vec<String>,
    /// Caches of these servers, written in the same way; readers are redirected to them.
    pub caches: Vec<String>,
    /// Clients that begin to read a file within a minute for each cache that serves it.
    pub clients_per_copy: NonZeroU32,
    /// The servers and caches that are near to some clients.
    pub near: Vec<NearConfig>,
    /// Servers, as `host:port`, to which readers are redirected while they have a copy that follows.
    pub followers: Vec<String>,
    /// Sessions above which clients are redirected to neighbours; 0 for never.
    pub sessions_max: usize,
    /// Servers with the same files, as `host:port`.
    pub neighbours: Vec<String>,
    /// Paths that other servers have copies of.
    #[serde(rename = "replica")]
    pub replicas: Vec<ReplicaConfig>,
}

/// Clients and the servers near them.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct NearConfig {
    /// The addresses of the clients.
    pub clients: Vec<Network>,
    /// The names or addresses of the servers, without ports.
    pub servers: Vec<String>,
}

/// A path that other servers have copies of.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ReplicaConfig {
    /// The path.
    pub path: String,
    /// The servers with copies of the files below the prefix, as `host:port`.
    pub servers: Vec<String>,
}

/// The audit log.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// The file to which a line is appended for each change; empty for none.
    pub file: PathBuf,
}

/// The log.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// The format of lines: for people or for machines.
    pub format: LogFormat,
    /// The level, or directives of `tracing`.
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

impl Default for RedirectConfig {
    fn default() -> Self {
        RedirectConfig {
            to: vec![],
            caches: vec![],
            clients_per_copy: NonZeroU32::MIN.saturating_add(9),
            near: vec![],
            followers: vec![],
            sessions_max: 0,
            neighbours: vec![],
            replicas: vec![],
        }
    }
}

impl RedirectConfig {
    /// Whether this is a server without folders, which redirects all of its clients.
    pub(crate) fn has_servers(&self) -> bool {
        !(self.to.is_empty() && self.caches.is_empty())
    }

    /// Whether a server with folders redirects some of its clients.
    pub(super) fn has_policies(&self) -> bool {
        !(self.followers.is_empty() && self.neighbours.is_empty() && self.replicas.is_empty())
    }
}

impl ThrottleConfig {
    pub(super) fn check(&self) -> Result<(), String> {
        if Duration::try_from_secs_f64(self.write_behind_seconds).is_err() {
            let seconds = self.write_behind_seconds;
            return Err(format!("throttle.write_behind_seconds: invalid time {seconds}"));
        }
        match self.disks.iter().find(|name| name.is_empty() || name.contains('/')) {
            Some(name) => Err(format!("throttle.disks: invalid folder name {name:?}")),
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
            "write" => Ok(Allowed::Write),
            "all" => Ok(Allowed::All),
            other => Err(format!(
                "invalid rights {other:?}: choose \"nothing\", \"read\", \"write\" or \"all\""
            )),
        }
    }
}

impl Allowed {
    pub(super) fn rights(self) -> Option<Rights> {
        match self {
            Allowed::Nothing => None,
            Allowed::Read => Some(Rights::reading()),
            Allowed::Write => Some(Rights::writing()),
            Allowed::All => Some(Rights::everything()),
        }
    }
}

impl Default for UnixAllowed {
    fn default() -> Self {
        UnixAllowed(Allowed::Nothing)
    }
}

impl Default for SiteConfig {
    fn default() -> Self {
        SiteConfig {
            name: String::new(),
            url: String::new(),
            storage: String::new(),
            lease_seconds: 30,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 20_000,
            machine_percent: 50,
            idle_seconds: 3600,
            drain_seconds: 10,
            lease_seconds: 10,
            grace_seconds: 2,
            layout_bytes: 128 << 20,
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
            pass_files: true,
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig { format: LogFormat::Text, level: "info".to_owned() }
    }
}

//! The server's configuration: a TOML file in which every setting is optional.
//!
//! `defaults.toml` documents every setting. `sections` has the tables, `copy_hosts` the servers in them;
//! this module checks a configuration as a whole, and derives authentication and redirects from it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use xrd::client::Url;

use crate::auth::{AuditLog, Authenticator, RoleConfig, Roles, Tokens};
use crate::logical::placement::{FirstOf, Neighbour, Overflow, Placement, Replicas};
use crate::logical::redirector::Redirector;

mod copy_hosts;
mod sections;

pub use crate::network::{MetricsReaders, Network};
pub use copy_hosts::CopyHosts;
pub use sections::{
    Allowed, AuditConfig, AuthConfig, CacheConfig, ClusterConfig, CopyConfig, ExportConfig,
    HttpConfig, Limits, LogConfig, LogFormat, LogicalConfig, MetricsAccess, NearConfig,
    RedirectConfig, ReplicaConfig, SiteConfig, ThrottleConfig, TlsConfig, UnixAllowed,
};

/// A configuration file with all settings at their defaults, documented by comments.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// The operator's configuration; see [`DEFAULTS`].
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The address to listen on; if empty, see [`listen_address`](Self::listen_address).
    pub address: String,
    /// The port; 0 for any free one.
    pub port: u16,
    /// Refuse all changes.
    pub read_only: bool,
    /// The exported folders.
    #[serde(rename = "export")]
    pub exports: Vec<ExportConfig>,
    /// Authentication and rights.
    pub auth: AuthConfig,
    /// Roles by name: sets of rights, and the clients that have them.
    pub roles: BTreeMap<String, RoleConfig>,
    /// Encryption.
    pub tls: TlsConfig,
    /// The status page and the metrics.
    pub http: HttpConfig,
    /// Copies from and to other servers.
    pub copy: CopyConfig,
    /// Limits.
    pub limits: Limits,
    /// Optimisations of the logical layer.
    pub logical: LogicalConfig,
    /// Redirects to other servers.
    pub redirect: RedirectConfig,
    /// The XRootD cluster that this server belongs to.
    pub cluster: ClusterConfig,
    /// Its place among several servers of a federation.
    pub site: SiteConfig,
    /// The audit log.
    pub audit: AuditConfig,
    /// The log.
    pub log: LogConfig,
}

impl Config {
    /// Parses and checks a configuration file.
    ///
    /// # Errors
    /// A text with the position and the error.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check()?;
        Ok(config)
    }

    /// Adds an export. If `name` is empty, it gets the folder's own name.
    pub fn export(&mut self, folder: PathBuf, name: String) {
        self.exports.push(ExportConfig {
            folder,
            name,
            read_only: false,
            cache: None,
            throttle: None,
            faults: vec![],
        });
    }

    /// Checks settings that depend on each other.
    ///
    /// # Errors
    /// A text that names the settings.
    pub fn check(&self) -> Result<(), String> {
        self.check_tls()?;
        if self.redirect.has_servers() && !self.exports.is_empty() {
            let what = "redirect.to: a server that redirects to others serves no folders; remove the folders or this";
            return Err(what.to_owned());
        }
        if self.redirect.has_servers() && self.redirect.has_policies() {
            let what = "redirect.to: cannot be combined with followers, neighbours and replicas, which are for \
                        servers with folders";
            return Err(what.to_owned());
        }
        if self.redirect.has_servers() && !self.cluster.cmsd.as_os_str().is_empty() {
            let what = "cluster.cmsd: needs a server with folders; this one redirects to others";
            return Err(what.to_owned());
        }
        self.check_site()?;
        if !(1..=100).contains(&self.limits.machine_percent) {
            return Err("limits.machine_percent: must be 1 to 100".to_owned());
        }
        self.roles()?;
        for export in &self.exports {
            if !export.name.is_empty() && !export.name.starts_with('/') {
                return Err(format!(
                    "export.name: {:?} is not a path; write \"/{}\"",
                    export.name, export.name
                ));
            }
            export.throttle.as_ref().map_or(Ok(()), ThrottleConfig::check)?;
        }
        Ok(())
    }

    fn check_tls(&self) -> Result<(), String> {
        let tls = &self.tls;
        let has_certificate = tls.has_certificate();
        let wrong = if has_certificate == tls.key.as_os_str().is_empty() {
            "tls.certificate and tls.key are two files: give both or none"
        } else if tls.required && !has_certificate {
            "tls.required needs tls.certificate and tls.key"
        } else if tls.off && has_certificate {
            "tls.off is for a server without tls.certificate: remove one of them"
        } else if !self.auth.issuers.is_empty() && !has_certificate {
            "tokens travel only over TLS: auth.issuer needs tls.certificate and tls.key"
        } else if !tls.clients.as_os_str().is_empty() && !has_certificate {
            "clients show their certificates over TLS: tls.clients needs tls.certificate and tls.key"
        } else if !tls.revoked.as_os_str().is_empty() && tls.clients.as_os_str().is_empty() {
            "tls.revoked lists certificates of clients: it needs tls.clients"
        } else if self.roles.values().any(|it| !it.certificates.is_empty())
            && tls.clients.as_os_str().is_empty()
        {
            "roles with certificates need tls.clients, the authorities that sign them"
        } else {
            return Ok(());
        };
        Err(wrong.to_owned())
    }

    /// The address to listen on. By default, other machines reach the server if it has a certificate or `tls.off` is set.
    pub fn listen_address(&self) -> &str {
        match &*self.address {
            "" if self.tls.has_certificate() || self.tls.off => "0.0.0.0",
            "" => "127.0.0.1",
            address => address,
        }
    }

    /// Refuses to serve other machines without TLS, unless `tls.off` is set.
    ///
    /// # Errors
    /// A text that names the setting.
    pub fn check_address(&self, address: IpAddr) -> Result<(), String> {
        const REMEDY: &str = "set tls.certificate and tls.key; or set tls.off = true (femtobarn serve --tls-off) if \
            everybody on the network between may read and change what clients send and get";
        if self.tls.has_certificate() || self.tls.off {
            return Ok(());
        }
        if !address.to_canonical().is_loopback() {
            return Err(format!(
                "other machines reach address {address}, and there is no TLS: {REMEDY}"
            ));
        }
        let announced = [
            ("site.url", &*self.site.url),
            ("cluster.cmsd", &*self.cluster.cmsd.to_string_lossy()),
        ];
        match announced.iter().find(|(_, to)| !to.is_empty() && self.address.is_empty()) {
            Some((name, _)) => Err(format!(
                "{name} sends clients of other machines here, and without TLS only this machine is served: {REMEDY}"
            )),
            None => Ok(()),
        }
    }

    fn check_site(&self) -> Result<(), String> {
        let site = &self.site;
        if site.name.is_empty() && !(site.url.is_empty() && site.storage.is_empty()) {
            return Err("site.name: name the server, one of several of its federation".to_owned());
        }
        if site.lease_seconds == 0 {
            return Err("site.lease_seconds: must be 1 or more".to_owned());
        }
        let is_url = |url: &str| {
            Url::parse(&format!("{url}//")).is_ok_and(|url| url.location.path() == b"/")
        };
        if site.url.is_empty() || is_url(&site.url) {
            return Ok(());
        }
        Err(format!("site.url: invalid URL {:?}: write it as \"root://host:port\"", site.url))
    }

    /// The policy of redirects: to replicas, and to neighbours if this server has many sessions.
    ///
    /// # Errors
    /// A text that names the server that is not written as `host:port`.
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

    /// The redirector; `None` if this server has folders.
    ///
    /// # Errors
    /// A text that names a server that is not written as `root://host:port//path`, has a different path, is named
    /// twice, or is listed only as near to clients.
    pub fn redirector(&self) -> Result<Option<Redirector>, String> {
        let near = &self.redirect.near;
        if !self.redirect.has_servers() && near.is_empty() {
            return Ok(None);
        }
        let parsed = |name: &str, texts: &[String]| -> Result<Vec<Url>, String> {
            let urls = texts.iter().map(|text| Url::parse(text));
            urls.collect::<Result<_, _>>().map_err(|error| format!("redirect.{name}: {error}"))
        };
        let servers = parsed("to", &self.redirect.to)?;
        let caches = parsed("caches", &self.redirect.caches)?;
        for host in near.iter().flat_map(|it| &it.servers) {
            if !servers.iter().chain(&caches).any(|url| is_host(host, url)) {
                return Err(format!(
                    "redirect.near: {host} is not among the servers of redirect.to and redirect.caches"
                ));
            }
        }
        let clients_near = |url: &Url| {
            let near = near.iter().filter(|it| it.servers.iter().any(|host| is_host(host, url)));
            near.flat_map(|it| it.clients.iter().copied()).collect()
        };
        let clients_per_copy = self.redirect.clients_per_copy;
        Redirector::new(servers, caches, clients_near, clients_per_copy).map(Some)
    }

    /// The clients that may read the metrics.
    pub fn metrics_readers(&self) -> MetricsReaders {
        let is_open = match self.http.metrics {
            MetricsAccess::Open => true,
            MetricsAccess::Closed => false,
            MetricsAccess::Auto => self.auth.anonymous != Allowed::Nothing,
        };
        MetricsReaders { is_open, from: self.http.metrics_from.clone() }
    }

    /// The ways of authentication, with the rights that they give, and the audit log.
    ///
    /// # Errors
    /// A text that names the file that cannot be read or written.
    pub fn authenticator(&self) -> Result<Authenticator, String> {
        let auth = &self.auth;
        let tokens = if auth.issuers.is_empty() {
            None
        } else {
            let tokens = Tokens::new(auth.issuers.clone(), auth.audiences.clone())?;
            Some(tokens.with_roles(self.roles()?).into())
        };
        let (anonymous, unix) = (auth.anonymous.rights(), auth.unix.0.rights());
        let (audit, roles) = (self.audit_log()?, Arc::new(self.roles()?));
        Ok(Authenticator { anonymous, unix, tokens, roles, audit })
    }

    fn roles(&self) -> Result<Roles, String> {
        Roles::new(&self.roles, &self.auth.issuers)
    }

    /// The audit log; its file must not be where clients can read or change it.
    fn audit_log(&self) -> Result<Option<Arc<AuditLog>>, String> {
        let file = &self.audit.file;
        if file.as_os_str().is_empty() {
            return Ok(None);
        }
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let places = [file.canonicalize(), parent.canonicalize()];
        let lies_in = |folder: PathBuf| places.iter().flatten().any(|it| it.starts_with(&folder));
        let folders = self.exports.iter().flat_map(|export| {
            let more = export.cache.iter().flat_map(|cache| &cache.more_folders);
            std::iter::once(&export.folder).chain(more)
        });
        for folder in folders {
            if folder.canonicalize().is_ok_and(lies_in) {
                let (file, folder) = (file.display(), folder.display());
                return Err(format!("audit.file: {file} lies in the export {folder}"));
            }
        }
        AuditLog::open(file).map(Arc::new).map(Some)
    }
}

/// Whether a server has this name or address, which is written without the brackets of a URL.
fn is_host(host: &str, url: &Url) -> bool {
    url.server.host.eq_ignore_ascii_case(host)
}

fn neighbour(text: &str) -> Result<Neighbour, String> {
    let parted = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parted {
        Some((host, port)) if !host.is_empty() => {
            Ok(Neighbour { host: host.to_owned(), port, opaque: String::new() })
        }
        _ => Err(format!("redirect: invalid server {text:?}: write it as \"host:port\"")),
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            address: String::new(),
            port: 1094,
            read_only: false,
            exports: vec![],
            auth: AuthConfig::default(),
            roles: BTreeMap::new(),
            tls: TlsConfig::default(),
            http: HttpConfig::default(),
            copy: CopyConfig::default(),
            limits: Limits::default(),
            logical: LogicalConfig::default(),
            redirect: RedirectConfig::default(),
            cluster: ClusterConfig::default(),
            site: SiteConfig::default(),
            audit: AuditConfig::default(),
            log: LogConfig::default(),
        }
    }
}

#[cfg(test)]
mod tests;

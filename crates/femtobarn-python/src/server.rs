//! A server that runs in this process.

use std::net::IpAddr;
use std::path::PathBuf;

use femtobarn::{Federation, OpenOptions};
use femtobarn_server::config::{Allowed, CacheConfig};
use femtobarn_server::{Config, Mount, ServedFederation, Server, StartError};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::exception;
use crate::text::{FilePath, Text, strings};

/// A running server.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct ServerHandle {
    address: IpAddr,
    port: u16,
    exports: Vec<String>,
    overrides: ConfigOverrides,
    /// None after `stop`.
    server: Mutex<Option<Server>>,
}

/// Arguments that override a configuration file.
struct ConfigOverrides {
    folders: Vec<(PathBuf, String)>,
    /// The origin, if the folders are a cache.
    cache: Option<CacheConfig>,
    redirect_to: Vec<String>,
    redirect_caches: Vec<String>,
    port: Option<u16>,
    address: Option<String>,
    anonymous: Option<Allowed>,
    read_only: bool,
    tls_off: bool,
    /// The name among several servers, and the URL.
    site: Option<(String, Option<String>)>,
}

impl ConfigOverrides {
    /// The configuration of a file with these overrides.
    fn config(&self, text: &str) -> Result<Config, String> {
        let mut config = Config::from_toml(text)?;
        // The first folder of a cache is the export; files are divided among all folders.
        let exports = if self.cache.is_some() { 1 } else { self.folders.len() };
        for (folder, name) in self.folders.iter().take(exports) {
            config.export(folder.clone(), name.clone());
            if let Some(export) = config.exports.last_mut() {
                export.cache.clone_from(&self.cache);
            }
        }
        config.redirect.to.extend_from_slice(&self.redirect_to);
        config.redirect.caches.extend_from_slice(&self.redirect_caches);
        config.port = self.port.unwrap_or(config.port);
        config.read_only |= self.read_only;
        config.tls.off |= self.tls_off;
        config.auth.anonymous = self.anonymous.unwrap_or(config.auth.anonymous);
        if let Some((name, url)) = &self.site {
            config.site.name.clone_from(name);
            config.site.url = url.clone().unwrap_or(config.site.url);
        }
        if let Some(address) = &self.address {
            config.address.clone_from(address);
        }
        Ok(config)
    }
}

#[pymethods]
impl ServerHandle {
    /// Start a server from the text of a configuration file and overrides.
    #[staticmethod]
    #[pyo3(signature = (config, folders, cache, redirect_to, redirect_caches, port, address, tls_off, anonymous, read_only, site))]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of the command")]
    fn start(
        py: Python<'_>,
        config: Text,
        folders: Vec<(FilePath, Text)>,
        cache: Option<(Text, Option<u64>)>,
        redirect_to: Vec<Text>,
        redirect_caches: Vec<Text>,
        port: Option<u16>,
        address: Option<Text>,
        tls_off: bool,
        anonymous: Option<Text>,
        read_only: bool,
        site: Option<(Text, Option<Text>)>,
    ) -> PyResult<Self> {
        let invalid = |what: String| exception("invalid", what);
        let anonymous = anonymous.as_deref().map(str::parse).transpose().map_err(invalid)?;
        let folders: Vec<(PathBuf, String)> =
            folders.into_iter().map(|(path, name)| (path.into(), name.into())).collect();
        let cache = cache.map(|(of, bytes)| CacheConfig {
            of: of.into(),
            more_folders: folders.iter().skip(1).map(|(folder, _)| folder.clone()).collect(),
            bytes,
            immutable: false,
            idle_seconds: None,
        });
        let overrides = ConfigOverrides {
            folders,
            cache,
            redirect_to: strings(redirect_to),
            redirect_caches: strings(redirect_caches),
            port,
            address: address.map(String::from),
            anonymous,
            read_only,
            tls_off,
            site: site.map(|(name, url)| (name.into(), url.map(String::from))),
        };
        let config = overrides.config(&config).map_err(invalid)?;
        let server =
            py.detach(|| Server::start_with_mounts(config, mounts)).map_err(
                |error| match error {
                    StartError::Config(what) => exception("invalid", what),
                    StartError::Denied(what) => exception("denied", what),
                    StartError::Corrupt(what) => exception("corrupt", what),
                    StartError::Unsupported(what) => exception("unsupported", what),
                    StartError::System(what) => exception("storage", what),
                    other => exception("storage", other.to_string()),
                },
            )?;
        Ok(ServerHandle {
            address: server.address().ip(),
            port: server.address().port(),
            exports: server.exports(),
            overrides,
            server: Mutex::new(Some(server)),
        })
    }

    /// The address that it listens on.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// The port that it listens on.
    #[getter]
    fn port(&self) -> u16 {
        self.port
    }

    /// The names of its exports, which paths begin with.
    #[getter]
    fn exports(&self) -> Vec<String> {
        self.exports.clone()
    }

    /// Its status, as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        let status = || {
            let server = self.server.lock();
            server.as_ref().map(Server::status)
        };
        match py.detach(status) {
            Some(status) => Ok(serde_json::to_string(&status).expect("a status is plain data")),
            None => Err(exception("closed", "the server was stopped".to_owned())),
        }
    }

    /// Apply the settings that can change while it runs: certificates, keys of token issuers, the log level.
    fn reload(&self, py: Python<'_>, config: Text) -> PyResult<()> {
        let reload = || {
            let server = self.server.lock();
            let Some(server) = &*server else {
                return Err(("closed", "the server was stopped".to_owned()));
            };
            let config = self.overrides.config(&config).map_err(|what| ("invalid", what))?;
            server.reload(&config).map_err(|wrong| ("invalid", wrong.join("; ")))
        };
        py.detach(reload).map_err(|(kind, what)| exception(kind, what))
    }

    /// Stop it; a second call does nothing.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| {
            let server = self.server.lock().take();
            if let Some(server) = server {
                server.stop();
            }
        });
    }
}

/// The pages of a federation's conditions.
fn mounts(served: &ServedFederation) -> Result<Vec<Mount>, String> {
    let federation = Federation::open_with(&served.folder, OpenOptions::default());
    let federation = federation
        .map_err(|error| format!("cannot serve the conditions of {}: {error}", served.name))?;
    Ok(vec![Mount { prefix: "/conditions", routes: femtobarn_conditions::routes(federation) }])
}

/// Start logging to standard error, as a configuration file says.
#[pyfunction]
pub(crate) fn start_log(config: Text) -> PyResult<()> {
    let invalid = |what: String| exception("invalid", what);
    let config = Config::from_toml(&config).map_err(invalid)?;
    femtobarn_server::logging::start(&config.log).map_err(invalid)
}

/// Return all settings of a server with their defaults and comments.
#[pyfunction]
pub(crate) fn default_config() -> &'static str {
    femtobarn_server::config::DEFAULTS
}

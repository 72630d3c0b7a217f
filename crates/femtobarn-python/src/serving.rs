//! A server in this process.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use femtobarn_server::{Config, Server, StartError};
use pyo3::prelude::*;

use crate::error::exception;

/// A server that is running.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct ServerHandle {
    port: u16,
    exports: Vec<String>,
    /// None once it was stopped.
    server: Mutex<Option<Server>>,
}

#[pymethods]
impl ServerHandle {
    /// Starts a server: what a configuration file says, and what is given beside it.
    #[staticmethod]
    #[pyo3(signature = (config, folders, port, address, anonymous, read_only))]
    fn start(
        py: Python<'_>,
        config: &str,
        folders: Vec<(PathBuf, String)>,
        port: Option<u16>,
        address: Option<String>,
        anonymous: Option<&str>,
        read_only: bool,
    ) -> PyResult<Self> {
        let invalid = |what: String| exception("invalid", what);
        let mut config = Config::from_toml(config).map_err(invalid)?;
        folders.into_iter().for_each(|(folder, name)| config.export(folder, name));
        config.port = port.unwrap_or(config.port);
        config.address = address.unwrap_or(config.address);
        config.read_only |= read_only;
        if let Some(anonymous) = anonymous {
            config.auth.anonymous = anonymous.parse().map_err(invalid)?;
        }
        let server = py.detach(|| Server::start(config)).map_err(|error| match error {
            StartError::Config(what) => exception("invalid", what),
            StartError::System(what) => exception("storage", what),
        })?;
        Ok(ServerHandle {
            port: server.address().port(),
            exports: server.exports(),
            server: Mutex::new(Some(server)),
        })
    }

    /// The port that it listens on.
    #[getter]
    fn port(&self) -> u16 {
        self.port
    }

    /// The names that paths begin with.
    #[getter]
    fn exports(&self) -> Vec<String> {
        self.exports.clone()
    }

    /// What it is doing, as JSON.
    fn status(&self) -> PyResult<String> {
        match &*self.server.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(server) => {
                Ok(serde_json::to_string(&server.status()).expect("a status is plain data"))
            }
            None => Err(exception("closed", "the server was stopped".to_owned())),
        }
    }

    /// Stops it; a second time does nothing.
    fn stop(&self, py: Python<'_>) {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(server) = server {
            py.detach(|| server.stop());
        }
    }
}

/// Starts the log that a configuration file asks for, on standard error.
#[pyfunction]
pub fn start_log(config: &str) -> PyResult<()> {
    let invalid = |what: String| exception("invalid", what);
    let config = Config::from_toml(config).map_err(invalid)?;
    femtobarn_server::logging::start(&config.log).map_err(invalid)
}

/// All settings of a server with their defaults, and comments.
#[pyfunction]
pub fn default_config() -> &'static str {
    femtobarn_server::config::DEFAULTS
}

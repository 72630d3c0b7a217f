//! A catalogue that is at a server, for those who use it as if it were here.
//!
//! | module | what |
//! |---|---|
//! | `address` | where the server is, and which federation |
//! | `token` | who asks, to the server |
//! | `ledger` | what the session holds and waits for |
//! | `failure` | what keeps a call from being answered, and whether to wait for the end of it |
//! | `session` | the task that keeps the session, and opens it again |
//! | `calls` | single calls, sent again where that does no harm |
//! | `catalogue` | the catalogue made of these |
//!
//! Invariants:
//! 1. What was not answered is sent again until it is, or patience is over. A transaction that is sent
//!    again says so, and is not published twice.
//! 2. The session outlives connections and the server: it is opened again under the same name, and takes
//!    its locks and pins with it. A transaction whose database was lost on the way fails.
//! 3. Rows as of a commit never change, and are asked for once. All others are asked for each time.
//! 4. One thread does all the talking; those who ask wait for it. A forked child has none, and is told so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{Error, Result};
use tokio::runtime::Runtime;
use uuid::Uuid;

mod address;
mod calls;
mod catalogue;
mod failure;
mod ledger;
mod session;
mod token;

pub use address::Address;

use session::Shared;

/// How a remote catalogue is reached.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// A bearer token; otherwise one is looked for where such tokens are kept, and sent over TLS only.
    pub token: Option<String>,
    /// A certificate that is trusted besides those of the system, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`
    /// where they are set, in PEM format.
    pub certificate: Option<Vec<u8>>,
    /// How long a server that does not answer is waited for, or one that was there and is gone: a minute by
    /// default. What cannot be connected to at first is not waited for.
    pub patience: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions { token: None, certificate: None, patience: Duration::from_secs(60) }
    }
}

/// The catalogue of a federation at a server.
#[derive(Debug)]
pub struct RemoteCatalogue {
    shared: Arc<Shared>,
    /// None once it is shut down.
    runtime: Option<Runtime>,
    uuid: Uuid,
    name: String,
    url: PathBuf,
    is_read_only: bool,
}

impl RemoteCatalogue {
    /// Opens a session at a server: `root://host:port//name.fed`, or `roots://` for TLS.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is no such URL; [`Error::Unavailable`] if no server answers there, or its
    /// certificate is not trusted; [`Error::NoFederation`] if it has none of this name; [`Error::Denied`] if
    /// it does not let the caller in.
    pub fn connect(url: &str, options: &ConnectOptions) -> Result<Self> {
        let address = Address::parse(url)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("femtobarn-catalogue")
            .enable_all()
            .build()
            .map_err(|error| Error::Io {
                what: "cannot start a thread for the catalogue".to_owned(),
                source: Arc::new(error),
            })?;
        let shared = {
            let _inside = runtime.enter();
            Arc::new(Shared::new(&address, options)?)
        };
        let (welcomed, welcome) = std::sync::mpsc::channel();
        runtime.spawn(Arc::clone(&shared).keep(welcomed));
        let stopped = |_| Error::Internal { what: "the session stopped".to_owned() };
        let welcome = welcome.recv().map_err(stopped)??;
        Ok(RemoteCatalogue {
            shared,
            runtime: Some(runtime),
            uuid: crate::convert::uuid(&welcome.uuid)?,
            name: welcome.name,
            url: PathBuf::from(address.to_string()),
            is_read_only: welcome.read_only,
        })
    }

    /// The URL of the federation, in its plainest form.
    pub fn url(&self) -> &Path {
        &self.url
    }
}

impl Drop for RemoteCatalogue {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if self.shared.check_open().is_err() {
            // Its threads are the parent's.
            std::mem::forget(runtime);
            return;
        }
        self.shared.say_goodbye();
        runtime.shutdown_background();
    }
}

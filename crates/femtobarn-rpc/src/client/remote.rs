//! [`RemoteCatalogue`]: opening and closing its session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use femtobarn_catalog::{Error, Result};
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::address::Address;
use super::homes::HomeSessions;
use super::options::ConnectOptions;
use super::session::RemoteSession;
use crate::convert;

/// The catalogue of a federation at a server.
#[derive(Debug)]
pub struct RemoteCatalogue {
    pub(super) session: Arc<RemoteSession>,
    /// `None` if the federation has one server.
    pub(super) homes: Option<Arc<HomeSessions>>,
    /// `None` after the shutdown.
    pub(super) runtime: Option<Runtime>,
    pub(super) uuid: Uuid,
    pub(super) name: String,
    pub(super) url: PathBuf,
    pub(super) is_read_only: bool,
}

impl RemoteCatalogue {
    /// Opens a session at a server: `root://host:port//name.fed`, or `roots://` for TLS.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the URL is malformed; [`Error::Unavailable`] if no server answers there, or its
    /// certificate is not trusted; [`Error::NoFederation`] if the server has no federation of this name;
    /// [`Error::Denied`] if it does not admit the caller.
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
        let (session, welcome) =
            RemoteSession::begin(runtime.handle(), &address, Uuid::new_v4(), options)?;
        let homes = || Arc::new(HomeSessions::new(Arc::clone(&session), options));
        Ok(RemoteCatalogue {
            homes: welcome.site.is_some().then(homes),
            session,
            runtime: Some(runtime),
            uuid: convert::uuid(&welcome.uuid)?,
            name: welcome.name,
            url: PathBuf::from(address.to_string()),
            is_read_only: welcome.read_only,
        })
    }

    /// How many times the session was opened: more than once if the connection or the server failed meanwhile. A server
    /// that was restarted may have another history.
    pub fn openings(&self) -> u64 {
        self.session.openings()
    }

    /// Whether the session is with the server of a URL.
    pub fn is_at(&self, url: &str) -> bool {
        Address::parse(url).is_ok_and(|address| address == self.session.places.current().address)
    }

    /// The URL of the federation in its normal form.
    pub fn url(&self) -> &Path {
        &self.url
    }
}

impl Drop for RemoteCatalogue {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if self.session.check_open().is_err() {
            // After a fork, the threads are the parent's.
            std::mem::forget(runtime);
            return;
        }
        self.homes.iter().for_each(|homes| homes.close());
        self.session.close();
        runtime.shutdown_background();
    }
}

//! A client: files and directories on XRootD servers, async and, as [`blocking`], for threads.
//!
//! ```no_run
//! use xrd::client::{Options, Url, blocking::Client};
//! use xrd::flags::OpenOptions;
//!
//! let url = Url::parse("root://data.example//store/run7.root")?;
//! let client = Client::connect(&url, Options::default())?;
//! let file = client.open(&url.location, OpenOptions::READ)?;
//! let mut front = [0; 100];
//! let count = file.read_at(0, &mut front)?;
//! println!("{} bytes: {:?}", file.stat()?.size, &front[..count]);
//! # Ok::<(), xrd::client::ClientError>(())
//! ```
//!
//! Each row may use the rows below it:
//!
//! | module | contents |
//! |---|---|
//! | [`blocking`] | the same interface for threads |
//! | [`Client`], [`File`], `filesystem` | the interface: paths, open files |
//! | `reads`, `writes` | splitting reads and writes into requests; page checksums and their repair |
//! | `remote_handle`, `unconfirmed_writes` | a file's handle on one connection; its writes in flight |
//! | `connection`, `channel`, `shown_token` | one session; one of its TCP connections; its token, and another in its place |
//! | `retry`, `session_setup`, `requests`, `sink` | state machines without I/O: redirects and retries; login; requests in flight; destinations of answers |
//! | `transport`, `tls`, `socket`, `call_mode`, `clock` | bytes to and from the network; threads or tasks; time |
//! | `credentials`, [`Options`], [`Url`], [`Endpoint`], `error`, `attempt_error` | settings, addresses, errors |
//!
//! 1. The client follows redirects, honours waits and reconnects, all within [`Options::patience`].
//! 2. A request that is not idempotent is never sent twice: it fails with [`ClientError::Lost`].
//! 3. A file is reopened after its connection was lost, unless it has writes that are not synced: a server
//!    that restarted may have dropped them.
//! 4. Bytes from a server never panic, and take no more memory than the answer that was requested.

mod attempt_error;
pub mod blocking;
mod call_mode;
mod channel;
mod clock;
mod connection;
mod credentials;
mod endpoint;
mod error;
mod file;
mod filesystem;
mod options;
mod reads;
mod remote_handle;
mod requests;
mod retry;
mod session_setup;
mod shown_token;
mod sink;
mod socket;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod unconfirmed_writes;
mod url;
mod writes;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use attempt_error::AttemptError;
use call_mode::CallMode;
use connection::Connection;
use retry::RetryState;
use session_setup::Purpose;

use crate::ids::SessionId;
use crate::location::Location;
use crate::request::Request;

pub use credentials::{FoundToken, bearer_token};
pub use endpoint::Endpoint;
pub use error::{ClientError, Result};
pub use file::File;
pub use options::{
    AddressFilter, ClientCertificate, FilterRule, Options, Token, client_certificate,
};
pub use sink::ReadPiece;
pub use url::Url;

/// A server, and the servers that it redirects to, for tasks of a tokio runtime. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<ClientInner>,
}

#[derive(Debug)]
struct ClientInner {
    url: Url,
    options: Options,
    user: String,
    call_mode: CallMode,
    slots: Mutex<HashMap<(Endpoint, bool), Arc<CachedConnection>>>,
}

/// The connection to a server, if there is one. The lock is held while it is opened.
type CachedConnection = tokio::sync::Mutex<Option<Arc<Connection>>>;

impl Client {
    /// Connects to the server of a URL. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] if there is no connection or its certificate is not trusted;
    /// [`ClientError::Login`] if the server rejects the credentials; [`ClientError::Refused`] if it refuses the
    /// session for another reason.
    pub async fn connect(url: &Url, options: Options) -> Result<Self> {
        Self::connect_as(CallMode::Task, url, options).await
    }

    async fn connect_as(call_mode: CallMode, url: &Url, mut options: Options) -> Result<Self> {
        options.user = url.user.clone().or(options.user);
        let user = credentials::user_name(&options);
        let (url, slots) = (url.clone(), Mutex::default());
        let client =
            Client { inner: Arc::new(ClientInner { url, options, user, call_mode, slots }) };
        let retry = client.retry(&client.inner.url.location);
        client.connection(&retry).await.map_err(|error| retry.client_error(error))?;
        Ok(client)
    }

    /// The URL of [`Client::connect`].
    pub fn url(&self) -> &Url {
        &self.inner.url
    }

    /// Whether there is a connection to the server of the URL, as far as is known without asking it.
    pub fn is_connected(&self) -> bool {
        let ClientInner { url, slots, .. } = &*self.inner;
        let slot = slots.lock().get(&(url.server.clone(), url.wants_tls)).cloned();
        slot.is_some_and(|slot| match slot.try_lock() {
            Ok(connection) => connection.as_ref().is_some_and(|it| !it.is_lost()),
            // Another call is about to use it.
            Err(_) => true,
        })
    }

    fn retry(&self, location: &Location) -> RetryState {
        let ClientInner { url, options, user, .. } = &*self.inner;
        RetryState::new(url, location.clone(), user.clone(), options, clock::now())
    }

    /// The connection to the server of an attempt; opens it if there is none.
    async fn connection(&self, retry: &RetryState) -> Result<Arc<Connection>, AttemptError> {
        let ClientInner { options, call_mode, slots, .. } = &*self.inner;
        let key = (retry.server.clone(), retry.wants_tls);
        let slot = {
            let mut slots = slots.lock();
            slots.entry(key).or_default().clone()
        };
        let mut slot = slot.lock().await;
        if let Some(connection) = &*slot
            && !connection.is_lost()
        {
            return Ok(connection.clone());
        }
        let previous: Option<SessionId> = slot.take().map(|connection| connection.session());
        let purpose = Purpose::Session { previous, login_opaque: retry.login_opaque.clone() };
        let opened =
            Connection::open(*call_mode, &retry.server, retry.wants_tls, options, purpose).await;
        let connection = Arc::new(opened?);
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// Repeats a request until an attempt succeeds or none may follow. Returns the answer and its connection.
    async fn call(
        &self,
        mut retry: RetryState,
        request: impl Fn(Location) -> Request,
    ) -> Result<(Arc<Connection>, Bytes)> {
        loop {
            let request = request(retry.location()?);
            let answered = async {
                let connection = self.connection(&retry).await?;
                let body = connection.call_with_rights(&request, &self.inner.options).await?;
                Ok((connection, body))
            };
            match answered.await {
                Ok(answered) => return Ok(answered),
                Err(error) => self.wait_to_retry(&mut retry, error).await?,
            }
        }
    }

    /// Waits for the next attempt.
    ///
    /// # Errors
    /// `error` as a [`ClientError`] if no attempt may follow.
    async fn wait_to_retry(&self, retry: &mut RetryState, error: AttemptError) -> Result<()> {
        let after = retry.delay_after(error, clock::now())?;
        if !after.is_zero() {
            self.inner.call_mode.sleep(after).await;
        }
        Ok(())
    }
}

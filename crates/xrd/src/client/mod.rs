//! A client: files and folders of servers, for tasks and, as [`blocking`], for threads.
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
//! | module | noun |
//! |---|---|
//! | [`Client`], [`File`] | what users have; [`blocking`] has the same for threads |
//! | `filesystem` | calls about names |
//! | `reading`, `writing` | how large reads and writes are parted, checked and corrected |
//! | `attempt` | what becomes of an operation after trouble (without I/O) |
//! | `connection` | one session: who sends, who reads |
//! | `greeting`, `requests`, `sink` | login; answers that are due; where they go (without I/O) |
//! | `stream`, `tls`, `waiting` | sockets; what hides their bytes; threads and tasks |
//! | `credentials`, [`Options`], [`Url`] | who asks, how, and where |
//!
//! 1. Redirects are followed, waits are waited for, lost connections are made anew, all within
//!    [`Options::patience`].
//! 2. What must not be done twice is never sent twice: it fails with [`ClientError::Lost`].
//! 3. A file that is open for reading is opened again where its connection was lost; one that was
//!    written to since it was synced last is not, since a server that restarted may have lost that.
//! 4. Bytes of a server never panic and take no more memory than what was asked for.

mod attempt;
pub mod blocking;
mod connection;
mod credentials;
mod error;
mod failure;
mod file;
mod filesystem;
mod greeting;
mod options;
mod reading;
mod requests;
mod sink;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod waiting;
mod writing;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;

use attempt::Attempt;
use connection::Connection;
use failure::AttemptError;
use greeting::Purpose;
use waiting::Waiter;

use crate::ids::SessionId;
use crate::location::Location;
use crate::request::Request;

pub use error::{ClientError, Result};
pub use file::File;
pub use options::{Options, Token};
pub use sink::Piece;
pub use url::{Endpoint, Url};

/// A server, and those that it redirects to, for tasks of a tokio runtime. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    url: Url,
    options: Options,
    user: String,
    waiter: Waiter,
    places: Mutex<HashMap<(Endpoint, bool), Arc<Place>>>,
}

/// A server and the connection to it.
type Place = tokio::sync::Mutex<Option<Arc<Connection>>>;

impl Client {
    /// Connects to the server of a URL. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`], [`ClientError::Login`], or what the server refuses.
    pub async fn connect(url: &Url, options: Options) -> Result<Self> {
        Self::connect_as(Waiter::Task, url, options).await
    }

    async fn connect_as(waiter: Waiter, url: &Url, mut options: Options) -> Result<Self> {
        options.user = url.user.clone().or(options.user);
        let user = credentials::user_name(&options);
        let (url, places) = (url.clone(), Mutex::default());
        let client = Client { shared: Arc::new(Shared { url, options, user, waiter, places }) };
        let attempt = client.attempt(&client.shared.url.location);
        client.connection(&attempt).await.map_err(|trouble| attempt.error(trouble))?;
        Ok(client)
    }

    /// What it connected to.
    pub fn url(&self) -> &Url {
        &self.shared.url
    }

    fn attempt(&self, location: &Location) -> Attempt {
        let Shared { url, options, user, .. } = &*self.shared;
        Attempt::new(url, location.clone(), user.clone(), options, Instant::now())
    }

    /// The connection to where something is tried.
    async fn connection(&self, attempt: &Attempt) -> Result<Arc<Connection>, AttemptError> {
        let Shared { options, waiter, places, .. } = &*self.shared;
        let key = (attempt.server.clone(), attempt.wants_tls);
        let place = {
            let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
            places.entry(key).or_default().clone()
        };
        let mut place = place.lock().await;
        if let Some(connection) = &*place
            && !connection.is_lost()
        {
            return Ok(connection.clone());
        }
        let before: Option<SessionId> = place.take().map(|connection| connection.session());
        let purpose = Purpose::Session { before, told: attempt.told.clone() };
        let opened =
            Connection::open(*waiter, &attempt.server, attempt.wants_tls, options, purpose).await;
        let connection = Arc::new(opened?);
        *place = Some(connection.clone());
        Ok(connection)
    }

    /// Asks until there is an answer or an error; tells who answered.
    async fn ask(
        &self,
        mut attempt: Attempt,
        request: impl Fn(Location) -> Request,
    ) -> Result<(Arc<Connection>, Bytes)> {
        loop {
            let request = request(attempt.location()?);
            let answered = async {
                let connection = self.connection(&attempt).await?;
                let body = connection.call(&request, &[]).await?;
                Ok((connection, body))
            };
            match answered.await {
                Ok(answered) => return Ok(answered),
                Err(trouble) => self.pause(&mut attempt, trouble).await?,
            }
        }
    }

    /// Waits until something may be tried again.
    async fn pause(&self, attempt: &mut Attempt, trouble: AttemptError) -> Result<()> {
        let after = attempt.after(trouble, Instant::now())?;
        if !after.is_zero() {
            self.shared.waiter.sleep(after).await;
        }
        Ok(())
    }
}

//! [`StoreServer`]: the connection to the server of a store, and the files that are open there.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;
use parking_lot::Mutex;
use xrd::Location;
use xrd::client::{Client, ClientError, File, Options, Result, Url};
use xrd::flags::{OpenOptions, PrepareMore, PrepareOptions};

/// Files that stay open for further reads: opening one may take a server far longer than reading it.
const OPEN_MAX: usize = 32;
/// The time after which the server is asked again to bring a file online.
const ASK_AGAIN: Duration = Duration::from_secs(3600);

/// The folder on a server that a store is in.
#[derive(Debug)]
pub(super) struct StoreServer {
    url: Url,
    options: Options,
    client: Mutex<Option<Client>>,
    /// The files that were read last, by key, the newest at the end.
    open: Mutex<VecDeque<(String, Arc<File>)>>,
    /// When the server was asked to bring files online, by key.
    asked: Mutex<HashMap<String, Instant>>,
}

impl StoreServer {
    /// A server that is connected to at the first use.
    pub(super) fn new(url: Url, options: Options) -> Self {
        let (client, open) = (Mutex::default(), Mutex::default());
        StoreServer { url, options, client, open, asked: Mutex::default() }
    }

    /// The folder.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The place of a file below the folder, with opaque information for the server.
    ///
    /// # Errors
    /// `Invalid` if it is too long.
    pub(super) fn location(&self, key: &str, opaque: &str) -> Result<Location> {
        let folder = self.url.location.path();
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        let whole = [folder, b"/", key.as_bytes(), opaque.as_bytes()].concat();
        Location::new(whole).map_err(|error| ClientError::Invalid { what: error.to_string() })
    }

    /// The connection, which is made if none exists.
    ///
    /// # Errors
    /// The errors of [`Client::connect`].
    pub(super) async fn client(&self) -> Result<Client> {
        let known = self.client.lock().clone();
        if let Some(client) = known {
            return Ok(client);
        }
        // Callers that need a connection meanwhile connect, too, so none waits for the time-out of another. The first
        // one is kept.
        let connected = Client::connect(&self.url, self.options.clone()).await?;
        Ok(self.client.lock().get_or_insert(connected).clone())
    }

    /// A connection of its own, for a request that may take `patience`.
    ///
    /// # Errors
    /// The errors of [`Client::connect`].
    pub(super) async fn patient_client(&self, patience: Duration) -> Result<Client> {
        let options = Options {
            request_timeout: self.options.request_timeout.max(patience),
            patience: self.options.patience.max(patience),
            ..self.options.clone()
        };
        Client::connect(&self.url, options).await
    }

    /// The open file of a key, if it is open.
    pub(super) fn known_open(&self, key: &str) -> Option<Arc<File>> {
        let mut open = self.open.lock();
        let place = open.iter().position(|(name, _)| name == key)?;
        let found = open.remove(place)?;
        let file = Arc::clone(&found.1);
        open.push_back(found);
        Some(file)
    }

    /// Opens a file, which stays open for reading.
    ///
    /// # Errors
    /// The errors of [`Client::open`].
    pub(super) async fn open(&self, key: &str) -> Result<Arc<File>> {
        let client = self.client().await?;
        let file = Arc::new(client.open(&self.location(key, "")?, OpenOptions::READ).await?);
        self.asked.lock().remove(key);
        self.keep_open(key, &file);
        Ok(file)
    }

    /// Closes a file that is open for reading, once no read uses it. Must be called within the runtime.
    pub(super) fn forget_open(&self, key: &str) {
        self.open.lock().retain(|(name, _)| name != key);
    }

    fn keep_open(&self, key: &str, file: &Arc<File>) {
        let mut open = self.open.lock();
        open.push_back((key.to_owned(), Arc::clone(file)));
        // A file that two callers opened at once is closed in its turn, too.
        let oldest = if open.len() > OPEN_MAX { open.pop_front() } else { None };
        drop(open);
        drop(oldest);
    }

    /// Asks the server to bring a file online, unless it was asked recently.
    ///
    /// # Errors
    /// The errors of [`Client::prepare`].
    pub(super) async fn bring_online(&self, key: &str) -> Result<()> {
        let location = [self.location(key, "")?];
        let (stage, more) = (PrepareOptions::STAGE, PrepareMore::default());
        let client = self.client().await?;
        {
            let now = clock::now();
            let mut asked = self.asked.lock();
            asked.retain(|_, since| now.duration_since(*since) < ASK_AGAIN);
            if asked.contains_key(key) {
                return Ok(());
            }
            asked.insert(key.to_owned(), now);
        }
        let prepared = client.prepare(&location, stage, more, 0).await;
        if prepared.is_err() {
            self.asked.lock().remove(key);
        }
        prepared.map(drop)
    }
}

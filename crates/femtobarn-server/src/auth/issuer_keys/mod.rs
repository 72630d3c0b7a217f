//! The keys of an issuer, by which its tokens are verified.
//!
//! | module | contents |
//! |---|---|
//! | `key_set` | sets of keys, and the key for a token |
//! | `file` | keys in a file |
//! | `cache` | fetched keys: how long they are used, and when they are fetched again |
//! | `fetch` | fetches them from the issuer |
//!
//! 1. A key verifies only signatures of its own kind; shared secrets verify none.
//! 2. A search for a key never fetches any. One task for each issuer fetches its keys, one request after the other.

mod cache;
mod fetch;
mod file;
mod key_set;

use std::path::Path;
use std::time::Duration;

use femtobarn_catalog::clock;
use jsonwebtoken::jwk::Jwk;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use cache::KeyCache;
use fetch::KeyFetcher;
use file::KeyFile;
pub(super) use key_set::WantedKey;

/// The longest wait of a client for keys to be fetched.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The longest time of a fetch.
const FETCH_MAX: Duration = Duration::from_secs(15);

/// The keys of one issuer.
pub(super) enum IssuerKeys {
    File(KeyFile),
    Fetched(Box<FetchedKeys>),
}

/// Keys that are fetched from the issuer.
pub(super) struct FetchedKeys {
    fetcher: KeyFetcher,
    cache: Mutex<KeyCache>,
    /// Whether keys are to be fetched at another time than before.
    rescheduled: Notify,
    /// The number of fetches, including failed ones.
    fetches: watch::Sender<u64>,
}

impl IssuerKeys {
    /// The keys of an issuer: from a file, which is read now; or, if the file's name is empty, fetched later.
    ///
    /// # Errors
    /// A text that names the file that cannot be read, or the issuer whose URL is invalid.
    pub(super) fn of(issuer: &str, file: &Path) -> Result<Self, String> {
        if !file.as_os_str().is_empty() {
            return KeyFile::open(issuer, file).map(IssuerKeys::File);
        }
        let (fetches, _) = watch::channel(0);
        Ok(IssuerKeys::Fetched(Box::new(FetchedKeys {
            fetcher: KeyFetcher::new(issuer)?,
            cache: Mutex::new(KeyCache::new(clock::now())),
            rescheduled: Notify::new(),
            fetches,
        })))
    }

    /// The wanted key.
    ///
    /// # Errors
    /// A text for the client, if there is no such key.
    pub(super) fn find(&self, wanted: &WantedKey<'_>) -> Result<Jwk, String> {
        match self {
            IssuerKeys::File(file) => file.find(wanted),
            IssuerKeys::Fetched(keys) => keys.cache.lock().find(wanted, clock::now()),
        }
    }

    /// Waits until the wanted key exists, if it may exist soon; at most [`WAIT_MAX`].
    pub(super) async fn wait_for(&self, wanted: &WantedKey<'_>) {
        if let IssuerKeys::Fetched(keys) = self {
            keys.wait_for(wanted).await;
        }
    }

    /// Fetches the keys when they are needed. Never returns, or at once if there is nothing to fetch.
    pub(super) async fn keep(&self) {
        if let IssuerKeys::Fetched(keys) = self {
            keys.keep().await;
        }
    }
}

impl FetchedKeys {
    async fn wait_for(&self, wanted: &WantedKey<'_>) {
        // Fetches from here on are noticed.
        let mut fetches = self.fetches.subscribe();
        {
            let (mut cache, now) = (self.cache.lock(), clock::now());
            if cache.find(wanted, now).is_ok() || !cache.want(now) {
                return;
            }
        }
        self.rescheduled.notify_one();
        drop(timeout(WAIT_MAX, fetches.changed()).await);
    }

    /// Fetches the keys soon, whenever that was done last.
    pub(super) fn renew(&self) {
        self.cache.lock().renew(clock::now());
        self.rescheduled.notify_one();
    }

    async fn keep(&self) {
        loop {
            let wait = self.cache.lock().wait(clock::now());
            tokio::select! {
                () = sleep(wait) => self.fetch().await,
                () = self.rescheduled.notified() => {}
            }
        }
    }

    async fn fetch(&self) {
        self.cache.lock().begin(clock::now());
        let late = |_| Err(format!("no answer within {} s", FETCH_MAX.as_secs()));
        let fetched = timeout(FETCH_MAX, self.fetcher.fetch()).await.unwrap_or_else(late);
        let issuer = self.fetcher.issuer();
        match &fetched {
            Ok(found) => tracing::debug!(issuer, keys = found.keys.len(), "keys fetched"),
            Err(why) => tracing::warn!(issuer, why, "cannot fetch the keys of a token issuer"),
        }
        self.cache.lock().end(fetched, clock::now());
        self.fetches.send_modify(|count| *count += 1);
    }
}

//! One server behind a redirector: whether it is up, how much it has to do, whether it has a file.
//!
//! 1. It is asked for its role and its load every second. While it does not answer it is down: it is not asked for files,
//!    and nobody is redirected to it.
//!    While it is late with an answer, others are preferred.
//! 2. Its load is what it says that it works on, which servers of this kind do, and the clients that it was sent since.
//! 3. A redirector or manager is never up: two that are behind each other would send clients back and forth.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;
use parking_lot::Mutex;
use xrd::client::{Client, ClientError, Endpoint, Options, Url};
use xrd::flags::StatFlags;
use xrd::{ErrorCode, Location, QueryCode};

use super::PATIENCE;
use crate::physical::StoragePath;

/// Between two questions whether it is up.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long it may take to answer before others are preferred.
const LATE: Duration = Duration::from_millis(100);
/// Letters of a server's text that are kept.
const TEXT_LETTERS_MAX: usize = 200;
/// The words of its configuration that it is asked for. A server answers a word that it does not know by the word itself.
const WORDS: &str = "role fb.running";

/// Whether a server has a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has it.
    Here {
        /// Whether it can be read now.
        is_online: bool,
        /// Whether it can be written.
        is_writable: bool,
    },
    /// It says that it does not, and why.
    Absent(ErrorCode, String),
    /// It has not said, and why.
    Unknown(String),
}

impl Presence {
    /// Whether it is there.
    pub fn is_here(&self) -> bool {
        matches!(self, Presence::Here { .. })
    }
}

impl fmt::Display for Presence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Presence::Here { .. } => formatter.write_str("has it"),
            Presence::Absent(code, text) => write!(formatter, "says {code}, {text}"),
            Presence::Unknown(why) => formatter.write_str(why),
        }
    }
}

/// A server that has files.
pub struct DataServer {
    url: Url,
    standing: Mutex<Standing>,
    redirects: AtomicU64,
}

enum Standing {
    /// It has not been asked yet.
    New,
    Up {
        client: Client,
        /// Requests that it worked on when it answered last.
        running: u64,
        /// Clients that were redirected there since.
        sent: u64,
        /// When it was asked again, if it has not answered since.
        asked: Option<Instant>,
    },
    /// It does not answer, and why.
    Down(String),
}

impl DataServer {
    pub(super) fn new(url: Url) -> Self {
        DataServer { url, standing: Mutex::new(Standing::New), redirects: AtomicU64::new(0) }
    }

    /// Its name and port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.url.server
    }

    /// Whether it has been asked if it is up.
    pub(super) fn is_known(&self) -> bool {
        !matches!(*self.standing.lock(), Standing::New)
    }

    /// Whether it answers.
    pub fn is_up(&self) -> bool {
        matches!(*self.standing.lock(), Standing::Up { .. })
    }

    /// Why it is down; empty if it is up.
    pub fn why_down(&self) -> String {
        match &*self.standing.lock() {
            Standing::New => "not asked yet".to_owned(),
            Standing::Up { .. } => String::new(),
            Standing::Down(why) => why.clone(),
        }
    }

    /// How much it has to do, in the unit of requests that are worked on.
    pub fn load(&self) -> u64 {
        match &*self.standing.lock() {
            Standing::Up { running, sent, .. } => running + sent,
            _ => 0,
        }
    }

    /// How much is against it: its load; more than any if it is late with an answer, since it may hang.
    pub(super) fn weight(&self) -> u64 {
        match &*self.standing.lock() {
            Standing::Up { asked: Some(asked), .. } if asked.elapsed() > LATE => u64::MAX,
            Standing::Up { running, sent, .. } => running + sent,
            _ => u64::MAX,
        }
    }

    /// Clients that were redirected there since the start.
    pub fn redirects(&self) -> u64 {
        self.redirects.load(Ordering::Relaxed)
    }

    /// Records that a client was redirected there.
    pub(super) fn sent(&self) {
        self.redirects.fetch_add(1, Ordering::Relaxed);
        if let Standing::Up { sent, .. } = &mut *self.standing.lock() {
            *sent += 1;
        }
    }

    /// What is known about a path before the server has answered.
    pub(super) fn unasked(&self) -> Presence {
        match &*self.standing.lock() {
            Standing::Down(why) => Presence::Unknown(why.clone()),
            _ => Presence::Unknown("has not answered in time".to_owned()),
        }
    }

    /// The connection to it, if it is up.
    fn client(&self) -> Option<Client> {
        match &*self.standing.lock() {
            Standing::Up { client, .. } => Some(client.clone()),
            _ => None,
        }
    }

    /// Asks it, if it is up, whether it has a path.
    pub(super) async fn presence(&self, path: &StoragePath) -> Presence {
        let Some(client) = self.client() else { return self.unasked() };
        let Ok(location) = Location::new(path.as_bytes().to_vec()) else {
            return Presence::Absent(ErrorCode::ARG_TOO_LONG, "the path is too long".to_owned());
        };
        match client.stat(&location).await {
            Ok(stat) => Presence::Here {
                is_online: !stat.flags.contains(StatFlags::OFFLINE),
                is_writable: stat.flags.contains(StatFlags::WRITABLE),
            },
            Err(ClientError::Refused { code, message, .. }) => {
                Presence::Absent(code, shortened(&message))
            }
            Err(error) => {
                let why = reason(&error);
                if is_of(&error, self.endpoint()) {
                    self.falls(why.clone());
                }
                Presence::Unknown(why)
            }
        }
    }

    /// Asks it every second whether it is up. Never returns.
    pub(super) async fn watch(&self) {
        let mut client = None;
        loop {
            if let Standing::Up { asked, .. } = &mut *self.standing.lock() {
                *asked = Some(clock::now());
            }
            match self.probe(client.take()).await {
                Ok((answering, running)) => {
                    let up =
                        Standing::Up { client: answering.clone(), running, sent: 0, asked: None };
                    let before = std::mem::replace(&mut *self.standing.lock(), up);
                    if !matches!(before, Standing::Up { .. }) {
                        tracing::info!(server = %self.endpoint(), "is up");
                    }
                    client = Some(answering);
                }
                Err(why) => self.falls(why),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Asks whether it is up, over this connection or a new one. Returns the connection and how many requests it works on.
    async fn probe(&self, client: Option<Client>) -> Result<(Client, u64), String> {
        let client = match client {
            Some(client) => client,
            None => {
                let connecting = Client::connect(&self.url, options()).await;
                connecting.map_err(|error| reason(&error))?
            }
        };
        let answer = client.query(QueryCode::CONFIG, WORDS).await;
        let answer = answer.map_err(|error| reason(&error))?;
        let answer = String::from_utf8_lossy(&answer);
        let mut lines = answer.trim_end_matches('\0').lines();
        let role = lines.next().unwrap_or_default();
        if role.contains("manager") || role.contains("supervisor") {
            return Err(format!("is a {}, not a server with files", shortened(role)));
        }
        // Servers of other kinds do not tell.
        let running = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(0);
        Ok((client, running))
    }

    fn falls(&self, why: String) {
        let down = Standing::Down(why.clone());
        let before = std::mem::replace(&mut *self.standing.lock(), down);
        if !matches!(before, Standing::Down(_)) {
            tracing::warn!(server = %self.endpoint(), why, "is down");
        }
    }
}

fn options() -> Options {
    Options {
        connect_timeout: PATIENCE,
        request_timeout: PATIENCE,
        patience: PATIENCE,
        reconnect_timeout: Duration::ZERO,
        application: "femtobarn-redirector".to_owned(),
        ..Options::default()
    }
}

/// Whether an error means that this server, rather than one that it redirects to, is down. One that does not answer for a
/// path may do so for others: whether it is up, it is asked every second.
fn is_of(error: &ClientError, server: &Endpoint) -> bool {
    match error {
        ClientError::Unreachable { server: failed, .. }
        | ClientError::Lost { server: failed, .. } => failed == server,
        _ => false,
    }
}

/// Why a server did not answer, without its name.
fn reason(error: &ClientError) -> String {
    match error {
        ClientError::Unreachable { reason, .. } => {
            shortened(&format!("cannot be reached, {reason}"))
        }
        ClientError::Lost { reason, .. } => shortened(&format!("was lost, {reason}")),
        ClientError::TimedOut { after, .. } => {
            format!("did not answer within {} s", after.as_secs())
        }
        ClientError::Refused { code, message, .. } => shortened(&format!("says {code}, {message}")),
        ClientError::Login { reason, .. } => shortened(&format!("allows no login, {reason}")),
        other => shortened(&other.to_string()),
    }
}

/// A server's text for errors and logs.
fn shortened(text: &str) -> String {
    text.trim().chars().filter(|letter| !letter.is_control()).take(TEXT_LETTERS_MAX).collect()
}

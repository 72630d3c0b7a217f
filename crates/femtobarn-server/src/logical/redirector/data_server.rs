//! One server behind a redirector: whether it is up, its load, whether it has a path.
//!
//! 1. It is asked for its role and its load every second, over a separate connection. This alone decides whether it is
//!    up: while it is down it is not asked for paths, and no client is redirected to it. While it is late, others are
//!    preferred. It is down if it does not answer twice in a row, or its connection is lost or refused.
//! 2. It is asked for paths over other connections, each question over the one with the fewest. A server answers the
//!    questions of a connection one after another, so a slow one delays only its own connection.
//! 3. Only [`DataServer::watch`] connects.
//! 4. It is asked as an anonymous client, so no secret of this server reaches it or a client.
//! 5. Its load is the number of requests in progress that it reports, which only servers of this kind do, plus the
//!    clients that it was sent since.
//! 6. A redirector or manager is never up: two of them behind each other would send clients back and forth.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use xrd::client::{Client, ClientError, Endpoint, Options, Url};
use xrd::flags::StatFlags;
use xrd::{ErrorCode, Location, QueryCode};

use crate::network::Network;

/// The longest wait for the server.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two questions whether the server is up.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest time for an answer whether it is up, including new connections, or whether it has a path.
const ANSWER_MAX: Duration = PATIENCE.saturating_mul(2);
/// The time for the answer that it is up after which others are preferred.
const LATE: Duration = Duration::from_millis(100);
/// Connections for questions about paths.
const LINES: usize = 4;
/// Questions in flight over one connection; more wait for their turn.
const QUESTIONS_MAX: usize = 256;
/// Letters of a server's text that are kept.
const TEXT_LETTERS_MAX: usize = 200;
/// The words of its configuration that it is asked for. A server answers an unknown word by the word itself.
const WORDS: &str = "role fb.running";

/// Whether a server has a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The server has the path.
    Here {
        /// Whether the path can be read now.
        is_online: bool,
        /// Whether the path can be written.
        is_writable: bool,
    },
    /// The server answered that there is no such file or folder.
    Absent(String),
    /// The server answered with another error.
    Refused(ErrorCode, String),
    /// The server has not answered.
    Unknown,
    /// The server was not asked, since it is down.
    Down,
}

impl Presence {
    /// Whether the server has the path.
    pub fn is_here(&self) -> bool {
        matches!(self, Presence::Here { .. })
    }
}

impl fmt::Display for Presence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Presence::Here { .. } => formatter.write_str("has it"),
            Presence::Absent(text) => write!(formatter, "says {}, {text}", ErrorCode::NOT_FOUND),
            Presence::Refused(code, text) => write!(formatter, "says {code}, {text}"),
            Presence::Unknown => formatter.write_str("has not answered"),
            Presence::Down => formatter.write_str("is down"),
        }
    }
}

/// A server that has files.
pub struct DataServer {
    url: Url,
    /// The addresses of the clients near the server.
    clients_near: Vec<Network>,
    standing: Mutex<Standing>,
    /// The connections for questions about paths; none while the server is down.
    lines: Mutex<Vec<Arc<Line>>>,
    redirects: AtomicU64,
}

/// Why the question whether it is up failed.
struct ProbeFailure {
    why: String,
    /// Whether the server has not answered in time, so that it may only be slow.
    is_silent: bool,
}

/// A connection for questions about paths.
struct Line {
    client: Client,
    turns: Semaphore,
}

enum Standing {
    /// The server has not been asked yet.
    New,
    Up {
        /// Requests in progress at the server's last answer.
        running: u64,
        /// Clients that were redirected there since then.
        sent: u64,
        /// When the server was asked again, if it has not answered since.
        asked: Option<Instant>,
    },
    /// The server does not answer, and why.
    Down(String),
}

impl DataServer {
    pub(super) fn new(url: Url, clients_near: Vec<Network>) -> Self {
        let (standing, lines) = (Mutex::new(Standing::New), Mutex::default());
        DataServer { url, clients_near, standing, lines, redirects: AtomicU64::new(0) }
    }

    /// The server's name and port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.url.server
    }

    /// Whether a client is near the server.
    pub(super) fn is_near(&self, client: IpAddr) -> bool {
        self.clients_near.iter().any(|network| network.has(client))
    }

    /// Whether the server has been asked if it is up.
    pub(super) fn is_known(&self) -> bool {
        !matches!(*self.standing.lock(), Standing::New)
    }

    /// Whether the server answers.
    pub fn is_up(&self) -> bool {
        matches!(*self.standing.lock(), Standing::Up { .. })
    }

    /// Whether the server does not answer.
    pub(super) fn is_down(&self) -> bool {
        matches!(*self.standing.lock(), Standing::Down(_))
    }

    /// Why the server is down; empty if it is up.
    pub fn why_down(&self) -> String {
        match &*self.standing.lock() {
            Standing::New => "not asked yet".to_owned(),
            Standing::Up { .. } => String::new(),
            Standing::Down(why) => why.clone(),
        }
    }

    /// The server's load, in requests in progress.
    pub fn load(&self) -> u64 {
        match &*self.standing.lock() {
            Standing::Up { running, sent, .. } => running + sent,
            _ => 0,
        }
    }

    /// Whether the server takes long to answer that it is up: it may hang.
    pub(super) fn is_late(&self) -> bool {
        match &*self.standing.lock() {
            Standing::Up { asked: Some(asked), .. } => asked.elapsed() > LATE,
            _ => false,
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

    /// Asks the server, if it is up, whether it has a path. A question that is given up while it is sent costs its
    /// connection.
    pub(super) async fn presence(&self, question: &Location) -> Presence {
        if self.is_down() {
            return Presence::Down;
        }
        let Some(line) = self.free_line() else { return Presence::Unknown };
        let asking = async {
            let _turn = line.turns.acquire().await;
            line.client.stat(question).await
        };
        match tokio::time::timeout(ANSWER_MAX, asking).await {
            Ok(Ok(stat)) => Presence::Here {
                is_online: !stat.flags.contains(StatFlags::OFFLINE),
                is_writable: stat.flags.contains(StatFlags::WRITABLE),
            },
            Ok(Err(ClientError::Refused { code, message, .. })) => match code {
                ErrorCode::NOT_FOUND => Presence::Absent(shortened(&message)),
                _ => Presence::Refused(code, shortened(&message)),
            },
            Ok(Err(error)) => {
                tracing::debug!(%error, "a server did not report whether it has a path");
                Presence::Unknown
            }
            Err(_) => Presence::Unknown,
        }
    }

    /// The connection with the fewest questions.
    fn free_line(&self) -> Option<Arc<Line>> {
        let lines = self.lines.lock();
        let there = lines.iter().filter(|line| line.client.is_connected());
        there.max_by_key(|line| line.turns.available_permits()).cloned()
    }

    /// Asks the server every second whether it is up. Never returns.
    pub(super) async fn watch(&self) {
        let mut client = None;
        let mut was_silent = false;
        loop {
            if let Standing::Up { asked, .. } = &mut *self.standing.lock() {
                asked.get_or_insert_with(clock::now);
            }
            let probing = tokio::time::timeout(ANSWER_MAX, self.probe(client.take())).await;
            let probed = probing.unwrap_or_else(|_| {
                Err(ProbeFailure { why: silence(ANSWER_MAX), is_silent: true })
            });
            match probed {
                Ok((answering, running)) => {
                    client = Some(answering);
                    self.rises(running);
                }
                Err(failure) if failure.is_silent && !was_silent && self.is_up() => {
                    // The server is asked once more at once, over another connection.
                    was_silent = true;
                    continue;
                }
                Err(failure) => self.falls(failure.why),
            }
            was_silent = false;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Asks the server whether it is up, over this connection or a new one, and maintains the other connections.
    /// Returns the connection and the number of requests in progress.
    async fn probe(&self, client: Option<Client>) -> Result<(Client, u64), ProbeFailure> {
        let client = match client.filter(Client::is_connected) {
            Some(client) => client,
            None => self.connect().await?,
        };
        let answer = client.query(QueryCode::CONFIG, WORDS).await?;
        let answer = String::from_utf8_lossy(&answer);
        let mut words = answer.trim_end_matches('\0').lines();
        let role = words.next().unwrap_or_default();
        if role.contains("manager") || role.contains("supervisor") {
            let why = format!("is a {}, not a server with files", shortened(role));
            return Err(ProbeFailure { why, is_silent: false });
        }
        // Servers of other kinds do not report this.
        let running = words.next().and_then(|word| word.trim().parse().ok()).unwrap_or(0);
        self.connect_lines().await?;
        Ok((client, running))
    }

    /// Replaces the connections for questions that were lost. One at least must be there.
    async fn connect_lines(&self) -> Result<(), ProbeFailure> {
        let mut lines = self.lines.lock().clone();
        lines.retain(|line| line.client.is_connected());
        let missing = (lines.len()..LINES).map(|_| self.connect());
        let mut failure = None;
        for made in join_all(missing).await {
            match made {
                Ok(client) => {
                    lines.push(Arc::new(Line { client, turns: Semaphore::new(QUESTIONS_MAX) }));
                }
                Err(error) => failure = Some(error),
            }
        }
        let is_there = !lines.is_empty();
        *self.lines.lock() = lines;
        match failure.filter(|_| !is_there) {
            // The server has just answered over another connection.
            Some(error) => Err(ProbeFailure { why: reason(&error), is_silent: true }),
            None => Ok(()),
        }
    }

    async fn connect(&self) -> Result<Client, ClientError> {
        Client::connect(&self.url, options()).await
    }

    /// Records that the server answers, with this number of requests in progress.
    pub(super) fn rises(&self, running: u64) {
        let up = Standing::Up { running, sent: 0, asked: None };
        let before = std::mem::replace(&mut *self.standing.lock(), up);
        if !matches!(before, Standing::Up { .. }) {
            tracing::info!(server = %self.endpoint(), "is up");
        }
    }

    /// Makes the server late.
    #[cfg(test)]
    pub(super) fn lags(&self) {
        if let Standing::Up { asked, .. } = &mut *self.standing.lock() {
            *asked = clock::now().checked_sub(2 * LATE);
        }
    }

    /// Records that the server does not answer, and why.
    pub(super) fn falls(&self, why: String) {
        self.lines.lock().clear();
        let down = Standing::Down(why.clone());
        let before = std::mem::replace(&mut *self.standing.lock(), down);
        if !matches!(before, Standing::Down(_)) {
            tracing::warn!(server = %self.endpoint(), why, "is down");
        }
    }
}

impl From<ClientError> for ProbeFailure {
    fn from(error: ClientError) -> Self {
        let is_silent = matches!(error, ClientError::TimedOut { .. });
        ProbeFailure { why: reason(&error), is_silent }
    }
}

fn options() -> Options {
    Options {
        connect_timeout: PATIENCE,
        request_timeout: PATIENCE,
        patience: PATIENCE,
        reconnect_timeout: Duration::ZERO,
        // Otherwise the user's name would be looked up, which may take long.
        user: Some("femtobarn".to_owned()),
        without_credentials: true,
        application: "femtobarn-redirector".to_owned(),
        ..Options::default()
    }
}

/// Why a server is down, without its name.
fn reason(error: &ClientError) -> String {
    match error {
        ClientError::Unreachable { reason, .. } => {
            shortened(&format!("cannot be reached, {reason}"))
        }
        ClientError::Lost { reason, .. } => shortened(&format!("was lost, {reason}")),
        ClientError::TimedOut { after, .. } => silence(*after),
        ClientError::Refused { code, message, .. } => shortened(&format!("says {code}, {message}")),
        ClientError::Login { reason, .. } => shortened(&format!("allows no login, {reason}")),
        other => shortened(&other.to_string()),
    }
}

fn silence(time: Duration) -> String {
    format!("did not answer within {} s", time.as_secs())
}

/// A server's text for errors and logs.
fn shortened(text: &str) -> String {
    text.trim().chars().filter(|letter| !letter.is_control()).take(TEXT_LETTERS_MAX).collect()
}

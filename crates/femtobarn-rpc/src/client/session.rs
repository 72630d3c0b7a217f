//! The client's session, and the task that keeps it open: it sends turns, receives their outcomes, and opens the
//! session again after the connection or the server failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use femtobarn_catalog::{Csn, Error, ErrorKind, Result, clock};
use parking_lot::{Mutex, MutexGuard};
use quick_cache::sync::Cache;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, spawn_blocking};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};
use uuid::Uuid;

use super::address::Address;
use super::direct::DirectConnection;
use super::direct_socket::drop_unusable_identity;
use super::endpoint::PING_AFTER;
use super::failure::{CallFailure, classify, reason};
use super::ledger::Ledger;
use super::options::ConnectOptions;
use super::places::SessionPlaces;
use super::reception::Reception;
use super::turn_stream::SessionTurns;
use crate::convert::refusal;
use crate::v1::catalogue_client::CatalogueClient;
use crate::v1::{Answer, Welcome};

/// Largest number of cached answers.
const ANSWERS_MAX: usize = 16_384;
/// The first and the longest pause before the connection is tried again.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest wait for the server to confirm that the session is closed.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// A client's session with a server, which its task and its callers share.
pub(super) struct RemoteSession {
    /// The runtime of the task.
    pub runtime: Handle,
    pub places: SessionPlaces,
    pub federation: String,
    pub id: Uuid,
    process: u32,
    pub(super) options: ConnectOptions,
    /// Why servers are not shown the client's certificate, if it has one.
    without_certificate: Option<String>,
    /// Whether callers are only tidying up before [`close`](Self::close), so that waits end after [`CLOSE_MAX`].
    are_waits_limited: AtomicBool,
    /// How many times the session was opened.
    pub(super) openings: AtomicU64,
    /// The newest commit that the server has reported since the session was opened.
    pub(super) head: AtomicU64,
    /// The largest size in bytes of the writes that the server accepts with a transaction.
    pub log_room: AtomicUsize,
    /// Whether these writes may belong to new files.
    pub logs_new_files: AtomicBool,
    pub answers: Cache<Vec<u8>, Arc<Vec<Answer>>>,
    pub ledger: Mutex<Ledger>,
    /// Notified when operations are queued, or the session is to be closed.
    pub queued: Notify,
    pub reception: Mutex<Reception>,
    /// Whether the session is open.
    pub(super) link: watch::Sender<LinkState>,
    /// How often the server has refused to open the session, and why it did so last.
    refused: Mutex<(u64, Option<Error>)>,
    pub(super) token: Mutex<Option<MetadataValue<Ascii>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// The task is opening the session.
    Broken,
    Open,
    /// Open, and the task is to close it.
    Closing,
    Closed,
}

impl RemoteSession {
    /// A session that connects when it is first used. Must be called inside a runtime.
    fn new(address: &Address, id: Uuid, options: &ConnectOptions) -> Result<Self> {
        let mut options = options.clone();
        let without_certificate = drop_unusable_identity(&mut options);
        Ok(RemoteSession {
            runtime: Handle::current(),
            places: SessionPlaces::new(address, &options)?,
            federation: address.federation.clone(),
            id,
            process: std::process::id(),
            options,
            without_certificate,
            are_waits_limited: AtomicBool::new(false),
            openings: AtomicU64::new(0),
            head: AtomicU64::new(0),
            log_room: AtomicUsize::new(0),
            logs_new_files: AtomicBool::new(false),
            answers: Cache::new(ANSWERS_MAX),
            ledger: Mutex::default(),
            queued: Notify::new(),
            reception: Mutex::default(),
            link: watch::Sender::new(LinkState::Broken),
            refused: Mutex::default(),
            token: Mutex::default(),
        })
    }

    /// Opens a session, and keeps it open by a task of the runtime.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no server answers there, or its certificate is not trusted; the error with which the
    /// server refuses the session.
    pub(super) fn begin(
        runtime: &Handle,
        address: &Address,
        id: Uuid,
        options: &ConnectOptions,
    ) -> Result<(Arc<Self>, Welcome)> {
        let session = {
            let _inside = runtime.enter();
            Arc::new(RemoteSession::new(address, id, options)?)
        };
        let (opened, welcome) = std::sync::mpsc::channel();
        runtime.spawn(Arc::clone(&session).run(opened));
        let stopped = |_| Error::Internal { what: "the session's task stopped".to_owned() };
        Ok((session, welcome.recv().map_err(stopped)??))
    }

    /// Lets a session without locks move to any of the servers that its own server has named.
    pub(super) fn learn_servers(&self, welcome: &Welcome) {
        let (Some(site), false) = (&welcome.site, self.has_alternatives()) else { return };
        let servers = site.servers.iter().filter(|server| server.alive);
        let servers = servers.filter_map(|server| Address::parse(&server.url).ok());
        self.places.learn(servers.collect());
    }

    /// The client for calls by gRPC.
    pub(super) fn client(&self) -> CatalogueClient<Channel> {
        self.places.current().client.clone()
    }

    /// Checks that the session's task runs in this process, so that waiting for it can end.
    ///
    /// # Errors
    /// [`Error::Closed`] after closing, and in a forked child, whose parent has the thread.
    pub(super) fn check_open(&self) -> Result<()> {
        if !self.is_of_this_process() {
            let what = format!("federation {} was opened before a fork; open it again", self.url());
            return Err(Error::Closed { what });
        }
        if self.is_close_requested() { Err(self.closed()) } else { Ok(()) }
    }

    pub(super) fn is_of_this_process(&self) -> bool {
        std::process::id() == self.process
    }

    /// How long callers wait for a server that does not answer.
    pub(super) fn patience(&self) -> Duration {
        if self.are_waits_limited.load(Ordering::Acquire) {
            self.options.patience.min(CLOSE_MAX)
        } else {
            self.options.patience
        }
    }

    /// See [`ConnectOptions::has_alternatives`].
    pub(super) fn has_alternatives(&self) -> bool {
        self.options.has_alternatives
    }

    /// The URL of the federation at the server that has the session, or that is tried next.
    pub(super) fn url(&self) -> String {
        self.places.current().address.to_string()
    }

    /// Limits every wait from here on to [`CLOSE_MAX`]: callers only tidy up before they close the session.
    pub(super) fn begin_close(&self) {
        self.are_waits_limited.store(true, Ordering::Release);
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    /// Sends queued operations, or wakes the session's task to do so.
    pub(super) fn wake(&self) {
        match self.direct() {
            Some(connection) => self.send_queued(&connection),
            None => self.queued.notify_one(),
        }
    }

    pub(super) fn head(&self) -> Csn {
        Csn(self.head.load(Ordering::Acquire))
    }

    pub(super) fn observe_head(&self, csn: Csn) {
        self.head.fetch_max(csn.0, Ordering::AcqRel);
    }

    /// How many times the session was opened.
    pub(super) fn openings(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }

    /// A request with the caller's token.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &*self.token.lock() {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }

    /// Waits until the session is open, at most until `deadline`.
    ///
    /// # Errors
    /// [`Error::Denied`] if the server refuses the client meanwhile, as one whose token has expired; [`Error::Closed`];
    /// [`Error::Unavailable`] at the deadline.
    pub(super) async fn wait_open(&self, deadline: Instant) -> Result<()> {
        let mut link = self.link.subscribe();
        // With the token that is found now, it may be admitted.
        let (before, _) = *self.refused.lock();
        let is_refused = || self.refused.lock().0 > before;
        let opened = link.wait_for(|link| *link != LinkState::Broken || is_refused());
        match tokio::time::timeout_at(deadline.into(), opened).await.map(|link| link.map(|it| *it))
        {
            Ok(Ok(LinkState::Open)) => Ok(()),
            Ok(Ok(LinkState::Broken)) => {
                let refused = self.refused.lock().1.clone();
                Err(refused.unwrap_or_else(|| self.unavailable("it does not answer")))
            }
            Ok(_) => Err(self.closed()),
            Err(_) => Err(self.unavailable("it does not answer")),
        }
    }

    /// Tells callers that wait for the session that the server refuses it.
    fn note_refusal(&self, error: &Error) {
        if error.kind() == ErrorKind::Denied {
            let mut refused = self.refused.lock();
            *refused = (refused.0 + 1, Some(error.clone()));
            drop(refused);
            self.link.send_modify(|_| {});
        }
    }

    /// The error for a server that is not worth waiting for.
    pub(super) fn unreachable(&self, why: &str) -> Error {
        Error::Unavailable {
            what: format!("the server of {} cannot be reached: {why}", self.url()),
        }
    }

    /// The error for a server that did not answer in time.
    pub(super) fn unavailable(&self, why: &str) -> Error {
        let url = self.url();
        let seconds = self.patience().as_secs_f32();
        Error::Unavailable {
            what: format!("the server of {url} was tried for {seconds} s: {why}; try again later"),
        }
    }

    /// An error of the server; if it is a refusal, with the reason why the client's certificate was not shown.
    pub(super) fn explained(&self, error: Error) -> Error {
        match (error, &self.without_certificate) {
            (Error::Denied { what }, Some(why)) => Error::Denied { what: format!("{what}; {why}") },
            (error, _) => error,
        }
    }

    /// The error of every call after closing.
    pub(super) fn closed(&self) -> Error {
        Error::Closed { what: format!("federation {} was closed", self.url()) }
    }

    /// Whether the session is open.
    pub(super) fn is_linked(&self) -> bool {
        *self.link.borrow() == LinkState::Open
    }

    /// Whether the session is open and its server has not closed the connection. The kernel knows that before the
    /// thread that reads the connection.
    pub(super) fn is_connected(&self) -> bool {
        let is_closed = |connection: &DirectConnection| connection.is_closed_within(Duration::ZERO);
        self.is_linked() && !self.direct().is_some_and(|connection| is_closed(&connection))
    }

    /// Closes the session, and waits at most [`CLOSE_MAX`] for the server to confirm it.
    pub(super) fn close(&self) {
        self.link.send_if_modified(|link| {
            let is_open = *link == LinkState::Open;
            *link = if is_open { LinkState::Closing } else { LinkState::Closed };
            true
        });
        match self.direct() {
            Some(connection) => self.say_goodbye(&connection),
            None => self.wake(),
        }
        let deadline = clock::now() + CLOSE_MAX;
        while *self.link.borrow() == LinkState::Closing && clock::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.direct().iter().for_each(|connection| self.lose(connection));
        self.ledger().fail(&self.closed());
    }

    /// Keeps the session open until it is closed. Sends the first welcome to `opened`; or, if there is none, sends the
    /// reason and ends.
    pub(super) async fn run(self: Arc<Self>, opened: std::sync::mpsc::Sender<Result<Welcome>>) {
        let mut opened = Some(opened);
        let mut broken_since = clock::now();
        let mut pause = PAUSE_MIN;
        let mut has_other_token = false;
        while !self.is_close_requested() {
            let shown = self.renew_token();
            let status = match self.open(shown.clone()).await {
                Ok((turns, welcome)) => {
                    (pause, has_other_token) = (PAUSE_MIN, false);
                    let lease = Duration::from_millis(welcome.lease_ms.max(3));
                    if let Some(opened) = opened.take() {
                        // The caller waits for the welcome, so this cannot fail.
                        drop(opened.send(Ok(welcome)));
                    }
                    let ended = self.exchange_turns(turns, lease).await;
                    broken_since = clock::now();
                    match ended {
                        Ok(()) => return,
                        Err(status) => status,
                    }
                }
                Err(status) => {
                    self.places.advance(&self.options);
                    status
                }
            };
            let is_late = self.has_alternatives() || broken_since.elapsed() >= self.patience();
            // At most one other token is tried: if that is refused too, callers get an error, since a client may find a
            // new token each time.
            let tries_other = !has_other_token && self.finds_other_token(&status, shown.as_ref());
            has_other_token |= tries_other;
            if !tries_other
                && let Some(error) = self.reason_to_stop(&status, is_late, opened.is_some())
            {
                self.ledger().fail(&error);
                self.note_refusal(&error);
                if let Some(opened) = opened.take() {
                    drop(opened.send(Err(error)));
                    return;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Whether [`close`](Self::close) was called; the server may not know it yet.
    pub(super) fn is_close_requested(&self) -> bool {
        matches!(*self.link.borrow(), LinkState::Closing | LinkState::Closed)
    }

    /// Why callers should stop waiting; `None` if the session may be opened soon. If the `first` connection fails,
    /// waiting is pointless: only a server that was reached before may be restarting.
    fn reason_to_stop(&self, status: &Status, is_late: bool, first: bool) -> Option<Error> {
        let refused = refusal(status).map(Error::from);
        match refused {
            // The server has ended the session, and this task opens it again. Callers that have other servers do not wait.
            Some(Error::Closed { .. }) if status.code() == tonic::Code::FailedPrecondition => {
                is_late.then(|| Error::Unavailable {
                    what: format!(
                        "the session at {} has ended, and is opened again; try again later",
                        self.url()
                    ),
                })
            }
            Some(Error::Unavailable { .. }) if !is_late => None,
            Some(error) => Some(self.explained(error)),
            None => match classify(status) {
                CallFailure::Untrusted => Some(self.unreachable(&reason(status))),
                CallFailure::NoConnection if first => Some(self.unreachable(&reason(status))),
                _ => is_late.then(|| self.unavailable(&reason(status))),
            },
        }
    }

    /// Exchanges turns until the session is closed.
    async fn exchange_turns(
        self: &Arc<Self>,
        turns: SessionTurns,
        lease: Duration,
    ) -> std::result::Result<(), Status> {
        let result = match turns {
            SessionTurns::Direct(connection) => {
                let (session, silence) = (Arc::clone(self), self.silence(lease));
                let kept = spawn_blocking(move || session.keep_alive(&connection, silence));
                Err(kept.await.unwrap_or_else(stopped))
            }
            SessionTurns::Called(turns, sender) => {
                self.exchange_until_broken(turns, &sender, lease).await
            }
        };
        self.note_broken();
        result
    }

    /// Notes that no turns are exchanged any more.
    pub(super) fn note_broken(&self) {
        self.link.send_if_modified(|link| match *link {
            LinkState::Open => {
                *link = LinkState::Broken;
                true
            }
            LinkState::Closing => {
                *link = LinkState::Closed;
                true
            }
            _ => false,
        });
    }

    /// How long a server may be silent on a direct connection.
    pub(super) fn silence(&self, lease: Duration) -> Duration {
        if self.has_alternatives() {
            lease.min(self.options.patience).min(PING_AFTER)
        } else {
            lease
        }
    }
}

impl std::fmt::Debug for RemoteSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteSession").field("url", &self.url()).finish_non_exhaustive()
    }
}

pub(super) fn stopped(error: JoinError) -> Status {
    Status::internal(error.to_string())
}

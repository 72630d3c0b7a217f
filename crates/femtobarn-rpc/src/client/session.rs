//! The task that keeps the session open: sends turns, receives their outcomes, and opens the session again
//! after the connection or the server broke.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use femtobarn_catalog::{Csn, Error, Holder, Result};
use quick_cache::sync::Cache;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status, Streaming};
use uuid::Uuid;

use super::failure::{CallFailure, reason, trouble_of, with_sources};
use super::ledger::Ledger;
use super::{Address, ConnectOptions, token};
use crate::MESSAGE_BYTES_MAX;
use crate::convert::refusal;
use crate::v1::catalogue_client::CatalogueClient;
use crate::v1::{Answer, ClientTurn, Hello, ServerTurn, Welcome};

/// Answers that are kept.
const ANSWERS_MAX: usize = 16_384;
/// Turns on their way to the server.
const TURNS_MAX: usize = 4;
/// The pause before the connection is tried again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a connection may say nothing before the server is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(10);
/// How long a goodbye may take.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// What the session's task and those who ask share.
pub(super) struct Shared {
    /// Where the task runs.
    pub runtime: Handle,
    pub client: CatalogueClient<Channel>,
    pub federation: String,
    pub url: String,
    pub session: Uuid,
    process: u32,
    pub patience: Duration,
    /// The newest commit that was heard of.
    head: AtomicU64,
    pub answers: Cache<Vec<u8>, Arc<Vec<Answer>>>,
    pub ledger: Mutex<Ledger>,
    /// There is something to say.
    waiting: Notify,
    /// How often the session was opened, and whether it is open.
    link: watch::Sender<Link>,
    address: Address,
    given_token: Option<String>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Broken,
    Open,
    Leaving,
    Left,
}

impl Shared {
    /// Connects when it is first used. To be called inside a runtime.
    pub fn new(address: &Address, options: &ConnectOptions) -> Result<Self> {
        let channel = endpoint(address, options)?.connect_lazy();
        Ok(Shared {
            runtime: Handle::current(),
            client: CatalogueClient::new(channel)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            federation: address.federation.clone(),
            url: address.to_string(),
            session: Uuid::new_v4(),
            process: std::process::id(),
            patience: options.patience,
            head: AtomicU64::new(0),
            answers: Cache::new(ANSWERS_MAX),
            ledger: Mutex::default(),
            waiting: Notify::new(),
            link: watch::Sender::new(Link::Broken),
            address: address.clone(),
            given_token: options.token.clone(),
            token: Mutex::default(),
        })
    }

    /// Refuses to wait for a thread that is not there.
    ///
    /// # Errors
    /// [`Error::Closed`] after goodbye, and in a forked child, whose parent has the thread.
    pub fn check_open(&self) -> Result<()> {
        let what = match std::process::id() == self.process {
            true if !self.is_left() => return Ok(()),
            true => format!("federation {} was closed", self.url),
            false => format!("federation {} was opened before a fork; open it again", self.url),
        };
        Err(Error::Closed { what })
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Has the session's task say what is to be said.
    pub fn speak(&self) {
        self.waiting.notify_one();
    }

    pub fn head(&self) -> Csn {
        Csn(self.head.load(Ordering::Acquire))
    }

    pub fn observe_head(&self, csn: Csn) {
        self.head.fetch_max(csn.0, Ordering::AcqRel);
    }

    /// A request with the token of who asks.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &*lock(&self.token) {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }

    /// Waits until the session is open; no longer than until `deadline`.
    pub async fn opened(&self, deadline: Instant) -> Result<()> {
        let mut link = self.link.subscribe();
        let opened = link.wait_for(|link| *link != Link::Broken);
        match tokio::time::timeout_at(deadline.into(), opened).await {
            Ok(Ok(link)) if *link == Link::Open => Ok(()),
            Ok(_) => Err(Error::Closed { what: format!("federation {} was closed", self.url) }),
            Err(_) => Err(self.unavailable("it does not answer")),
        }
    }

    /// There is no use in waiting.
    pub fn unreachable(&self, why: &str) -> Error {
        Error::Unavailable { what: format!("the server of {} cannot be reached: {why}", self.url) }
    }

    pub fn unavailable(&self, why: &str) -> Error {
        let Shared { url, patience, .. } = self;
        let seconds = patience.as_secs_f32();
        Error::Unavailable {
            what: format!("the server of {url} was tried for {seconds} s: {why}; come back later"),
        }
    }

    /// Whether the server has the session, and can be told of it.
    pub fn is_linked(&self) -> bool {
        *self.link.borrow() == Link::Open
    }

    /// Ends the session, and waits for a moment until the server knows.
    pub fn say_goodbye(&self) {
        self.link.send_if_modified(|link| {
            let is_open = *link == Link::Open;
            *link = if is_open { Link::Leaving } else { Link::Left };
            true
        });
        self.speak();
        let deadline = Instant::now() + GOODBYE_MAX;
        while *self.link.borrow() == Link::Leaving && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
        let what = format!("federation {} was closed", self.url);
        self.ledger().fail(&Error::Closed { what });
    }

    /// Keeps the session until goodbye. How it began is told to `welcomed`; if it did not, that is all.
    pub async fn keep(self: Arc<Self>, welcomed: std::sync::mpsc::Sender<Result<Welcome>>) {
        let mut welcomed = Some(welcomed);
        let mut broken_since = Instant::now();
        let mut pause = PAUSE_MIN;
        while !self.is_left() {
            let status = match self.open().await {
                Ok((turns, sender, welcome)) => {
                    pause = PAUSE_MIN;
                    let lease = Duration::from_millis(welcome.lease_ms.max(3));
                    if let Some(welcomed) = welcomed.take() {
                        // Who waits for it does so until it comes.
                        drop(welcomed.send(Ok(welcome)));
                    }
                    let broken = self.talk(turns, sender, lease).await;
                    broken_since = Instant::now();
                    match broken {
                        Ok(()) => return,
                        Err(status) => status,
                    }
                }
                Err(status) => status,
            };
            let is_late = broken_since.elapsed() >= self.patience;
            if let Some(error) = self.reason_to_stop(&status, is_late, welcomed.is_some()) {
                self.ledger().fail(&error);
                if let Some(welcomed) = welcomed.take() {
                    drop(welcomed.send(Err(error)));
                    return;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn is_left(&self) -> bool {
        matches!(*self.link.borrow(), Link::Leaving | Link::Left)
    }

    /// Why those who wait need not wait any longer; none if the session may be opened soon. What cannot be
    /// connected to at `first` is not waited for: only what was there may be restarting.
    fn reason_to_stop(&self, status: &Status, is_late: bool, first: bool) -> Option<Error> {
        let refused = refusal(status).map(Error::from);
        match refused {
            // It is over, and begins anew.
            Some(Error::Closed { .. })
                if !is_late && status.code() == tonic::Code::FailedPrecondition =>
            {
                None
            }
            Some(Error::Unavailable { .. }) if !is_late => None,
            Some(error) => Some(error),
            None => match trouble_of(status) {
                CallFailure::Distrust => Some(self.unreachable(&reason(status))),
                CallFailure::NoConnection if first => Some(self.unreachable(&reason(status))),
                _ => is_late.then(|| self.unavailable(&reason(status))),
            },
        }
    }

    async fn open(
        &self,
    ) -> std::result::Result<(Streaming<ServerTurn>, mpsc::Sender<ClientTurn>, Welcome), Status>
    {
        self.renew_token();
        let (sender, receiver) = mpsc::channel(TURNS_MAX);
        let (locks, pins) = self.ledger().claims();
        let hello = Hello {
            federation: self.federation.clone(),
            session: self.session.into_bytes().to_vec(),
            client: Some(Holder::this_process().with_application().into()),
            locks,
            pins,
        };
        let first = ClientTurn { hello: Some(hello), ..ClientTurn::default() };
        // There is room for it.
        drop(sender.try_send(first));
        let request = self.request(ReceiverStream::new(receiver));
        let mut client = self.client.clone();
        let opening = async {
            let mut turns = client.attend(request).await?.into_inner();
            let first = turns.message().await?.unwrap_or_default();
            let welcome = first.welcome.ok_or_else(|| Status::unknown("no welcome came"))?;
            Ok((turns, welcome))
        };
        let late = |_| Status::unavailable("no welcome came in time");
        let opened: std::result::Result<_, Status> =
            tokio::time::timeout(self.patience, opening).await.map_err(late)?;
        let (turns, welcome) = opened?;
        self.observe_head(Csn(welcome.head));
        self.ledger().welcome(&welcome);
        self.link.send_if_modified(|link| {
            let is_broken = *link == Link::Broken;
            if is_broken {
                *link = Link::Open;
            }
            is_broken
        });
        self.speak();
        Ok((turns, sender, welcome))
    }

    /// Says what is to be said and hears what comes, until goodbye.
    async fn talk(
        &self,
        mut turns: Streaming<ServerTurn>,
        sender: mpsc::Sender<ClientTurn>,
        lease: Duration,
    ) -> std::result::Result<(), Status> {
        let result = self.talk_until_broken(&mut turns, &sender, lease).await;
        self.link.send_if_modified(|link| match *link {
            Link::Open => {
                *link = Link::Broken;
                true
            }
            Link::Leaving => {
                *link = Link::Left;
                true
            }
            _ => false,
        });
        result
    }

    async fn talk_until_broken(
        &self,
        turns: &mut Streaming<ServerTurn>,
        sender: &mpsc::Sender<ClientTurn>,
        lease: Duration,
    ) -> std::result::Result<(), Status> {
        let gone = || Status::unavailable("the server closed the session");
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                turn = turns.message() => {
                    heard = Instant::now();
                    let turn = turn?.ok_or_else(gone)?;
                    let mut ledger = self.ledger();
                    turn.outcomes.into_iter().for_each(|outcome| ledger.settle(outcome));
                }
                () = self.waiting.notified() => {
                    if self.speak_up(sender).await? {
                        // The server closes the stream when it has heard.
                        drop(turns.message().await);
                        return Ok(());
                    }
                }
                () = tokio::time::sleep(lease / 3) => {
                    if heard.elapsed() > lease {
                        return Err(Status::unavailable("the server was silent for a lease"));
                    }
                    sender.send(ClientTurn::default()).await.map_err(|_| gone())?;
                }
            }
        }
    }

    /// Says all that is to be said. Whether that was goodbye.
    async fn speak_up(
        &self,
        sender: &mpsc::Sender<ClientTurn>,
    ) -> std::result::Result<bool, Status> {
        loop {
            let operations = self.ledger().next_operations();
            let goodbye = operations.is_empty() && self.is_left();
            if operations.is_empty() && !goodbye {
                return Ok(false);
            }
            let turn = ClientTurn { hello: None, operations, goodbye };
            let gone = |_| Status::unavailable("the server closed the session");
            sender.send(turn).await.map_err(gone)?;
            if goodbye {
                return Ok(true);
            }
        }
    }

    /// Tokens do not last long, so each connection looks for a new one.
    fn renew_token(&self) {
        let found = match &self.given_token {
            Some(token) => Some(token.clone()),
            None if self.address.is_encrypted => token::find(),
            None => None,
        };
        let value = found.and_then(|token| format!("Bearer {token}").parse().ok());
        *lock(&self.token) = value.map(|mut value: MetadataValue<Ascii>| {
            value.set_sensitive(true);
            value
        });
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("url", &self.url).finish_non_exhaustive()
    }
}

fn endpoint(address: &Address, options: &ConnectOptions) -> Result<Endpoint> {
    let wrong = |error: tonic::transport::Error| Error::Invalid {
        what: format!("{address} cannot be reached: {}", with_sources(&error)),
    };
    let endpoint = Endpoint::from_shared(address.endpoint()).map_err(wrong)?;
    let endpoint = endpoint
        .connect_timeout(options.patience.min(Duration::from_secs(10)))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_AFTER)
        .keep_alive_while_idle(true);
    if !address.is_encrypted {
        return Ok(endpoint);
    }
    let mut tls = ClientTlsConfig::new().with_native_roots();
    if let Some(pem) = &options.certificate {
        tls = tls.ca_certificate(Certificate::from_pem(pem));
    }
    endpoint.tls_config(tls).map_err(wrong)
}

/// A panic elsewhere leaves what is locked whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

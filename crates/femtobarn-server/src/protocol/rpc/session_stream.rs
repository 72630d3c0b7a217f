//! The stream of a session: turns from a client, and turns to it, by gRPC or on a direct connection.
//!
//! The operations of a turn are executed in order. Outcomes that are known at once are sent in one turn; those of waits
//! follow when they are known.
//!
//! Back-pressure: a client that does not read its turns is not read from either, and a session whose client is silent
//! for a lease ends. So each holds no more than a few turns of memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use femtobarn_catalog::{
    Csn, Error, LOGGED_COMMIT_BYTES_MAX, LocalCatalogue, LockKind, LockTarget, Result, clock,
};
use femtobarn_rpc::convert::{failure_of, needed, status_of, uuid};
use femtobarn_rpc::v1::operation::Kind;
use femtobarn_rpc::v1::{self, ClientTurn, Hello, ServerTurn};
use femtobarn_rpc::{TURN_OPERATIONS_MAX, v1::Operation as Message};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::{Request, Status, Streaming};

use super::inquiries::Inquiries;
use super::mutations::ACTIONS_OF_COMMITTERS;
use super::queries::{self, AskedQuestions};
use super::turn_calls::{CALLS_MAX, TurnCalls};
use super::{Caller, Service, parted};
use crate::auth::{Action, Identity};
use crate::logical::catalogue::{
    CatalogueSession, FederationService, OperationOutcome, SessionClaims, SessionOperation, Site,
};

/// Turns that wait for a client to read them, at most.
const TURNS_MAX: usize = 4;
/// The longest wait for the hello of a new stream.
const HELLO_MAX: Duration = Duration::from_secs(10);
/// The longest wait for a client to take the reason why its stream ends.
const END_MAX: Duration = Duration::from_secs(1);
/// Bytes of a name in a client's own account of itself, at most.
const NAME_BYTES_MAX: usize = 256;
/// The longest wait for the answers to the questions of a turn.
const ANSWERS_MAX: Duration = Duration::from_secs(1);
/// Questions of one operation at most.
const QUESTIONS_MAX: usize = 16;

/// The turns from and to a client.
pub(super) trait Turns: Send {
    /// Whether turns may have calls. Then the client takes what it is sent for the acknowledgement of its turns.
    const HAS_CALLS: bool;

    /// The next turn of the client; none at the end. No turn is lost if the future is dropped.
    fn next(&mut self) -> impl Future<Output = StatusResult<Option<ClientTurn>>> + Send;

    /// Sends a turn, or why the stream ends.
    fn send(
        &mut self,
        turn: StatusResult<ServerTurn>,
    ) -> impl Future<Output = StatusResult<()>> + Send;
}

type StatusResult<T> = std::result::Result<T, Status>;

/// The turns to a client by gRPC.
pub struct ServerTurns {
    receiver: mpsc::Receiver<StatusResult<ServerTurn>>,
}

impl Stream for ServerTurns {
    type Item = StatusResult<ServerTurn>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context)
    }
}

/// The turns of a call by gRPC.
struct CalledTurns {
    turns: Streaming<ClientTurn>,
    sender: mpsc::Sender<StatusResult<ServerTurn>>,
}

impl Turns for CalledTurns {
    const HAS_CALLS: bool = false;

    async fn next(&mut self) -> StatusResult<Option<ClientTurn>> {
        self.turns.message().await
    }

    async fn send(&mut self, turn: StatusResult<ServerTurn>) -> StatusResult<()> {
        self.sender.send(turn).await.map_err(|_| Status::cancelled("the client is gone"))
    }
}

/// Opens or resumes a session, and exchanges turns with its client from then on.
///
/// # Errors
/// A [`Status`] if no valid hello comes in time, or the client may not read the federation.
pub(super) async fn open(
    endpoint: &Service,
    request: Request<Streaming<ClientTurn>>,
) -> StatusResult<ServerTurns> {
    let (caller, turns) = parted(request);
    let (sender, receiver) = mpsc::channel(TURNS_MAX);
    let mut turns = CalledTurns { turns, sender };
    let opened = welcome(endpoint, &caller, &mut turns).await?;
    tokio::spawn(SessionStream::new(endpoint, caller, opened, turns).run());
    Ok(ServerTurns { receiver })
}

/// Serves a session on a direct connection to its end.
pub(super) async fn serve(endpoint: &Service, caller: Caller, mut turns: impl Turns) {
    match welcome(endpoint, &caller, &mut turns).await {
        Ok(opened) => SessionStream::new(endpoint, caller, opened, turns).run().await,
        Err(status) => {
            endpoint.count_failure(&status);
            drop(timeout(HELLO_MAX, turns.send(Err(status))).await);
        }
    }
}

/// A session that was opened, its stream's number, its federation, and whose it is.
type OpenedSession = (Arc<FederationService>, Arc<CatalogueSession>, u64, Identity);

/// Receives the hello, opens or resumes the session, and sends the welcome.
async fn welcome(
    endpoint: &Service,
    caller: &Caller,
    turns: &mut impl Turns,
) -> StatusResult<OpenedSession> {
    let silent = |_| Status::deadline_exceeded("no hello came in time");
    let first = timeout(HELLO_MAX, turns.next()).await.map_err(silent)??.unwrap_or_default();
    let hello =
        first.hello.ok_or_else(|| Status::invalid_argument("the first message must be a hello"))?;
    let (service, identity) = endpoint.admit(caller, &hello.federation, Action::Read)?;
    let path = format!("/{}", service.name());
    let may = |action| identity.may(action, path.as_bytes());
    let may_lock = ACTIONS_OF_COMMITTERS.into_iter().any(may);
    let may_change = may_lock || may(Action::Tag);
    let claims = claims_of(hello, &identity, may_lock).map_err(|error| status_of(&error))?;
    let opened = service.open_session(claims).await.map_err(|error| status_of(&error))?;
    let lost = |(owner, target): &(u64, LockTarget)| v1::Held {
        owner: *owner,
        target: Some((*target).into()),
        ..v1::Held::default()
    };
    let welcome = v1::Welcome {
        uuid: service.catalog().uuid().into_bytes().to_vec(),
        name: service.catalog().name().to_owned(),
        read_only: service.is_read_only() || !may_change,
        head: opened.head.0,
        lease_ms: u64::try_from(service.lease().as_millis()).unwrap_or(u64::MAX),
        lost_locks: opened.lost_locks.iter().map(lost).collect(),
        lost_pins: opened.lost_pins.iter().map(|csn| csn.0).collect(),
        log_room: LOGGED_COMMIT_BYTES_MAX as u64,
        site: service.site().map(|site| site_of(site)),
        fences: service.fences(&opened.session).into_iter().map(Into::into).collect(),
        logs_new_files: !service.catalog().is_in_postgres(),
    };
    let first = ServerTurn { welcome: Some(welcome), ..ServerTurn::default() };
    // Whether it arrives shows when the next turn is received.
    drop(timeout(service.lease(), turns.send(Ok(first))).await);
    Ok((service, opened.session, opened.generation, identity))
}

fn site_of(site: &Site) -> v1::Site {
    let servers = site.servers().into_iter().map(Into::into).collect();
    v1::Site { name: site.name().to_owned(), servers }
}

fn claims_of(hello: Hello, identity: &Identity, may_lock: bool) -> Result<SessionClaims> {
    let mut client: femtobarn_catalog::Holder = hello.client.unwrap_or_default().into();
    let is_proved = identity.how != "anonymous";
    if is_proved {
        client.user.clone_from(&identity.name);
    }
    for name in [&mut client.user, &mut client.host, &mut client.application] {
        if name.len() > NAME_BYTES_MAX {
            *name = name.chars().take(NAME_BYTES_MAX / 4).collect();
        }
    }
    let locks = hello.locks.into_iter().map(|held| {
        let target = needed(held.target, "target")?.try_into()?;
        let kind = if held.exclusive { LockKind::Exclusive } else { LockKind::Shared };
        Ok((held.owner, target, kind, held.epoch))
    });
    Ok(SessionClaims {
        session: uuid(&hello.session)?,
        identity: format!("{}:{}", identity.how, identity.owner()),
        may_write: may_lock,
        client,
        locks: locks.collect::<Result<_>>()?,
        pins: hello.pins.iter().map(|pin| (Csn(pin.csn), pin.count)).collect(),
    })
}

/// Why a session's stream ended without a goodbye.
enum StreamFailure {
    /// The connection is closed: the client ended the stream or died.
    Closed(Status),
    /// The client was silent for a lease.
    Silent(Status),
}

impl StreamFailure {
    fn silent(what: &str) -> Self {
        StreamFailure::Silent(Status::deadline_exceeded(what))
    }
}

impl From<Status> for StreamFailure {
    fn from(status: Status) -> Self {
        StreamFailure::Closed(status)
    }
}

/// The two streams of turns between a client and its session.
struct SessionStream<T> {
    endpoint: Service,
    service: Arc<FederationService>,
    session: Arc<CatalogueSession>,
    generation: u64,
    identity: Identity,
    turns: T,
    inquiries: Inquiries,
    calls: TurnCalls,
    /// Whether the client's rights have ended: the stream ends when all calls have their replies.
    is_ending: bool,
}

impl<T: Turns> SessionStream<T> {
    fn new(endpoint: &Service, caller: Caller, opened: OpenedSession, turns: T) -> Self {
        let (service, session, generation, identity) = opened;
        let calls = TurnCalls::new(endpoint.clone(), caller);
        SessionStream {
            endpoint: endpoint.clone(),
            service,
            session,
            generation,
            identity,
            turns,
            inquiries: Inquiries::default(),
            calls,
            is_ending: false,
        }
    }

    async fn run(mut self) {
        match self.exchange_turns().await {
            Ok(()) => self.service.end(&self.session, self.generation),
            Err(failure) => {
                let (is_closed, status) = match failure {
                    StreamFailure::Closed(status) => (true, status),
                    StreamFailure::Silent(status) => (false, status),
                };
                // By gRPC it is counted where it is sent.
                if T::HAS_CALLS {
                    self.calls.count_failure(&status);
                }
                self.service.lose(&self.session, self.generation, is_closed);
                // A client that does not read it has gone, or falls silent now.
                drop(timeout(END_MAX, self.turns.send(Err(status))).await);
            }
        }
    }

    /// Exchanges turns until the client says goodbye.
    ///
    /// # Errors
    /// [`StreamFailure`] if the connection is closed, the client is silent for a lease, or it sends a malformed turn.
    async fn exchange_turns(&mut self) -> std::result::Result<(), StreamFailure> {
        loop {
            if self.is_ending && self.calls.are_over() {
                let what = format!("the {} has expired", self.identity.how);
                return Err(Status::unauthenticated(what).into());
            }
            let lease = self.service.lease();
            let mut reply = ServerTurn::default();
            tokio::select! {
                turn = timeout(lease, self.turns.next()), if self.calls.has_room() && !self.is_ending => {
                    let silent = |_| StreamFailure::silent("the client was silent for a lease");
                    let broken = || Status::cancelled("the client is gone");
                    let mut turn = turn.map_err(silent)??.ok_or_else(broken)?;
                    let (is_last, calls) = (turn.goodbye, std::mem::take(&mut turn.calls));
                    let operates = !turn.operations.is_empty();
                    let has_more = operates || !calls.is_empty();
                    if !(calls.is_empty() || T::HAS_CALLS) {
                        return Err(Status::unimplemented("calls in a turn by gRPC").into());
                    }
                    if calls.len() > CALLS_MAX {
                        let what = format!("malformed turn: more than {CALLS_MAX} calls");
                        return Err(Status::invalid_argument(what).into());
                    }
                    if self.has_expired(operates, is_last) {
                        // They are refused, so that their client knows that nothing of them was done.
                        self.calls.begin(calls);
                        self.is_ending = true;
                        continue;
                    }
                    let outcomes = self.operate(turn).map_err(|error| status_of(&error))?;
                    if is_last {
                        return Ok(());
                    }
                    self.calls.begin(calls);
                    reply.outcomes = self.settle(outcomes).await;
                    if T::HAS_CALLS && has_more && reply.outcomes.is_empty() {
                        continue;
                    }
                }
                outcomes = self.session.outcomes(self.generation) => {
                    let outcomes = outcomes.map_err(|error| status_of(&error))?;
                    reply.outcomes = self.settle(outcomes).await;
                }
                replied = self.calls.next() => reply.replies.push(replied),
            };
            // An empty turn acknowledges the client's turn.
            let sent = timeout(lease, self.turns.send(Ok(reply))).await;
            sent.map_err(|_| StreamFailure::silent("the client reads no turns"))??;
        }
    }

    /// Whether the client's rights have ended, and it holds locks or asks for some. Until then it keeps its pins, so that what
    /// it reads does not break off.
    fn has_expired(&self, operates: bool, is_last: bool) -> bool {
        self.identity.has_ended() && (operates || (self.session.locks() > 0 && !is_last))
    }

    fn operate(&mut self, turn: ClientTurn) -> Result<Vec<OperationOutcome>> {
        if turn.hello.is_some() || turn.operations.len() > TURN_OPERATIONS_MAX {
            return Err(Error::Invalid {
                what: format!(
                    "malformed turn: a second hello, or more than {TURN_OPERATIONS_MAX} operations"
                ),
            });
        }
        if !turn.operations.is_empty() {
            self.service.count_message();
        }
        let mut outcomes = Vec::with_capacity(turn.operations.len());
        // The owner and the number of the lock before, if that has not ended.
        let mut before: Option<(u64, u64)> = None;
        for mut message in turn.operations {
            let questions = std::mem::take(&mut message.questions);
            let (number, has_outcome) = (message.number, has_outcome(message.kind()));
            if questions.len() > QUESTIONS_MAX || !(has_outcome || questions.is_empty()) {
                return Err(Error::Invalid {
                    what: format!(
                        "malformed turn: more than {QUESTIONS_MAX} questions, or those of an operation \
                         without an outcome"
                    ),
                });
            }
            // What another transaction waits for is not waited for: it may wait for this one.
            let owner = is_lock(message.kind()).then_some(message.owner);
            if !questions.is_empty() && self.inquiries.has_room(&questions) {
                let own = before.filter(|(of, _)| Some(*of) == owner);
                self.inquiries.add(number, questions, own.map(|(_, number)| number));
            }
            let operation = operation(message)?;
            let outcome = self.service.operate(&self.session, self.generation, operation)?;
            if has_outcome {
                before = owner.filter(|_| outcome.is_none()).map(|owner| (owner, number));
            }
            outcomes.extend(outcome);
        }
        Ok(outcomes)
    }

    /// The outcomes that are to be sent once some operations have ended, with the answers to their questions.
    async fn settle(&mut self, ended: Vec<OperationOutcome>) -> Vec<v1::Outcome> {
        let (mut outcomes, mut asked) = (vec![], vec![]);
        for ended in ended {
            for (ended, questions) in self.inquiries.settle(ended) {
                let pinned = ended.result.as_ref().map_or(Csn::ZERO, |granted| granted.csn);
                asked.push((if ended.result.is_ok() { questions } else { vec![] }, pinned));
                outcomes.push(outcome(ended));
            }
        }
        let answers = answers(&self.endpoint, Arc::clone(self.service.catalog()), asked).await;
        outcomes.iter_mut().zip(answers).for_each(|(outcome, answers)| outcome.answers = answers);
        outcomes
    }
}

/// The answers to the questions of operations. The client asks again for what PostgreSQL does not report in time.
async fn answers(
    endpoint: &Service,
    catalog: Arc<LocalCatalogue>,
    asked: Vec<AskedQuestions>,
) -> Vec<Vec<v1::Answer>> {
    let is_immediate = !catalog.is_in_postgres() || asked.iter().all(|(asked, _)| asked.is_empty());
    let deadline = clock::now() + ANSWERS_MAX;
    let answer = move || queries::answers_with_operations(&catalog, asked, deadline);
    if is_immediate {
        return answer();
    }
    endpoint.state.blocking.answer(deadline, answer).await.unwrap_or_default()
}

/// Whether an operation of this kind is answered.
fn has_outcome(kind: Kind) -> bool {
    is_lock(kind) || kind == Kind::Pin
}

fn is_lock(kind: Kind) -> bool {
    matches!(kind, Kind::LockShared | Kind::LockExclusive)
}

fn operation(message: Message) -> Result<SessionOperation> {
    let (number, owner) = (message.number, message.owner);
    let target = || needed(message.target, "target").and_then(LockTarget::try_from);
    let lock = |kind| {
        let wait = message.wait_ms.map(Duration::from_millis);
        Ok(SessionOperation::Lock { number, owner, target: target()?, kind, wait })
    };
    match message.kind() {
        Kind::LockShared => lock(LockKind::Shared),
        Kind::LockExclusive => lock(LockKind::Exclusive),
        Kind::Unlock => {
            let is_in_doubt = message.in_doubt;
            Ok(SessionOperation::Unlock { owner, target: target()?, is_in_doubt })
        }
        Kind::Pin => Ok(SessionOperation::Pin { number, csn: message.csn.map(Csn) }),
        Kind::Unpin => Ok(SessionOperation::Unpin { csn: Csn(needed(message.csn, "snapshot")?) }),
        Kind::Unspecified => {
            Err(Error::Invalid { what: "malformed turn: an operation without a kind".to_owned() })
        }
    }
}

fn outcome(outcome: OperationOutcome) -> v1::Outcome {
    let number = outcome.number;
    match outcome.result {
        Ok(granted) => {
            let (epoch, csn) = (granted.epoch, granted.csn.0);
            let fence = granted.fence.map(Into::into);
            v1::Outcome { number, epoch, csn, fence, ..v1::Outcome::default() }
        }
        Err(error) => {
            v1::Outcome { number, failure: Some(failure_of(&error)), ..v1::Outcome::default() }
        }
    }
}

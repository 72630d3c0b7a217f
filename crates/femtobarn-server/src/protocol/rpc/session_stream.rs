//! Sessions: a stream of turns from a client, and one of turns to it.
//!
//! A turn's operations are done in their order. Outcomes that are known at once go back in one turn, those of
//! waits follow when they are known.
//!
//! A client that does not take its turns is not read from either; a client that is not heard for a lease is
//! let go of. So neither holds more than a few turns of memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use femtobarn_catalog::{Csn, Error, LockKind, LockTarget, Result};
use femtobarn_rpc::convert::{failure_of, needed, status_of, uuid};
use femtobarn_rpc::v1::operation::Kind;
use femtobarn_rpc::v1::{self, ClientTurn, Hello, ServerTurn};
use femtobarn_rpc::{TURN_OPERATIONS_MAX, v1::Operation as Message};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::{Request, Status, Streaming};

use super::Service;
use crate::auth::{Action, Identity};
use crate::logical::catalogue::{Claims, FederationService, Operation, Outcome, Session};

/// Turns that wait for a client to take them.
const TURNS_MAX: usize = 4;
/// How long a stream may be open without a hello.
const HELLO_MAX: Duration = Duration::from_secs(10);
/// Bytes of a name that a client gives itself.
const NAME_BYTES_MAX: usize = 256;

/// The turns to a client.
pub struct Turns {
    receiver: mpsc::Receiver<std::result::Result<ServerTurn, Status>>,
}

impl Stream for Turns {
    type Item = std::result::Result<ServerTurn, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context)
    }
}

/// Opens a session, and talks with its client from then on.
///
/// # Errors
/// If the client does not say who it is, or may not read the federation.
pub(super) async fn attend(
    service: &Service,
    request: Request<Streaming<ClientTurn>>,
) -> std::result::Result<Turns, Status> {
    let (metadata, _, mut turns) = request.into_parts();
    let silent = |_| Status::deadline_exceeded("no hello came");
    let first = tokio::time::timeout(HELLO_MAX, turns.message()).await.map_err(silent)??;
    let first = first.unwrap_or_default();
    let hello =
        first.hello.ok_or_else(|| Status::invalid_argument("the first message must be a hello"))?;
    let (served, identity) = service.admit(&metadata, &hello.federation, Action::Read)?;
    let path = format!("/{}", served.name());
    let may_write = identity.may(Action::Modify, path.as_bytes());
    let claims = claims_of(hello, &identity, may_write).map_err(|error| status_of(&error))?;
    let welcome = served.attend(claims).await.map_err(|error| status_of(&error))?;
    let (sender, receiver) = mpsc::channel(TURNS_MAX);
    let talk =
        Talk { served, session: welcome.session, generation: welcome.generation, turns, sender };
    let lost = |(owner, target): &(u64, LockTarget)| v1::Held {
        owner: *owner,
        target: Some((*target).into()),
        ..v1::Held::default()
    };
    let first = ServerTurn {
        welcome: Some(v1::Welcome {
            uuid: talk.served.catalog().uuid().into_bytes().to_vec(),
            name: talk.served.catalog().name().to_owned(),
            read_only: talk.served.is_read_only() || !may_write,
            head: welcome.head.0,
            lease_ms: u64::try_from(talk.served.lease().as_millis()).unwrap_or(u64::MAX),
            lost_locks: welcome.lost_locks.iter().map(lost).collect(),
            lost_pins: welcome.lost_pins.iter().map(|csn| csn.0).collect(),
        }),
        outcomes: vec![],
    };
    // There is room for it.
    drop(talk.sender.try_send(Ok(first)));
    tokio::spawn(talk.go_on());
    Ok(Turns { receiver })
}

fn claims_of(hello: Hello, identity: &Identity, may_write: bool) -> Result<Claims> {
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
    Ok(Claims {
        session: uuid(&hello.session)?,
        identity: format!("{}:{}", identity.how, identity.name),
        may_write,
        client,
        locks: locks.collect::<Result<_>>()?,
        pins: hello.pins.iter().map(|pin| (Csn(pin.csn), pin.count)).collect(),
    })
}

/// Why a session's stream ended without a goodbye.
enum Lost {
    /// The connection is closed: the client has noticed, or has died.
    Closed(Status),
    /// Nothing comes any more.
    Silent(Status),
}

impl Lost {
    fn silent(what: &str) -> Self {
        Lost::Silent(Status::deadline_exceeded(what))
    }
}

impl From<Status> for Lost {
    fn from(status: Status) -> Self {
        Lost::Closed(status)
    }
}

/// The two streams of turns between a client and its session.
struct Talk {
    served: Arc<FederationService>,
    session: Arc<Session>,
    generation: u64,
    turns: Streaming<ClientTurn>,
    sender: mpsc::Sender<std::result::Result<ServerTurn, Status>>,
}

impl Talk {
    async fn go_on(mut self) {
        match self.talk().await {
            Ok(()) => self.served.end(&self.session),
            Err(lost) => {
                let (is_closed, status) = match lost {
                    Lost::Closed(status) => (true, status),
                    Lost::Silent(status) => (false, status),
                };
                drop(self.sender.try_send(Err(status)));
                self.served.lose(&self.session, self.generation, is_closed);
            }
        }
    }

    /// Talks until the client says goodbye.
    ///
    /// # Errors
    /// If the connection breaks, the client is silent for too long, or says what makes no sense.
    async fn talk(&mut self) -> std::result::Result<(), Lost> {
        loop {
            let lease = self.served.lease();
            let reply = tokio::select! {
                turn = tokio::time::timeout(lease, self.turns.message()) => {
                    let silent = |_| Lost::silent("the client was silent for a lease");
                    let broken = || Status::cancelled("the client is gone");
                    let turn = turn.map_err(silent)??.ok_or_else(broken)?;
                    let is_last = turn.goodbye;
                    let outcomes = self.operate(turn).map_err(|error| status_of(&error))?;
                    if is_last {
                        return Ok(());
                    }
                    outcomes
                }
                outcomes = self.session.outcomes(self.generation) => {
                    outcomes.map_err(|error| status_of(&error))?
                }
            };
            let reply =
                ServerTurn { welcome: None, outcomes: reply.into_iter().map(outcome).collect() };
            // An empty turn tells the client that it was heard.
            let sent = tokio::time::timeout(lease, self.sender.send(Ok(reply))).await;
            let gone = |_| Status::cancelled("the client is gone");
            sent.map_err(|_| Lost::silent("the client takes no turns"))?.map_err(gone)?;
        }
    }

    fn operate(&self, turn: ClientTurn) -> Result<Vec<Outcome>> {
        if turn.hello.is_some() || turn.operations.len() > TURN_OPERATIONS_MAX {
            return Err(Error::Invalid {
                what: format!("a turn has no hello and at most {TURN_OPERATIONS_MAX} operations"),
            });
        }
        let mut outcomes = Vec::with_capacity(turn.operations.len());
        for message in turn.operations {
            let operation = operation(message)?;
            outcomes.extend(self.served.operate(&self.session, self.generation, operation)?);
        }
        Ok(outcomes)
    }
}

fn operation(message: Message) -> Result<Operation> {
    let (number, owner) = (message.number, message.owner);
    let target = || needed(message.target, "target").and_then(LockTarget::try_from);
    let lock = |kind| {
        let wait = message.wait_ms.map(Duration::from_millis);
        Ok(Operation::Lock { number, owner, target: target()?, kind, wait })
    };
    match message.kind() {
        Kind::LockShared => lock(LockKind::Shared),
        Kind::LockExclusive => lock(LockKind::Exclusive),
        Kind::Unlock => Ok(Operation::Unlock { owner, target: target()? }),
        Kind::Pin => Ok(Operation::Pin { number, csn: message.csn.map(Csn) }),
        Kind::Unpin => Ok(Operation::Unpin { csn: Csn(needed(message.csn, "snapshot")?) }),
        Kind::Unspecified => Err(Error::Invalid { what: "an operation has no kind".to_owned() }),
    }
}

fn outcome(outcome: Outcome) -> v1::Outcome {
    let number = outcome.number;
    match outcome.result {
        Ok(granted) => {
            v1::Outcome { number, failure: None, epoch: granted.epoch, csn: granted.csn.0 }
        }
        Err(error) => {
            v1::Outcome { number, failure: Some(failure_of(&error)), ..v1::Outcome::default() }
        }
    }
}

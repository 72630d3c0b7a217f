//! The state of sessions that the servers of one federation exchange.

use femtobarn_catalog::{Csn, Error, Holder, LockTarget, Result};
use uuid::Uuid;

use super::{needed, uuid};
use crate::v1;

/// The locks that the sessions of a server wait for, and the snapshots that are pinned there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSurvey {
    /// The requests for locks that wait.
    pub waits: Vec<SessionWait>,
    /// The pinned snapshots before the requested commit, in order.
    pub pins: Vec<Csn>,
}

/// A request of a session for a lock, which waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionWait {
    /// The transaction that waits.
    pub owner: ClientOwner,
    /// The number of the operation in its session.
    pub number: u64,
    /// The lock that the transaction waits for.
    pub target: LockTarget,
    /// The client of the transaction.
    pub by: Holder,
    /// The transactions that it waits for.
    pub blockers: Vec<ClientOwner>,
}

/// A transaction of a client, which has the same owner at all servers of the federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientOwner {
    /// The digest of the id of the client's sessions.
    pub client: Uuid,
    /// The client's number of the transaction.
    pub number: u64,
}

impl From<ClientOwner> for v1::LockOwner {
    fn from(ClientOwner { client, number }: ClientOwner) -> Self {
        v1::LockOwner { client: client.into_bytes().to_vec(), number }
    }
}

impl TryFrom<v1::LockOwner> for ClientOwner {
    type Error = Error;

    fn try_from(owner: v1::LockOwner) -> Result<Self> {
        Ok(ClientOwner { client: uuid(&owner.client)?, number: owner.number })
    }
}

impl From<SessionWait> for v1::Wait {
    fn from(SessionWait { owner, number, target, by, blockers }: SessionWait) -> Self {
        v1::Wait {
            owner: Some(owner.into()),
            number,
            target: Some(target.into()),
            by: Some(by.into()),
            blockers: blockers.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Wait> for SessionWait {
    type Error = Error;

    fn try_from(wait: v1::Wait) -> Result<Self> {
        let blockers = wait.blockers.into_iter().map(TryInto::try_into);
        Ok(SessionWait {
            owner: needed(wait.owner, "owner")?.try_into()?,
            number: wait.number,
            target: needed(wait.target, "target")?.try_into()?,
            by: needed(wait.by, "waiter")?.into(),
            blockers: blockers.collect::<Result<_>>()?,
        })
    }
}

impl From<SessionSurvey> for v1::ListLocksReply {
    fn from(SessionSurvey { waits, pins }: SessionSurvey) -> Self {
        v1::ListLocksReply {
            waits: waits.into_iter().map(Into::into).collect(),
            pins: pins.into_iter().map(|csn| csn.0).collect(),
            ..v1::ListLocksReply::default()
        }
    }
}

impl TryFrom<v1::ListLocksReply> for SessionSurvey {
    type Error = Error;

    fn try_from(reply: v1::ListLocksReply) -> Result<Self> {
        let waits = reply.waits.into_iter().map(TryInto::try_into);
        let pins = reply.pins.into_iter().map(Csn).collect();
        Ok(SessionSurvey { waits: waits.collect::<Result<_>>()?, pins })
    }
}

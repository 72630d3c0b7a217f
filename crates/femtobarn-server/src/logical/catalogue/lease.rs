//! How sessions begin, are taken up again, and end.
//!
//! What a client claims to hold when it comes again counts: what it does not claim is freed, and what
//! the session does not hold any more, as after a restart of the server, is taken back if nobody else
//! can have had it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use femtobarn_catalog::{Commit, Csn, Error, Holder, LockKind, LockTarget, Result};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use uuid::Uuid;

use super::session::{self, Asked, SHARE_MAX, Session};
use super::{FederationService, SESSIONS_MAX, over};
use crate::logical::latency::RequestKind;
use crate::logical::locks::Owner;

/// What a client says when it comes.
#[derive(Clone, Debug)]
pub struct Claims {
    /// The name of its session.
    pub session: Uuid,
    /// Who it is, as far as that is proved; only the same may take the session up again.
    pub identity: String,
    /// Whether it may lock and publish.
    pub may_write: bool,
    /// Who is shown to others.
    pub client: Holder,
    /// The locks that it had, each with its owner and the epoch that came with it.
    pub locks: Vec<(u64, LockTarget, LockKind, u64)>,
    /// The snapshots that it had pinned, and how many times.
    pub pins: Vec<(Csn, u32)>,
}

/// A session that was opened, or opened again.
#[derive(Debug)]
pub struct Welcome {
    /// The session.
    pub session: Arc<Session>,
    /// How often its client has come.
    pub generation: u64,
    /// The newest commit.
    pub head: Csn,
    /// What it claims and does not hold any more.
    pub lost_locks: Vec<(u64, LockTarget)>,
    /// Pinned snapshots that were given up.
    pub lost_pins: Vec<Csn>,
}

impl FederationService {
    /// Opens a session, or takes it up again.
    ///
    /// # Errors
    /// [`Error::Denied`] if it is somebody else's; [`Error::Unavailable`] if there are too many.
    pub async fn attend(self: &Arc<Self>, claims: Claims) -> Result<Welcome> {
        if claims.locks.len() + claims.pins.len() > SHARE_MAX {
            return Err(Error::Invalid { what: "a session claims too many locks".to_owned() });
        }
        let session = self.session_of(&claims)?;
        let generation = self.take_up(&session, &claims)?;
        let lost_locks = self.retake_all(&session, generation, &claims).await;
        let (served, pinning) = (Arc::clone(self), Arc::clone(&session));
        let pinned = spawn_blocking(move || served.pin_all(&pinning, &claims)).await;
        let (head, lost_pins) = pinned.unwrap_or_else(|error| {
            Err(Error::Internal { what: format!("opening a session stopped: {error}") })
        })?;
        Ok(Welcome { session, generation, head, lost_locks, lost_pins })
    }

    fn session_of(&self, claims: &Claims) -> Result<Arc<Session>> {
        let mut sessions = session::lock(&self.sessions);
        if let Some(known) = sessions.get(&claims.session) {
            return match known.identity == claims.identity {
                true => Ok(Arc::clone(known)),
                false => Err(Error::Denied { what: "the session is somebody else's".to_owned() }),
            };
        }
        if sessions.len() >= SESSIONS_MAX {
            return Err(Error::Unavailable {
                what: format!("the server has {SESSIONS_MAX} sessions; come back later"),
            });
        }
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        let session = Arc::new(Session::new(number, claims));
        sessions.insert(claims.session, Arc::clone(&session));
        drop(sessions);
        tracing::info!(
            session = format_args!("c{number}"),
            federation = self.name,
            client = claims.client.name(),
            identity = claims.identity,
            "session begins"
        );
        Ok(session)
    }

    /// From here on only this client speaks for the session. What it does not claim is freed.
    fn take_up(self: &Arc<Self>, session: &Arc<Session>, claims: &Claims) -> Result<u64> {
        let claimed: HashSet<_> =
            claims.locks.iter().map(|(owner, target, ..)| (*owner, *target)).collect();
        let (generation, surplus, waits) = {
            let mut state = session.lock();
            if state.is_over {
                return Err(over());
            }
            state.generation += 1;
            state.client = claims.client.clone();
            let pinned = |csn: &Csn| claims.pins.iter().find(|(claimed, _)| claimed == csn);
            state.pins.retain(|csn, pin| {
                pin.1 = pinned(csn).map_or(0, |(_, count)| *count);
                pin.1 > 0
            });
            let surplus = state.let_go_unless(|key| claimed.contains(key));
            let waits = state.waiting.drain().map(|(_, wait)| wait).collect();
            (state.generation, surplus, waits)
        };
        session.forget_outcomes();
        self.give_up_all(session, waits);
        for ((number, target), held) in surplus {
            self.free(Owner { session: session.number(), number }, target, held);
        }
        Ok(generation)
    }

    async fn retake_all(
        self: &Arc<Self>,
        session: &Arc<Session>,
        generation: u64,
        claims: &Claims,
    ) -> Vec<(u64, LockTarget)> {
        let mut lost = Vec::new();
        for (owner, target, kind, epoch) in &claims.locks {
            let (owner, target) = (*owner, *target);
            if session.lock().held.contains_key(&(owner, target)) {
                continue;
            }
            let (kind, since) = (*kind, Instant::now());
            let asked = Asked { number: 0, owner, target, kind, generation, since, deadline: None };
            if !self.retake(session, asked, *epoch).await {
                lost.push((owner, target));
            }
        }
        lost
    }

    fn pin_all(&self, session: &Session, claims: &Claims) -> Result<(Csn, Vec<Csn>)> {
        let mut lost = Vec::new();
        for (csn, count) in &claims.pins {
            let is_pinned = session.lock().pins.contains_key(csn);
            if !is_pinned && self.pin_now(session, Some(*csn), *count).is_err() {
                lost.push(*csn);
            }
        }
        Ok((self.catalog.head()?, lost))
    }

    /// The client of a session is not heard any more, because its connection is closed or it fell silent.
    /// The session ends, unless it comes again within the grace or the lease.
    pub fn lose(self: &Arc<Self>, session: &Arc<Session>, generation: u64, is_closed: bool) {
        let patience = if is_closed { self.grace } else { self.lease };
        let (served, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            if session.lock().generation == generation {
                served.end_for(&session, if is_closed { "connection closed" } else { "silence" });
            }
        });
    }

    /// Ends a session whose client said goodbye, as soon as nothing of it is being published.
    pub fn end(self: &Arc<Self>, session: &Arc<Session>) {
        self.end_for(session, "goodbye");
    }

    fn end_for(self: &Arc<Self>, session: &Arc<Session>, why: &'static str) {
        let is_publishing = {
            let mut state = session.lock();
            (state.is_over, state.end) = (true, why);
            state.publishing > 0
        };
        if !is_publishing {
            self.bury(session);
        }
    }

    /// Frees all that a session had, and forgets it.
    fn bury(self: &Arc<Self>, session: &Arc<Session>) {
        let (held, waits, pins) = {
            let mut state = session.lock();
            let held = state.let_go_unless(|_| false);
            let waits = state.waiting.drain().map(|(_, wait)| wait).collect();
            (held, waits, std::mem::take(&mut state.pins))
        };
        drop(pins);
        self.give_up_all(session, waits);
        for ((number, target), held) in held {
            self.free(Owner { session: session.number(), number }, target, held);
        }
        let is_known = {
            let mut sessions = session::lock(&self.sessions);
            let is_same = |known: &Arc<Session>| Arc::ptr_eq(known, session);
            let is_known = sessions.get(&session.id()).is_some_and(is_same);
            if is_known {
                sessions.remove(&session.id());
            }
            is_known
        };
        if is_known {
            let (commits, why) = {
                let state = session.lock();
                (state.published, state.end)
            };
            let session = format_args!("c{}", session.number()).to_string();
            tracing::info!(session, federation = self.name, commits, why, "session ends");
        }
    }

    /// Publishes a transaction of a session. `again` says that it was sent before, and may have been
    /// published since that commit.
    ///
    /// Who stops waiting for this does not stop it.
    ///
    /// # Errors
    /// As [`femtobarn_catalog::LocalCatalogue::commit`]; [`Error::Changed`] if the session does not hold a
    /// database that the transaction made or wrote to.
    pub async fn publish(
        self: &Arc<Self>,
        session: &Arc<Session>,
        commit: Commit,
        again: Option<Csn>,
    ) -> Result<Csn> {
        let publishing = match (Publishing::begin(self, session, &commit), again) {
            (Ok(publishing), _) => publishing,
            (Err(error), None) => return Err(error),
            (Err(error), Some(after)) => {
                let made = self.publisher.made(commit.transaction, after).await?;
                return made.ok_or(error);
            }
        };
        let (served, since) = (Arc::clone(self), Instant::now());
        let published = tokio::spawn(async move {
            let result = served.publisher.publish(commit, again).await;
            served.latencies.record(RequestKind::Commit, since.elapsed());
            publishing.session.lock().published += u64::from(result.is_ok());
            drop(publishing);
            result
        });
        match published.await {
            Ok(result) => result,
            // The server ends, and nobody knows how far this came: who hears nothing asks again.
            Err(error) if error.is_cancelled() => std::future::pending().await,
            Err(error) => Err(Error::Internal { what: format!("publishing stopped: {error}") }),
        }
    }
}

/// What keeps a session while one of its transactions is being published.
struct Publishing {
    served: Arc<FederationService>,
    session: Arc<Session>,
}

impl Publishing {
    fn begin(
        served: &Arc<FederationService>,
        session: &Arc<Session>,
        commit: &Commit,
    ) -> Result<Self> {
        let mut state = session.lock();
        if state.is_over {
            return Err(over());
        }
        let held: HashSet<LockTarget> = state.held.keys().map(|(_, target)| *target).collect();
        let changed = commit.versions.iter().map(|version| version.database);
        let new = commit.new_databases.iter().map(|new| new.id);
        let mut databases = changed.chain(new).map(LockTarget::Database);
        if let Some(free) = databases.find(|target| !held.contains(target)) {
            return Err(Error::Changed { what: format!("the lock on {free} was lost") });
        }
        state.publishing += 1;
        served.unborn.begin_publishing(commit);
        Ok(Publishing { served: Arc::clone(served), session: Arc::clone(session) })
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        let is_last = {
            let mut state = self.session.lock();
            state.publishing -= 1;
            state.is_over && state.publishing == 0
        };
        if is_last {
            self.served.bury(&self.session);
        }
    }
}

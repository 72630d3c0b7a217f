//! How sessions begin, are resumed, and end.
//!
//! When a client opens another stream, its claims decide: locks that it does not claim are freed. Claimed locks that
//! the session does not hold, as after a restart of the server, are taken again if no other session can have held them
//! in between.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use femtobarn_catalog::{Commit, Csn, DatabaseId, Error, LockTarget, Result};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::service::{FederationService, SESSIONS_MAX};
use super::session::{CatalogueSession, SessionClaims};
use super::state::{LockRequest, SHARE_MAX};
use super::write_permit::WriteInProgress;
use crate::logical::latency::RequestKind;

/// A session that was opened or resumed.
#[derive(Debug)]
pub struct Welcome {
    /// The session.
    pub session: Arc<CatalogueSession>,
    /// The number of streams that the client has opened.
    pub generation: u64,
    /// The newest commit.
    pub head: Csn,
    /// Claimed locks that the session has lost.
    pub lost_locks: Vec<(u64, LockTarget)>,
    /// Claimed snapshots that no longer exist.
    pub lost_pins: Vec<Csn>,
}

impl FederationService {
    /// Opens a session, or resumes it.
    ///
    /// # Errors
    /// [`Error::Denied`] if the session belongs to another identity; [`Error::Unavailable`] if the server has too many
    /// sessions, the catalogue does not answer, or the session has ended and still has locks; [`Error::Invalid`] if the
    /// client claims too many locks.
    pub async fn open_session(self: &Arc<Self>, claims: SessionClaims) -> Result<Welcome> {
        if claims.locks.len() + claims.pins.len() > SHARE_MAX {
            return Err(Error::Invalid {
                what: format!(
                    "too many locks and pins claimed by one session: at most {SHARE_MAX}"
                ),
            });
        }
        let session = self.session_of(&claims)?;
        let claimed: HashSet<_> =
            claims.locks.iter().map(|(owner, target, ..)| (*owner, *target)).collect();
        let unclaimed = session.lock().databases_unless(|key| claimed.contains(key));
        // The session ends after this time.
        let fenced = timeout(self.grace, self.fence_off(unclaimed)).await;
        fenced.map_err(|_| Error::Unavailable {
            what: "the catalogue does not answer, so locks that the client has lost are not freed yet; open the session \
                   again"
                .to_owned(),
        })?;
        let generation = self.resume(&session, &claims)?;
        let mut opening = Opening::of(self, &session, generation);
        let lost_locks = self.reacquire_all(&session, generation, &claims).await;
        let (service, pinning) = (Arc::clone(self), Arc::clone(&session));
        let open = move || {
            let pinned = service.pin_all(&pinning, generation, &claims)?;
            service.site().into_iter().for_each(|site| site.look_for_servers());
            Ok(pinned)
        };
        let pinned = spawn_blocking(open).await;
        let (head, lost_pins) = pinned.unwrap_or_else(|error| {
            Err(Error::Internal { what: format!("opening a session stopped: {error}") })
        })?;
        opening.is_over = true;
        Ok(Welcome { session, generation, head, lost_locks, lost_pins })
    }

    fn session_of(&self, claims: &SessionClaims) -> Result<Arc<CatalogueSession>> {
        let mut sessions = self.sessions.lock();
        if let Some(known) = sessions.get(&claims.session) {
            if known.identity != claims.identity {
                let what = "the session belongs to another identity".to_owned();
                return Err(Error::Denied { what });
            }
            return Ok(Arc::clone(known));
        }
        if sessions.len() >= SESSIONS_MAX {
            return Err(Error::Unavailable {
                what: format!("the server has {SESSIONS_MAX} sessions; try again later"),
            });
        }
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        let session = Arc::new(CatalogueSession::new(number, claims));
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

    /// Makes this client's stream the only one whose requests the session accepts, and frees locks and pins that it
    /// does not claim.
    fn resume(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        claims: &SessionClaims,
    ) -> Result<u64> {
        let claimed: HashSet<_> =
            claims.locks.iter().map(|(owner, target, ..)| (*owner, *target)).collect();
        let (generation, freed, granted) = {
            let mut state = session.lock();
            if state.is_over {
                // A client waits for this, or asks another server.
                return Err(Error::Unavailable {
                    what: "the session has ended, and its locks are not free yet; open it again"
                        .to_owned(),
                });
            }
            state.generation += 1;
            state.client = claims.client.clone();
            let pinned = |csn: &Csn| claims.pins.iter().find(|(claimed, _)| claimed == csn);
            state.pins.retain(|csn, pin| {
                pin.1 = pinned(csn).map_or(0, |(_, count)| *count);
                pin.1 > 0
            });
            session.forget_outcomes(&state);
            let (freed, granted) =
                self.release_unless(session, &mut state, |key| claimed.contains(key));
            (state.generation, freed, granted)
        };
        self.grant(granted);
        freed.into_iter().for_each(|target| self.sweep(target));
        Ok(generation)
    }

    async fn reacquire_all(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        generation: u64,
        claims: &SessionClaims,
    ) -> Vec<(u64, LockTarget)> {
        let mut lost = Vec::new();
        for (owner, target, kind, epoch) in &claims.locks {
            let (owner, target) = (*owner, *target);
            if session.lock().held.contains_key(&(owner, target)) {
                continue;
            }
            let (kind, since) = (*kind, Instant::now());
            let request =
                LockRequest { number: 0, owner, target, kind, generation, since, deadline: None };
            let (service, epoch) = (Arc::clone(self), *epoch);
            let session = Arc::clone(session);
            // It ends even if the future is dropped, so that the lock does not stay in the table.
            let reacquired =
                tokio::spawn(async move { service.reacquire(&session, request, epoch).await });
            if !reacquired.await.unwrap_or(false) {
                lost.push((owner, target));
            }
        }
        lost
    }

    /// Pins the claimed snapshots that the session does not pin yet. Returns the newest commit, and the claimed snapshots
    /// that no longer exist: their readers give up, so a catalogue that does not answer must not make one look lost.
    pub(super) fn pin_all(
        &self,
        session: &CatalogueSession,
        generation: u64,
        claims: &SessionClaims,
    ) -> Result<(Csn, Vec<Csn>)> {
        let mut lost = Vec::new();
        for (csn, count) in &claims.pins {
            if session.lock().pins.contains_key(csn) {
                continue;
            }
            match self.pin_now(session, generation, Some(*csn), *count) {
                Ok(_) => {}
                Err(Error::NotFound { .. }) => lost.push(*csn),
                Err(error) => return Err(error),
            }
        }
        Ok((self.catalog.head()?, lost))
    }

    /// Ends a session whose client's connection was closed, or that fell silent, unless the client resumes it within
    /// the grace period or the lease.
    pub fn lose(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        generation: u64,
        is_closed: bool,
    ) {
        let patience = if is_closed { self.grace } else { self.lease };
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            let why = if is_closed { "connection closed" } else { "silence" };
            service.end_for(&session, generation, why);
        });
    }

    /// Ends a session whose client closed its stream `generation`, as soon as none of its transactions is being
    /// published.
    pub fn end(self: &Arc<Self>, session: &Arc<CatalogueSession>, generation: u64) {
        self.end_for(session, generation, "goodbye");
    }

    /// Ends a session whose stream `generation` has ended, if that is its client's last one.
    fn end_for(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        generation: u64,
        why: &'static str,
    ) {
        let is_publishing = {
            let mut state = session.lock();
            if !state.is_current(generation) {
                return;
            }
            (state.is_over, state.end) = (true, why);
            state.publishing > 0
        };
        if !is_publishing {
            self.free_fenced(session);
        }
    }

    /// Frees all locks and pins of a session, once its commits are refused everywhere: if a session holds databases at
    /// its end, its client fell silent, or one of its commits may still be under way at another server.
    fn free_fenced(self: &Arc<Self>, session: &Arc<CatalogueSession>) {
        let held = session.lock().databases_unless(|_| false);
        if self.site().is_none() || held.is_empty() {
            return self.free_all(session);
        }
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            service.fence_off(held).await;
            service.free_all(&session);
        });
    }

    /// Frees all locks and pins of a session, and removes the session.
    fn free_all(self: &Arc<Self>, session: &Arc<CatalogueSession>) {
        let (freed, granted, pins) = {
            let mut state = session.lock();
            let (freed, granted) = self.release_unless(session, &mut state, |_| false);
            session.forget_outcomes(&state);
            (freed, granted, std::mem::take(&mut state.pins))
        };
        drop(pins);
        self.grant(granted);
        freed.into_iter().for_each(|target| self.sweep(target));
        let is_known = {
            let mut sessions = self.sessions.lock();
            let is_same = |known: &Arc<CatalogueSession>| Arc::ptr_eq(known, session);
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

    /// Publishes a transaction of a session. If it was sent before, `again` is a commit after which it may have been
    /// published.
    ///
    /// Dropping the future does not stop the publication.
    ///
    /// # Errors
    /// The errors of [`femtobarn_catalog::LocalCatalogue::commit`]; [`Error::Changed`] if the session has ended, or
    /// does not hold a database that the transaction created or wrote to.
    pub async fn publish(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        mut commit: Commit,
        again: Option<Csn>,
    ) -> Result<Csn> {
        let publishing = match (Publishing::begin(self, session, &mut commit), again) {
            (Ok(publishing), _) => publishing,
            (Err(error), None) => return Err(error),
            (Err(error), Some(after)) => {
                let made = self.publisher.find_or_refuse(commit.transaction, after).await?;
                return made.ok_or(error);
            }
        };
        let (service, since) = (Arc::clone(self), Instant::now());
        let published = tokio::spawn(async move {
            let result = service.publisher.publish(commit, again).await;
            service.latencies.record(RequestKind::Commit, since.elapsed());
            publishing.session.lock().published += u64::from(result.is_ok());
            if matches!(result, Err(Error::Changed { .. })) {
                publishing.look_again().await;
            }
            drop(publishing);
            result
        });
        match published.await {
            Ok(result) => result,
            // The server is stopping, and the outcome is unknown: a client without an answer asks again.
            Err(error) if error.is_cancelled() => std::future::pending().await,
            Err(error) => Err(Error::Internal { what: format!("publishing stopped: {error}") }),
        }
    }
}

/// A session that is being opened. If that fails or its future is dropped, no stream begins whose end would end the
/// session, so this does it.
struct Opening {
    service: Arc<FederationService>,
    session: Arc<CatalogueSession>,
    generation: u64,
    runtime: Handle,
    is_over: bool,
}

impl Opening {
    fn of(
        service: &Arc<FederationService>,
        session: &Arc<CatalogueSession>,
        generation: u64,
    ) -> Self {
        let (service, session) = (Arc::clone(service), Arc::clone(session));
        Opening { service, session, generation, runtime: Handle::current(), is_over: false }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if !self.is_over {
            let _inside = self.runtime.enter();
            self.service.lose(&self.session, self.generation, true);
        }
    }
}

/// Keeps a session from ending while one of its transactions is being published, and the locks of its databases from
/// being freed.
struct Publishing {
    writing: Vec<WriteInProgress>,
    service: Arc<FederationService>,
    session: Arc<CatalogueSession>,
}

impl Publishing {
    /// Looks up the homes of the databases of a refused commit, which may have shown an outdated epoch.
    async fn look_again(&self) {
        let Some(site) = self.service.site().cloned() else { return };
        let databases: Vec<_> = self.writing.iter().map(|writing| writing.database).collect();
        // It fails only while the server is shutting down.
        let _ = spawn_blocking(move || site.look_again(&databases)).await;
    }

    fn begin(
        service: &Arc<FederationService>,
        session: &Arc<CatalogueSession>,
        commit: &mut Commit,
    ) -> Result<Self> {
        let mut state = session.lock();
        if state.is_over {
            // If the catalogue does not answer, the locks may not be free yet; but the session has lost them.
            let what = "the locks of this transaction were lost, because its session has ended; run it again";
            return Err(Error::Changed { what: what.to_owned() });
        }
        let changed = commit.versions.iter().map(|version| version.database);
        let new = commit.new_databases.iter().map(|new| new.id);
        let written = commit.writes.iter().map(|write| write.database);
        let databases: BTreeSet<DatabaseId> = changed.chain(new).chain(written).collect();
        databases.iter().try_for_each(|id| service.check_written(&state, commit, *id))?;
        state.publishing += 1;
        state.begin_writes(&databases);
        drop(state);
        service.uncommitted.begin_publishing(commit);
        let writing = databases.into_iter().map(|database| WriteInProgress {
            service: Arc::clone(service),
            session: Arc::clone(session),
            database,
        });
        Ok(Publishing {
            writing: writing.collect(),
            service: Arc::clone(service),
            session: Arc::clone(session),
        })
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
            self.service.free_fenced(&self.session);
        }
    }
}

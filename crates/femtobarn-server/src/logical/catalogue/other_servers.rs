//! The surveys that the servers of one federation exchange: the waits of their sessions, and the pinned snapshots.
//!
//! A transaction that locks at several servers can be in a cycle of waits of which each server sees only a part. So a
//! server whose sessions wait asks the other servers for their waits, every second.
//!
//! 1. A wait that was in two surveys existed all the time between them. A cycle of such waits is a deadlock, however
//!    far apart the servers were asked.
//! 2. Of a cycle that no shorter one touches, the wait of the largest owner ends. Servers that see the same waits see the
//!    same cycles, so they end only one wait of each. If a server does not see a shorter cycle that it would have to end,
//!    both last until a time-out.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use femtobarn_catalog::{Csn, Error, Result, ServerRow};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use femtobarn_rpc::convert::{ClientOwner, SessionSurvey, SessionWait};
use tokio::runtime::Handle;

use super::service::FederationService;
use super::session::Ticket;
use crate::logical::locks::{OwnerId, QueuedRequest, WaitingRequest, deadlocks};

/// Between two surveys.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest wait for another server.
const PATIENCE: Duration = Duration::from_secs(2);

/// A wait at the server of a name. A later one of the same transaction has another number.
type WaitKey = (ClientOwner, String, u64);

/// A wait, and the name of its server.
struct PlacedWait {
    server: String,
    wait: SessionWait,
}

impl PlacedWait {
    fn key(&self) -> WaitKey {
        (self.wait.owner, self.server.clone(), self.wait.number)
    }
}

/// Looks for deadlocks over several servers until the federation is no longer served. `own` is the name of this server.
/// Must be called inside a runtime.
///
/// # Errors
/// The operating system's if it cannot start a thread.
pub fn watch_deadlocks(federation: &Arc<FederationService>, own: &str) -> std::io::Result<()> {
    let (federation, own) = (Arc::downgrade(federation), own.to_owned());
    let runtime = Handle::current();
    let watch = move || {
        let _inside = runtime.enter();
        watch(&federation, &own);
    };
    thread::Builder::new().name("femtobarn-deadlock".to_owned()).spawn(watch).map(drop)
}

fn watch(federation: &Weak<FederationService>, own: &str) {
    let mut others = HashMap::new();
    let mut before = HashSet::new();
    loop {
        thread::sleep(INTERVAL);
        let Some(service) = federation.upgrade() else { return };
        let waits = service.waits_everywhere(own, &mut others);
        service.end_deadlocks(own, waits.iter().filter(|wait| before.contains(&wait.key())));
        before = waits.iter().map(PlacedWait::key).collect();
    }
}

impl FederationService {
    /// The locks that sessions wait for here, and the snapshots before a commit that are pinned here, by sessions and
    /// by processes of this machine.
    ///
    /// # Errors
    /// [`Error::Io`] if the pins cannot be read.
    pub fn survey(&self, pins_before: Option<Csn>) -> Result<SessionSurvey> {
        let pins = pins_before.map(|before| self.catalog.pins().pinned_below(before));
        let waits = self.session_waits().into_iter().map(|(wait, _)| wait).collect();
        Ok(SessionSurvey { waits, pins: pins.transpose()?.unwrap_or_default() })
    }

    fn session_waits(&self) -> Vec<(SessionWait, Ticket)> {
        let waiting = self.table.waiting();
        if waiting.is_empty() {
            return vec![];
        }
        let sessions = self.sessions();
        let sessions: HashMap<u64, _> = sessions.iter().map(|it| (it.number(), it)).collect();
        let client_owner =
            |owner: OwnerId| Some(sessions.get(&owner.session)?.client_owner(owner.number));
        let wait = |WaitingRequest { target, request, blockers }| {
            let QueuedRequest { owner, ticket, .. }: QueuedRequest<Ticket> = request;
            let wait = SessionWait {
                owner: ticket.session.client_owner(owner.number),
                number: ticket.request.number,
                target,
                by: ticket.session.client(),
                blockers: blockers.into_iter().filter_map(client_owner).collect(),
            };
            (wait, ticket)
        };
        waiting.into_iter().map(wait).collect()
    }

    /// The waits of sessions at all servers that answer; empty if no session waits here, since then this server cannot
    /// end a deadlock.
    fn waits_everywhere(
        &self,
        own: &str,
        others: &mut HashMap<String, RemoteCatalogue>,
    ) -> Vec<PlacedWait> {
        let here = self.session_waits().into_iter();
        let place = |server: &str, wait| PlacedWait { server: server.to_owned(), wait };
        let mut waits: Vec<_> = here.map(|(wait, _)| place(own, wait)).collect();
        if waits.is_empty() {
            return waits;
        }
        let servers = self.catalog.servers().unwrap_or_default();
        for server in servers.into_iter().filter(|it| it.is_alive && it.name != own) {
            if let Some(there) = self.survey_other(&server, others) {
                waits.extend(there.waits.into_iter().map(|wait| place(&server.name, wait)));
            }
        }
        waits
    }

    /// The survey of another server; `None` if it does not answer. A failed connection is made again the next time.
    fn survey_other(
        &self,
        server: &ServerRow,
        connections: &mut HashMap<String, RemoteCatalogue>,
    ) -> Option<SessionSurvey> {
        let known = connections.remove(&server.name).filter(|it| it.is_at(&server.url));
        let connection = match known {
            Some(known) => known,
            None => {
                // Without TLS no token of this server's user is sent.
                let patience = PATIENCE;
                let options = ConnectOptions {
                    patience,
                    has_alternatives: true,
                    ..ConnectOptions::default()
                };
                RemoteCatalogue::connect(&server.url, &options).ok()?
            }
        };
        let survey = connection.survey(None).ok()?;
        connections.insert(server.name.clone(), connection);
        Some(survey)
    }

    /// Ends the waits of this server that break the cycles in `waits`.
    fn end_deadlocks<'a>(self: &Arc<Self>, own: &str, waits: impl Iterator<Item = &'a PlacedWait>) {
        let mut waits: Vec<_> = waits.collect();
        waits.sort_by_key(|wait| wait.key());
        let blockers: Vec<_> =
            waits.iter().map(|it| (it.wait.owner, it.wait.blockers.as_slice())).collect();
        for cycle in deadlocks(&blockers) {
            let PlacedWait { server, wait } = waits[cycle[0]];
            if server == own {
                let cycle = cycle.iter().map(|place| {
                    let PlacedWait { server, wait } = waits[*place];
                    let (client, number) = (wait.by.name(), wait.owner.number);
                    let text = self.describe_wait_of(&client, number, &wait.target);
                    format!("{text} at {server}")
                });
                self.end_in_deadlock(wait, cycle.collect());
            }
        }
    }

    fn end_in_deadlock(self: &Arc<Self>, of: &SessionWait, cycle: Vec<String>) {
        let is_it =
            |(wait, _): &(SessionWait, _)| (wait.owner, wait.number) == (of.owner, of.number);
        let Some((_, ticket)) = self.session_waits().into_iter().find(is_it) else { return };
        self.deadlocks.fetch_add(1, Ordering::Relaxed);
        self.end_wait(&ticket.session, ticket.request, move |_, _| Error::Deadlock { cycle });
    }
}

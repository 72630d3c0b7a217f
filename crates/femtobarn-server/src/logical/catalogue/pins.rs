//! Pins of sessions on snapshots, which a session counts by snapshot.

use std::sync::Arc;

use femtobarn_catalog::{Csn, Result};
use tokio::task::spawn_blocking;

use super::service::FederationService;
use super::session::{CatalogueSession, OperationOutcome, session_over};
use super::state::Granted;

impl FederationService {
    /// Begins a pin for the client's stream `generation`. Returns the outcome if it is known at once.
    pub(super) fn pin(
        self: &Arc<Self>,
        session: &Arc<CatalogueSession>,
        generation: u64,
        number: u64,
        csn: Option<Csn>,
    ) -> Option<OperationOutcome> {
        let refused = |error| Some(OperationOutcome { number, result: Err(error) });
        {
            let mut state = session.lock();
            let is_current = state.is_current(generation).then_some(()).ok_or_else(session_over);
            if let Err(error) = is_current.and_then(|()| state.check_share()) {
                return refused(error);
            }
            if let Some((_, count)) = csn.and_then(|csn| state.pins.get_mut(&csn)) {
                *count += 1;
                let csn = csn.unwrap_or_default();
                return Some(OperationOutcome { number, result: Ok(pinned(csn)) });
            }
        }
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        spawn_blocking(move || {
            let result = service.pin_now(&session, generation, csn, 1).map(pinned);
            session.push_outcome(generation, OperationOutcome { number, result });
        });
        None
    }

    /// Adds `count` pins to a snapshot for the client's stream `generation`. May wait for the disk.
    pub(super) fn pin_now(
        &self,
        session: &CatalogueSession,
        generation: u64,
        csn: Option<Csn>,
        count: u32,
    ) -> Result<Csn> {
        let (csn, guard) = match csn {
            Some(csn) => (csn, self.catalog.pin(csn)?),
            None => self.catalog.pin_head()?,
        };
        let mut state = session.lock();
        if !state.is_current(generation) {
            return Err(session_over());
        }
        let pin = state.pins.entry(csn).or_insert((guard, 0));
        pin.1 = pin.1.saturating_add(count);
        Ok(csn)
    }
}

fn pinned(csn: Csn) -> Granted {
    Granted { csn, ..Granted::default() }
}

/// Removes a pin, unless the session's client has opened a stream after `generation`, and has claimed its pins there.
pub(super) fn unpin(session: &CatalogueSession, generation: u64, csn: Csn) {
    let mut state = session.lock();
    if !state.is_current(generation) {
        return;
    }
    if let Some((_, count)) = state.pins.get_mut(&csn) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            state.pins.remove(&csn);
        }
    }
}

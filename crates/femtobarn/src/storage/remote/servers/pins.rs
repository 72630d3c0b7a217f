//! Snapshots that are pinned at every server which has them.
//!
//! 1. A pinned snapshot is read only from servers that pin it, and where its commit is the same transaction.
//! 2. A server that reaches the commit later, or returns, pins it before it is asked.
//! 3. A snapshot is lost when every server has given it up: no server can return with it, so no read waits for one.

use std::collections::BTreeMap;
use std::sync::Arc;

use femtobarn_catalog::{Catalogue, Csn, ErrorKind, LeasedPins, PinGuard, Result};
use parking_lot::RwLock;
use uuid::Uuid;

use super::member::{Member, MemberConnection};

/// The snapshots that this process pins.
#[derive(Debug, Default)]
pub(super) struct SharedPins {
    snapshots: RwLock<BTreeMap<Csn, SharedPin>>,
}

#[derive(Debug)]
struct SharedPin {
    count: usize,
    transaction: Uuid,
    /// The pins at the servers, in their order.
    guards: Vec<MemberPin>,
}

/// The pin of a snapshot at one server.
#[derive(Debug)]
enum MemberPin {
    /// The server has not reached the commit, or did not answer.
    Absent,
    Held {
        _pin: PinGuard,
    },
    /// The server has reached the commit, and does not have the snapshot any more.
    GivenUp,
}

impl SharedPin {
    fn is_given_up(&self) -> bool {
        self.guards.iter().all(|guard| matches!(guard, MemberPin::GivenUp))
    }
}

/// A pin at one server, and the transaction of the commit there.
pub(super) fn pin_at(connection: &MemberConnection, csn: Csn) -> Result<(PinGuard, Uuid)> {
    let guard = connection.catalogue.pin(csn)?;
    Ok((guard, connection.transaction(csn)?))
}

impl SharedPins {
    /// Whether a server may be asked for a snapshot. A snapshot that is not pinned may be asked of any server with its
    /// commit.
    pub(super) fn allow(&self, csn: Csn, place: usize, member: &Member) -> bool {
        match self.snapshots.read().get(&csn) {
            Some(pin) => matches!(pin.guards[place], MemberPin::Held { .. }),
            None => member.head() >= csn,
        }
    }

    /// Whether a snapshot was pinned, and every server has given it up.
    pub(super) fn is_lost(&self, csn: Csn) -> bool {
        self.snapshots.read().get(&csn).is_some_and(SharedPin::is_given_up)
    }

    /// A further guard of a snapshot that is pinned already.
    pub(super) fn again(self: &Arc<Self>, csn: Csn) -> Option<PinGuard> {
        self.snapshots.write().get_mut(&csn)?.count += 1;
        Some(PinGuard::on_lease(Arc::clone(self) as Arc<dyn LeasedPins>, csn))
    }

    /// Adds a snapshot that no server pins yet, unless it was added before.
    pub(super) fn add(self: &Arc<Self>, csn: Csn, transaction: Uuid, servers: usize) -> PinGuard {
        let absent = || (0..servers).map(|_| MemberPin::Absent).collect();
        let new = || SharedPin { count: 0, transaction, guards: absent() };
        self.snapshots.write().entry(csn).or_insert_with(new).count += 1;
        PinGuard::on_lease(Arc::clone(self) as Arc<dyn LeasedPins>, csn)
    }

    /// Pins snapshots at a server: all that it has if its session is `new`, otherwise those that it lacked before.
    ///
    /// # Errors
    /// `Unavailable` if it has another commit of that number, or does not answer.
    pub(super) fn extend_to(
        &self,
        place: usize,
        member: &Member,
        connection: &MemberConnection,
        is_new: bool,
    ) -> Result<()> {
        let is_due = |pin: &SharedPin| is_new || matches!(pin.guards[place], MemberPin::Absent);
        let due: Vec<(Csn, Uuid)> = {
            let snapshots = self.snapshots.read();
            let due = snapshots.range(..=member.head()).filter(|(_, pin)| is_due(pin));
            due.map(|(csn, pin)| (*csn, pin.transaction)).collect()
        };
        for (csn, transaction) in due {
            // Of an earlier session: dropped first, since pins of a session are counted by their commits.
            drop(self.replace(csn, place, MemberPin::Absent));
            let guard = match pin_at(connection, csn) {
                Ok((guard, own)) if own == transaction => guard,
                Ok(_) => return Err(member.other_history(csn)),
                // The server no longer has the snapshot.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    drop(self.replace(csn, place, MemberPin::GivenUp));
                    continue;
                }
                Err(error) => return Err(error),
            };
            drop(self.replace(csn, place, MemberPin::Held { _pin: guard }));
        }
        Ok(())
    }

    /// Replaces a guard and returns the old one; if the snapshot is no longer pinned, returns the new one.
    fn replace(&self, csn: Csn, place: usize, guard: MemberPin) -> MemberPin {
        match self.snapshots.write().get_mut(&csn) {
            Some(pin) => std::mem::replace(&mut pin.guards[place], guard),
            None => guard,
        }
    }
}

impl LeasedPins for SharedPins {
    fn pin_again(&self, csn: Csn) {
        if let Some(pin) = self.snapshots.write().get_mut(&csn) {
            pin.count += 1;
        }
    }

    fn unpin(&self, csn: Csn) {
        let mut snapshots = self.snapshots.write();
        let Some(pin) = snapshots.get_mut(&csn) else { return };
        pin.count -= 1;
        let unpinned = (pin.count == 0).then(|| snapshots.remove(&csn)).flatten();
        drop(snapshots);
        // Without the lock, since dropping the pins sends requests to the servers.
        drop(unpinned);
    }

    /// Only servers that have the pin are read from.
    fn is_pinned(&self, csn: Csn) -> bool {
        !self.is_lost(csn)
    }
}

//! Deadlock detection: a search for cycles in the graph of waiting owners.

use std::collections::{HashMap, HashSet};

use femtobarn_catalog::LockTarget;

/// A transaction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId {
    /// The number of the session.
    pub session: u64,
    /// The session's number of the transaction.
    pub number: u64,
}

/// An edge of the wait-for graph. The next edge of a cycle begins at an owner that holds the target, or waits in front
/// of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitEdge {
    /// The owner that waits.
    pub waiter: OwnerId,
    /// The target that it waits for.
    pub target: LockTarget,
}

/// The cycle that a wait of `owner` for `target` closes, from that edge on. `waits` has the targets of all waiting
/// owners; `blockers` returns the owners that one of them waits for.
pub(super) fn find_cycle(
    owner: OwnerId,
    target: LockTarget,
    waits: &HashMap<OwnerId, Vec<LockTarget>>,
    blockers: impl Fn(OwnerId, &LockTarget) -> Vec<OwnerId>,
) -> Option<Vec<WaitEdge>> {
    let mut seen = HashSet::new();
    // The current path, and for each of its edges the continuations that were not tried yet.
    let mut path = vec![WaitEdge { waiter: owner, target }];
    let mut open = vec![next(owner, &target, waits, &blockers)];
    while let Some(choices) = open.last_mut() {
        match choices.pop() {
            None => {
                open.pop();
                path.pop();
            }
            Some((blocker, _)) if blocker == owner => return Some(path),
            Some((blocker, Some(waited))) if seen.insert((blocker, waited)) => {
                path.push(WaitEdge { waiter: blocker, target: waited });
                open.push(next(blocker, &waited, waits, &blockers));
            }
            Some(_) => {}
        }
    }
    None
}

/// The blockers of a waiter, each with every target that it waits for itself, and once with `None`.
fn next(
    waiter: OwnerId,
    target: &LockTarget,
    waits: &HashMap<OwnerId, Vec<LockTarget>>,
    blockers: &impl Fn(OwnerId, &LockTarget) -> Vec<OwnerId>,
) -> Vec<(OwnerId, Option<LockTarget>)> {
    let waited = |blocker: OwnerId| waits.get(&blocker).into_iter().flatten().copied().map(Some);
    let of = |blocker| waited(blocker).chain([None]).map(move |target| (blocker, target));
    blockers(waiter, target).into_iter().flat_map(of).collect()
}

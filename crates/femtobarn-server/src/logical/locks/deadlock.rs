//! Deadlock detection: a search for cycles in the graph of waiting owners, at this server or at several.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

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
pub struct WaitEdge<O = OwnerId, T = LockTarget> {
    /// The owner that waits.
    pub waiter: O,
    /// The target that it waits for.
    pub target: T,
}

/// The cycle that a wait of `owner` for `target` would close, from that edge on. `waits` has the targets of all waiting
/// owners; `blockers` returns the owners that such a wait is blocked by.
pub fn find_cycle<O: Copy + Eq + Hash, T: Copy + Eq + Hash>(
    owner: O,
    target: T,
    waits: &HashMap<O, Vec<T>>,
    blockers: impl Fn(O, &T) -> Vec<O>,
) -> Option<Vec<WaitEdge<O, T>>> {
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
fn next<O: Copy + Eq + Hash, T: Copy>(
    waiter: O,
    target: &T,
    waits: &HashMap<O, Vec<T>>,
    blockers: &impl Fn(O, &T) -> Vec<O>,
) -> Vec<(O, Option<T>)> {
    let waited = |blocker: O| waits.get(&blocker).into_iter().flatten().copied().map(Some);
    let of = |blocker| waited(blocker).chain([None]).map(move |target| (blocker, target));
    blockers(waiter, target).into_iter().flat_map(of).collect()
}

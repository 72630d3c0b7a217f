//! Deadlocks: whether the chain of waiting owners leads back to the one that asks.

use std::collections::{HashMap, HashSet};

use femtobarn_catalog::LockTarget;

use super::table::Owner;

/// One step of a cycle: somebody waits for something that the next one holds, or waits for before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Who waits.
    pub waiter: Owner,
    /// For what.
    pub target: LockTarget,
}

/// The cycle that the wait of `owner` for `target` closes, from there on. What others wait for is in
/// `waits`; `blockers` says whom they wait for there.
pub(super) fn find(
    owner: Owner,
    target: LockTarget,
    waits: &HashMap<Owner, Vec<LockTarget>>,
    blockers: impl Fn(Owner, &LockTarget) -> Vec<Owner>,
) -> Option<Vec<Link>> {
    let mut seen = HashSet::new();
    // The path to where the search is, and for each step whom else it may lead to.
    let mut path = vec![Link { waiter: owner, target }];
    let mut open = vec![next(owner, &target, waits, &blockers)];
    while let Some(choices) = open.last_mut() {
        match choices.pop() {
            None => {
                open.pop();
                path.pop();
            }
            Some((blocker, _)) if blocker == owner => return Some(path),
            Some((blocker, Some(waited))) if seen.insert((blocker, waited)) => {
                path.push(Link { waiter: blocker, target: waited });
                open.push(next(blocker, &waited, waits, &blockers));
            }
            Some(_) => {}
        }
    }
    None
}

/// Who blocks a waiter, each with something that it waits for itself; once with none.
fn next(
    waiter: Owner,
    target: &LockTarget,
    waits: &HashMap<Owner, Vec<LockTarget>>,
    blockers: &impl Fn(Owner, &LockTarget) -> Vec<Owner>,
) -> Vec<(Owner, Option<LockTarget>)> {
    let waited = |blocker: Owner| waits.get(&blocker).into_iter().flatten().copied().map(Some);
    let of = |blocker| waited(blocker).chain([None]).map(move |target| (blocker, target));
    blockers(waiter, target).into_iter().flat_map(of).collect()
}

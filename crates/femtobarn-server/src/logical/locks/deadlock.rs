//! Deadlock detection: a search for cycles in the graph of waiting owners, at this server or at several.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use femtobarn_catalog::LockTarget;

/// A transaction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// The shortest cycle that a wait of `owner` for `target` would close, from that edge on. `waits` has the targets of all
/// waiting owners; `blockers` returns the owners that such a wait is blocked by. It is asked once for each wait.
pub(super) fn find_cycle<O: Copy + Eq + Hash, T: Copy + Eq + Hash>(
    owner: O,
    target: T,
    waits: &HashMap<O, Vec<T>>,
    mut blockers: impl FnMut(O, &T) -> Vec<O>,
) -> Option<Vec<WaitEdge<O, T>>> {
    let mut seen = HashSet::new();
    // In the order of the distance from the first, each with the number of the edge that leads to it.
    let mut edges = vec![(WaitEdge { waiter: owner, target }, None)];
    let mut number = 0;
    while let Some(&(WaitEdge { waiter, target }, _)) = edges.get(number) {
        for blocker in blockers(waiter, &target) {
            if blocker == owner {
                return Some(path_to(number, &edges));
            }
            let waited = waits.get(&blocker).into_iter().flatten();
            let new = waited.filter(|waited| seen.insert((blocker, **waited)));
            edges.extend(
                new.map(|waited| (WaitEdge { waiter: blocker, target: *waited }, Some(number))),
            );
        }
        number += 1;
    }
    None
}

fn path_to<O: Copy, T: Copy>(
    last: usize,
    edges: &[(WaitEdge<O, T>, Option<usize>)],
) -> Vec<WaitEdge<O, T>> {
    let numbers = std::iter::successors(Some(last), |number| edges[*number].1);
    let mut path: Vec<_> = numbers.map(|number| edges[number].0).collect();
    path.reverse();
    path
}

/// The deadlocks among waits, which are pairs of an owner and of those that it is blocked by. Each is a cycle of places
/// in `waits`, from the wait on that is to end: that of the largest owner. Cycles that a shorter one touches are left
/// out: they can have waits of bystanders, which the end of the shorter one frees.
pub fn deadlocks<O: Copy + Ord + Hash>(waits: &[(O, &[O])]) -> Vec<Vec<usize>> {
    let in_question = owners_between_cycles(waits);
    let mut places: HashMap<O, Vec<usize>> = HashMap::new();
    for (place, (owner, _)) in waits.iter().enumerate() {
        if in_question.contains(owner) {
            places.entry(*owner).or_default().push(place);
        }
    }
    let blockers = |_, place: &usize| waits[*place].1.to_vec();
    let cycle_from = |place: usize| {
        let edges = find_cycle(waits[place].0, place, &places, blockers)?;
        Some((place, edges.iter().map(|edge| edge.target).collect::<Vec<_>>()))
    };
    let cycles: BTreeMap<usize, Vec<usize>> =
        places.values().flatten().filter_map(|place| cycle_from(*place)).collect();
    let is_the_one = |place: usize, cycle: &[usize]| {
        let is_no_less = |of: usize| cycles.get(&of).is_none_or(|other| other.len() >= cycle.len());
        cycle.iter().all(|of| waits[*of].0 <= waits[place].0 && is_no_less(*of))
    };
    let ending = cycles.iter().filter(|(place, cycle)| is_the_one(**place, cycle));
    ending.map(|(_, cycle)| cycle.clone()).collect()
}

/// The owners that waits lead to from a cycle, and from which waits lead to one.
fn owners_between_cycles<O: Copy + Eq + Hash>(waits: &[(O, &[O])]) -> HashSet<O> {
    let before = owners_before_cycles(waits);
    let mut blocked = HashMap::<O, Vec<O>>::new();
    for (owner, blockers) in waits.iter().filter(|(owner, _)| before.contains(owner)) {
        for blocker in blockers.iter().filter(|blocker| before.contains(blocker)) {
            blocked.entry(*blocker).or_default().push(*owner);
        }
    }
    let reversed: Vec<_> = blocked.iter().map(|(owner, of)| (*owner, of.as_slice())).collect();
    owners_before_cycles(&reversed)
}

/// The waiting owners whose waits lead to a cycle.
fn owners_before_cycles<O: Copy + Eq + Hash>(waits: &[(O, &[O])]) -> HashSet<O> {
    // The number of blockers of each waiting owner that are left, and the owners that each one blocks.
    let (mut left, mut blocked) = (HashMap::new(), HashMap::<_, Vec<O>>::new());
    for (owner, blockers) in waits {
        *left.entry(*owner).or_insert(0) += blockers.len();
        blockers.iter().for_each(|blocker| blocked.entry(*blocker).or_default().push(*owner));
    }
    let mut ends: Vec<O> = blocked.keys().filter(|it| !left.contains_key(it)).copied().collect();
    ends.extend(left.iter().filter(|(_, blockers)| **blockers == 0).map(|(owner, _)| *owner));
    while let Some(end) = ends.pop() {
        left.remove(&end);
        for owner in blocked.remove(&end).unwrap_or_default() {
            if let Some(blockers) = left.get_mut(&owner) {
                *blockers -= 1;
                if *blockers == 0 {
                    ends.push(owner);
                }
            }
        }
    }
    left.into_keys().collect()
}

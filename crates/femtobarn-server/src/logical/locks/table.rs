//! Who holds what, and who waits for it in which order.
//!
//! Invariants:
//! 1. Who waits is served in the order of asking: nobody overtakes, not even those who share.
//! 2. An owner holds a target once. It never waits for itself.
//! 3. A lock that nobody waits for touches one shard and nothing else.
//! 4. A wait that would close a cycle does not begin. Waits begin one after the other, so one of those
//!    that close a cycle sees it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use femtobarn_catalog::{LockKind, LockTarget};

use super::cycle::{self, Link};

/// More than there are cores, so that two of them seldom meet.
const SHARDS: usize = 256;

/// A transaction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The session.
    pub session: u64,
    /// The transaction, as the session numbers it.
    pub number: u64,
}

/// What became of asking for a lock.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is held.
    Granted,
    /// It will be granted to the ticket.
    Waits,
    /// Somebody holds it, and there was to be no wait.
    Busy,
    /// Waiting would never end: who waits for what, from the one that asked round to itself.
    Deadlock(Vec<Link>),
    /// The owner holds it already, or waits for it.
    Twice,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// What.
    pub target: LockTarget,
    /// How.
    pub kind: LockKind,
    /// By whom.
    pub owner: Owner,
}

/// Somebody who waits; `T` is what was given when asking.
#[derive(Clone, Debug)]
pub struct Waiting<T> {
    /// Who.
    pub owner: Owner,
    /// How it wants the lock.
    pub kind: LockKind,
    /// What was given when asking.
    pub ticket: T,
}

/// The locks of one federation. `T` is a ticket, which comes back when a wait is over.
#[derive(Debug)]
pub struct Table<T> {
    hasher: RandomState,
    shards: Vec<Mutex<HashMap<LockTarget, Entry<T>>>>,
    /// What each owner that waits waits for.
    waits: Mutex<HashMap<Owner, Vec<LockTarget>>>,
}

#[derive(Debug)]
struct Entry<T> {
    holders: Vec<(Owner, LockKind)>,
    queue: VecDeque<Waiting<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Table { hasher: RandomState::new(), shards, waits: Mutex::default() }
    }
}

impl<T> Table<T> {
    /// Locks a target for an owner, or has it wait with the ticket.
    pub fn lock(&self, owner: Owner, target: LockTarget, kind: LockKind, ticket: T) -> Answer {
        match self.try_lock(owner, target, kind) {
            Answer::Busy => self.enqueue(owner, target, Waiting { owner, kind, ticket }),
            answer => answer,
        }
    }

    /// Locks a target for an owner, if it is free now.
    pub fn try_lock(&self, owner: Owner, target: LockTarget, kind: LockKind) -> Answer {
        let mut shard = self.shard(&target);
        let entry = shard.entry(target).or_insert_with(Entry::new);
        match entry.has(owner) {
            true => Answer::Twice,
            false if entry.queue.is_empty() && entry.is_free_for(kind) => {
                entry.holders.push((owner, kind));
                Answer::Granted
            }
            false => Answer::Busy,
        }
    }

    fn enqueue(&self, owner: Owner, target: LockTarget, waiting: Waiting<T>) -> Answer {
        let mut waits = lock(&self.waits);
        {
            let mut shard = self.shard(&target);
            let entry = shard.entry(target).or_insert_with(Entry::new);
            if entry.queue.is_empty() && entry.is_free_for(waiting.kind) {
                entry.holders.push((owner, waiting.kind));
                return Answer::Granted;
            }
            entry.queue.push_back(waiting);
        }
        waits.entry(owner).or_default().push(target);
        let blockers = |owner, target: &LockTarget| self.blockers(owner, target);
        let Some(cycle) = cycle::find(owner, target, &waits, blockers) else {
            return Answer::Waits;
        };
        // It is the last of the queue, so nobody stands behind it.
        let mut shard = self.shard(&target);
        if let Some(entry) = shard.get_mut(&target) {
            entry.queue.retain(|waiting| waiting.owner != owner);
        }
        forget(&mut waits, owner, &target);
        Answer::Deadlock(cycle)
    }

    /// Frees a lock, and returns those who got theirs by it.
    pub fn unlock(&self, owner: Owner, target: LockTarget) -> Vec<Waiting<T>> {
        self.change(target, |entry| entry.holders.retain(|(holder, _)| *holder != owner))
    }

    /// Ends a wait. It returns what it waited with, unless the wait was over already, and those who got
    /// theirs by it.
    pub fn give_up(
        &self,
        owner: Owner,
        target: LockTarget,
    ) -> (Option<Waiting<T>>, Vec<Waiting<T>>) {
        let mut gone = None;
        let granted = self.change(target, |entry| {
            let position = entry.queue.iter().position(|waiting| waiting.owner == owner);
            gone = position.and_then(|position| entry.queue.remove(position));
        });
        if gone.is_some() {
            forget(&mut lock(&self.waits), owner, &target);
        }
        (gone, granted)
    }

    fn change(&self, target: LockTarget, change: impl FnOnce(&mut Entry<T>)) -> Vec<Waiting<T>> {
        let granted = {
            let mut shard = self.shard(&target);
            let Some(entry) = shard.get_mut(&target) else { return Vec::new() };
            change(entry);
            let granted = entry.grant();
            if entry.holders.is_empty() && entry.queue.is_empty() {
                shard.remove(&target);
            }
            granted
        };
        if !granted.is_empty() {
            let mut waits = lock(&self.waits);
            granted.iter().for_each(|waiting| forget(&mut waits, waiting.owner, &target));
        }
        granted
    }

    /// One of those who hold a target.
    pub fn holder(&self, target: &LockTarget) -> Option<Owner> {
        let shard = self.shard(target);
        shard.get(target)?.holders.first().map(|(owner, _)| *owner)
    }

    /// All locks that are held, in the order of what is locked.
    pub fn held(&self) -> Vec<Held> {
        let mut held = Vec::new();
        for shard in &self.shards {
            for (target, entry) in lock(shard).iter() {
                let holders = entry.holders.iter();
                held.extend(holders.map(|(owner, kind)| Held {
                    target: *target,
                    kind: *kind,
                    owner: *owner,
                }));
            }
        }
        held.sort_by_key(|held| (held.target, held.owner.session, held.owner.number));
        held
    }

    /// All who wait, and for what.
    pub fn waiting(&self) -> Vec<(LockTarget, Waiting<T>)>
    where
        T: Clone,
    {
        let mut waiting = Vec::new();
        for shard in &self.shards {
            for (target, entry) in lock(shard).iter() {
                waiting.extend(entry.queue.iter().map(|one| (*target, one.clone())));
            }
        }
        waiting
    }

    /// Whom an owner that waits for a target waits for: those who hold it, and the one in front of it,
    /// who must have it before.
    fn blockers(&self, owner: Owner, target: &LockTarget) -> Vec<Owner> {
        let shard = self.shard(target);
        let Some(entry) = shard.get(target) else { return Vec::new() };
        let Some(position) = entry.queue.iter().position(|waiting| waiting.owner == owner) else {
            return Vec::new();
        };
        let kind = entry.queue[position].kind;
        let holders = entry.holders.iter().filter(|(_, held)| !can_share(*held, kind));
        let in_front = position.checked_sub(1).map(|before| entry.queue[before].owner);
        holders.map(|(holder, _)| *holder).chain(in_front).collect()
    }

    fn shard(&self, target: &LockTarget) -> MutexGuard<'_, HashMap<LockTarget, Entry<T>>> {
        lock(&self.shards[self.hasher.hash_one(target) as usize % SHARDS])
    }
}

impl<T> Entry<T> {
    fn new() -> Self {
        Entry { holders: Vec::new(), queue: VecDeque::new() }
    }

    fn has(&self, owner: Owner) -> bool {
        self.holders.iter().any(|(holder, _)| *holder == owner)
            || self.queue.iter().any(|waiting| waiting.owner == owner)
    }

    fn is_free_for(&self, kind: LockKind) -> bool {
        self.holders.iter().all(|(_, held)| can_share(*held, kind))
    }

    /// Lets those at the front of the queue in.
    fn grant(&mut self) -> Vec<Waiting<T>> {
        let mut granted = Vec::new();
        while self.queue.front().is_some_and(|first| self.is_free_for(first.kind)) {
            let Some(first) = self.queue.pop_front() else { break };
            self.holders.push((first.owner, first.kind));
            granted.push(first);
        }
        granted
    }
}

fn can_share(one: LockKind, other: LockKind) -> bool {
    (one, other) == (LockKind::Shared, LockKind::Shared)
}

fn forget(waits: &mut HashMap<Owner, Vec<LockTarget>>, owner: Owner, target: &LockTarget) {
    if let Some(targets) = waits.get_mut(&owner) {
        targets.retain(|one| one != target);
        if targets.is_empty() {
            waits.remove(&owner);
        }
    }
}

/// A panic elsewhere leaves the collections whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

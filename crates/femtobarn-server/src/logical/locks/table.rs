//! The table of locks in memory: holders, and queues of waiting requests.
//!
//! Invariants:
//! 1. Requests are granted in the order of arrival: none overtakes another, not even a shared one.
//! 2. An owner holds a target at most once, and never waits for itself.
//! 3. A lock without contention touches only one shard.
//! 4. A wait that would close a cycle does not begin. Waits begin one after the other, so the last wait of a cycle
//!    finds it.

use std::collections::{HashMap, VecDeque};

use femtobarn_catalog::{LockKind, LockTarget};
use parking_lot::Mutex;

use super::deadlock::{self, OwnerId, WaitEdge};
use super::shards::Shards;

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum LockAnswer {
    /// The owner holds the lock.
    Granted,
    /// The request is queued. A later unlock returns its ticket.
    Waits,
    /// The lock is not free, and the request was not to be queued.
    Busy,
    /// The wait would close this cycle, which begins with the request.
    Deadlock(Vec<WaitEdge>),
    /// The owner holds the lock already, or waits for it.
    Duplicate,
}

/// A held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The target.
    pub target: LockTarget,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Its holder.
    pub owner: OwnerId,
}

/// A request in a queue, with the ticket of its caller.
#[derive(Clone, Debug)]
pub struct QueuedRequest<T> {
    /// The owner.
    pub owner: OwnerId,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// The caller's ticket.
    pub ticket: T,
}

/// The locks of one federation. `T` is a caller's ticket, which is returned when the wait is over.
#[derive(Debug)]
pub struct SessionLockTable<T> {
    shards: Shards<LockTarget, Entry<T>>,
    /// The targets that each waiting owner waits for.
    waits: Mutex<HashMap<OwnerId, Vec<LockTarget>>>,
}

#[derive(Debug)]
struct Entry<T> {
    holders: Vec<(OwnerId, LockKind)>,
    queue: VecDeque<QueuedRequest<T>>,
}

impl<T> Default for SessionLockTable<T> {
    fn default() -> Self {
        SessionLockTable { shards: Shards::default(), waits: Mutex::default() }
    }
}

impl<T> SessionLockTable<T> {
    /// Locks a target for an owner, or queues the request with the ticket.
    pub fn lock(
        &self,
        owner: OwnerId,
        target: LockTarget,
        kind: LockKind,
        ticket: T,
    ) -> LockAnswer {
        match self.try_lock(owner, target, kind) {
            LockAnswer::Busy => self.enqueue(owner, target, QueuedRequest { owner, kind, ticket }),
            answer => answer,
        }
    }

    /// Locks a target for an owner, if it is free now.
    pub fn try_lock(&self, owner: OwnerId, target: LockTarget, kind: LockKind) -> LockAnswer {
        let mut shard = self.shards.of(&target);
        let entry = shard.entry(target).or_insert_with(Entry::new);
        if entry.has(owner) {
            return LockAnswer::Duplicate;
        }
        if !entry.queue.is_empty() || !entry.is_free_for(kind) {
            return LockAnswer::Busy;
        }
        entry.holders.push((owner, kind));
        LockAnswer::Granted
    }

    fn enqueue(&self, owner: OwnerId, target: LockTarget, waiting: QueuedRequest<T>) -> LockAnswer {
        let mut waits = self.waits.lock();
        {
            let mut shard = self.shards.of(&target);
            let entry = shard.entry(target).or_insert_with(Entry::new);
            if entry.queue.is_empty() && entry.is_free_for(waiting.kind) {
                entry.holders.push((owner, waiting.kind));
                return LockAnswer::Granted;
            }
            entry.queue.push_back(waiting);
        }
        waits.entry(owner).or_default().push(target);
        let blockers = |owner, target: &LockTarget| self.blockers(owner, target);
        let Some(cycle) = deadlock::find_cycle(owner, target, &waits, blockers) else {
            return LockAnswer::Waits;
        };
        // The request is the last of the queue, so removing it grants no other.
        let mut shard = self.shards.of(&target);
        if let Some(entry) = shard.get_mut(&target) {
            entry.queue.retain(|waiting| waiting.owner != owner);
        }
        forget(&mut waits, owner, &target);
        LockAnswer::Deadlock(cycle)
    }

    /// Frees a lock, and returns the requests that this grants.
    pub fn unlock(&self, owner: OwnerId, target: LockTarget) -> Vec<QueuedRequest<T>> {
        {
            let mut shard = self.shards.of(&target);
            let Some(entry) = shard.get_mut(&target) else { return Vec::new() };
            if entry.queue.is_empty() {
                entry.free(owner);
                if entry.holders.is_empty() {
                    shard.remove(&target);
                }
                return Vec::new();
            }
        }
        let free = |entry: &mut Entry<T>| {
            entry.free(owner);
            None
        };
        self.change_queue(target, free).1
    }

    /// Removes a request from its queue. Returns it, unless the wait was over already, and the requests that are
    /// granted by its removal.
    pub fn give_up(
        &self,
        owner: OwnerId,
        target: LockTarget,
    ) -> (Option<QueuedRequest<T>>, Vec<QueuedRequest<T>>) {
        self.change_queue(target, |entry| {
            let position = entry.queue.iter().position(|waiting| waiting.owner == owner)?;
            entry.queue.remove(position)
        })
    }

    /// Changes the entry of a target, and returns the request that `change` has removed, and those that are granted by it.
    /// They are forgotten as waits in the same step: a later one would forget a new wait of the same owner for the target.
    fn change_queue(
        &self,
        target: LockTarget,
        change: impl FnOnce(&mut Entry<T>) -> Option<QueuedRequest<T>>,
    ) -> (Option<QueuedRequest<T>>, Vec<QueuedRequest<T>>) {
        let mut waits = self.waits.lock();
        let mut shard = self.shards.of(&target);
        let Some(entry) = shard.get_mut(&target) else { return (None, Vec::new()) };
        let gone = change(entry);
        let granted = entry.grant();
        if entry.holders.is_empty() && entry.queue.is_empty() {
            shard.remove(&target);
        }
        for over in gone.iter().chain(&granted) {
            forget(&mut waits, over.owner, &target);
        }
        (gone, granted)
    }

    /// One holder of a lock; `None` if it is free.
    pub fn holder(&self, target: &LockTarget) -> Option<OwnerId> {
        let shard = self.shards.of(target);
        shard.get(target)?.holders.first().map(|(owner, _)| *owner)
    }

    /// All held locks, ordered by target.
    pub fn held(&self) -> Vec<TableEntry> {
        let mut held = Vec::new();
        for shard in self.shards.each() {
            for (target, entry) in shard.iter() {
                let holders = entry.holders.iter();
                held.extend(holders.map(|(owner, kind)| TableEntry {
                    target: *target,
                    kind: *kind,
                    owner: *owner,
                }));
            }
        }
        held.sort_by_key(|held| (held.target, held.owner.session, held.owner.number));
        held
    }

    /// All queued requests with their targets.
    pub fn waiting(&self) -> Vec<(LockTarget, QueuedRequest<T>)>
    where
        T: Clone,
    {
        let mut waiting = Vec::new();
        for shard in self.shards.each() {
            for (target, entry) in shard.iter() {
                waiting.extend(entry.queue.iter().map(|one| (*target, one.clone())));
            }
        }
        waiting
    }

    /// The owners that a queued request waits for: the holders of the target that it cannot share with, and the owner
    /// of the request in front of it, which is granted first.
    pub fn blockers(&self, owner: OwnerId, target: &LockTarget) -> Vec<OwnerId> {
        let shard = self.shards.of(target);
        let Some(entry) = shard.get(target) else { return Vec::new() };
        let Some(position) = entry.queue.iter().position(|waiting| waiting.owner == owner) else {
            return Vec::new();
        };
        let kind = entry.queue[position].kind;
        let holders = entry.holders.iter().filter(|(_, held)| !can_share(*held, kind));
        let in_front = position.checked_sub(1).map(|before| entry.queue[before].owner);
        holders.map(|(holder, _)| *holder).chain(in_front).collect()
    }
}

impl<T> Entry<T> {
    fn new() -> Self {
        Entry { holders: Vec::new(), queue: VecDeque::new() }
    }

    fn has(&self, owner: OwnerId) -> bool {
        self.holders.iter().any(|(holder, _)| *holder == owner)
            || self.queue.iter().any(|waiting| waiting.owner == owner)
    }

    fn free(&mut self, owner: OwnerId) {
        self.holders.retain(|(holder, _)| *holder != owner);
    }

    fn is_free_for(&self, kind: LockKind) -> bool {
        self.holders.iter().all(|(_, held)| can_share(*held, kind))
    }

    /// Grants requests from the front of the queue.
    fn grant(&mut self) -> Vec<QueuedRequest<T>> {
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

fn forget(waits: &mut HashMap<OwnerId, Vec<LockTarget>>, owner: OwnerId, target: &LockTarget) {
    if let Some(targets) = waits.get_mut(&owner) {
        targets.retain(|one| one != target);
        if targets.is_empty() {
            waits.remove(&owner);
        }
    }
}

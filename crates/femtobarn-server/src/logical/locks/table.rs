//! The table of locks in memory: holders, and queues of waiting requests.
//!
//! Invariants:
//! 1. Requests are granted in the order of arrival: none overtakes another, not even a shared one.
//! 2. An owner holds a target at most once, and never waits for itself.
//! 3. A lock without contention touches only one shard.
//! 4. A wait that would close a cycle does not begin. Waits begin one after the other, so the last wait of a cycle
//!    finds it.
//! 5. The first request of a queue cannot share with a holder, else it would be granted.

use std::collections::{HashMap, HashSet, VecDeque};

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

/// A queued request, what it is for, and the owners that it waits for.
#[derive(Debug)]
pub struct WaitingRequest<T> {
    /// The target.
    pub target: LockTarget,
    /// The request.
    pub request: QueuedRequest<T>,
    /// The holders that it cannot share with, and the owners of the requests that are granted and end before it.
    pub blockers: Vec<OwnerId>,
}

/// The locks of one federation. `T` is a caller's ticket, which is returned when the wait is over.
#[derive(Debug)]
pub struct SessionLockTable<T> {
    shards: Shards<LockTarget, Entry<T>>,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    /// The targets that each waiting owner waits for.
    targets: HashMap<OwnerId, Vec<LockTarget>>,
    /// The owners that wait for more than one target.
    several: HashSet<OwnerId>,
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
        waits.add(owner, target);
        let mut search = CycleSearch {
            shards: &self.shards,
            waits: &waits,
            places: HashMap::new(),
            reached: HashMap::new(),
        };
        let blockers = |owner, target: &LockTarget| search.blockers(owner, target);
        let Some(cycle) = deadlock::find_cycle(owner, target, &waits.targets, blockers) else {
            return LockAnswer::Waits;
        };
        // The request is still the last of the queue, so removing it grants no other.
        let mut shard = self.shards.of(&target);
        if let Some(entry) = shard.get_mut(&target) {
            entry.queue.pop_back();
        }
        waits.remove(owner, &target);
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
            let place = entry.place_of(owner)?;
            entry.queue.remove(place)
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
            waits.remove(over.owner, &target);
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

    /// All queued requests.
    pub fn waiting(&self) -> Vec<WaitingRequest<T>>
    where
        T: Clone,
    {
        let mut waiting = Vec::new();
        for shard in self.shards.each() {
            for (target, entry) in shard.iter() {
                let blockers = entry.blockers();
                waiting.extend(entry.queue.iter().zip(blockers).map(|(request, blockers)| {
                    WaitingRequest { target: *target, request: request.clone(), blockers }
                }));
            }
        }
        waiting
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

    /// The place of an owner's request in the queue. The search begins at the end, where new requests are.
    fn place_of(&self, owner: OwnerId) -> Option<usize> {
        self.queue.iter().rposition(|waiting| waiting.owner == owner)
    }

    /// The owners that each queued request waits for: holders that it cannot share with; of the requests in front of it, a
    /// shared one waits for the last exclusive one, and an exclusive one for the shared ones after that, or for it.
    fn blockers(&self) -> Vec<Vec<OwnerId>> {
        let (mut exclusive, mut shared) = (None, vec![]);
        let of = |waiting: &QueuedRequest<T>| {
            let mut blockers: Vec<_> = self.holders_against(waiting.kind).collect();
            if waiting.kind == LockKind::Shared {
                blockers.extend(exclusive);
                shared.push(waiting.owner);
            } else {
                let before = exclusive.replace(waiting.owner).filter(|_| shared.is_empty());
                blockers.extend(before.into_iter().chain(shared.drain(..)));
            }
            blockers
        };
        self.queue.iter().map(of).collect()
    }

    /// The place before which all requests have to end, so that the one at `place` is granted: shared ones wait together.
    fn end_of_blockers(&self, mut place: usize) -> usize {
        let is_shared = |place: usize| self.queue[place].kind == LockKind::Shared;
        while place > 0 && is_shared(place) && is_shared(place - 1) {
            place -= 1;
        }
        place
    }

    fn holders_against(&self, kind: LockKind) -> impl Iterator<Item = OwnerId> {
        let holders = self.holders.iter().filter(move |(_, held)| !can_share(*held, kind));
        holders.map(|(holder, _)| *holder)
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

impl Waits {
    fn add(&mut self, owner: OwnerId, target: LockTarget) {
        let targets = self.targets.entry(owner).or_default();
        targets.push(target);
        if targets.len() == 2 {
            self.several.insert(owner);
        }
    }

    fn remove(&mut self, owner: OwnerId, target: &LockTarget) {
        let Some(targets) = self.targets.get_mut(&owner) else { return };
        targets.retain(|one| one != target);
        if targets.len() == 1 {
            self.several.remove(&owner);
        }
        if targets.is_empty() {
            self.targets.remove(&owner);
        }
    }
}

/// A search for a cycle through queues in which most requests cannot be a part of one: an owner that waits for nothing
/// else leads only to those in front of it, and to the holders. So a wait costs as much in a long queue as in a short
/// one, unless many owners wait for several targets at once, or many that hold one wait in the queue of another.
struct CycleSearch<'a, T> {
    shards: &'a Shards<LockTarget, Entry<T>>,
    waits: &'a Waits,
    /// The places in queues of the requests that were returned.
    places: HashMap<(OwnerId, LockTarget), usize>,
    /// The places before which a queue has nothing more to return.
    reached: HashMap<LockTarget, usize>,
}

impl<T> CycleSearch<'_, T> {
    /// The owners that a queued request waits for, and that may be a part of a cycle.
    fn blockers(&mut self, owner: OwnerId, target: &LockTarget) -> Vec<OwnerId> {
        let shard = self.shards.of(target);
        let Some(entry) = shard.get(target) else { return Vec::new() };
        let known = self.places.get(&(owner, *target)).copied();
        let Some(place) = known.or_else(|| entry.place_of(owner)) else { return Vec::new() };
        let mut blockers: Vec<OwnerId> = entry.holders_against(entry.queue[place].kind).collect();
        let from = self.reached.get(target).copied().unwrap_or(0);
        let end = entry.end_of_blockers(place);
        let in_front = entry.queue.iter().enumerate().take(end).skip(from);
        // If the holders block only the first of the queue, the others wait for them because of it.
        let is_indirect = blockers.is_empty();
        for (place, QueuedRequest { owner, .. }) in in_front {
            if is_indirect && place == 0 || self.waits.several.contains(owner) {
                blockers.push(*owner);
                self.places.insert((*owner, *target), place);
            } else if self.waits.several.is_empty() {
                break;
            }
        }
        self.reached.insert(*target, end.max(from));
        blockers
    }
}

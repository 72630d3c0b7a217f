//! The order of recalls.
//!
//! A tape is mounted for the request that is due first, and then gives all files that are wanted from it, in the order
//! of their positions. Which request is due first follows from start-time fair queueing: each user's requests are
//! stamped one after the other with the bytes asked for, beginning at the stamp that is being served, so that a user
//! who asks for a million files does not hold up one who asks for one. A user's requests of a higher priority are
//! stamped as if the requests of lower priorities did not exist.
//!
//! Invariants:
//! 1. A database is queued once, however many users want it, at the earliest of their turns.
//! 2. Adding and taking cost O(log n).
//! 3. The cost of looking at the first recalls does not depend on the number of others.
//! 4. A tape leaves its drive after [`MOUNTED_BYTES_MAX`] if another one waits, so no request waits for ever.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use femtobarn_catalog::DatabaseId;

/// Bytes that a tape gives before it must leave its drive to another tape that waits: half an hour of a drive.
const MOUNTED_BYTES_MAX: u64 = 500_000_000_000;

/// A unit to mount for recalls: a tape of a store, or one object of a store without tapes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tape {
    /// The name of the store.
    pub store: String,
    /// The name of the tape, or of the object if the store has no tapes.
    pub name: String,
    /// Whether it stands for one object of a store without tapes.
    pub is_object: bool,
}

/// A request for a database on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// The database.
    pub database: DatabaseId,
    /// Its bytes.
    pub bytes: u64,
    /// The tape that has its copy.
    pub tape: Tape,
    /// The position of the copy on the tape.
    pub position: u64,
    /// The user who wants it.
    pub user: String,
    /// Its priority among that user's requests: at most 3.
    pub priority: u8,
}

/// The highest priority.
pub(super) const PRIORITY_MAX: u8 = 3;

/// The recalls that wait, by tape.
#[derive(Debug, Default)]
pub struct RecallQueue {
    tapes: HashMap<Tape, Waiting>,
    /// The tapes that are not mounted, by the stamp of the request that is due first.
    due: BTreeSet<(u64, Tape)>,
    /// The tapes that are mounted.
    mounted: BTreeSet<Tape>,
    /// The tape that left its drive last, until another one is mounted.
    released: Option<Tape>,
    known: HashMap<DatabaseId, (Tape, u64)>,
    /// The stamp after each user's last request of each priority or a higher one; only of users that are ahead of `now`.
    users: HashMap<String, [u64; PRIORITY_MAX as usize + 1]>,
    /// The stamp of the request for which a tape was mounted last.
    now: u64,
    bytes: u64,
}

/// The recalls that wait for one tape.
#[derive(Debug, Default)]
struct Waiting {
    by_position: BTreeMap<(u64, DatabaseId), (u64, Recall)>,
    stamps: BTreeSet<(u64, DatabaseId)>,
    /// The position at which the tape continues, also after it left its drive: requests added before it do not delay
    /// those behind it.
    position: u64,
    /// The bytes that the mounted tape has given; `None` if it is not mounted.
    given: Option<u64>,
}

impl RecallQueue {
    /// Queues a recall; false if its database is queued already, whose turn may come sooner now.
    pub fn add(&mut self, recall: Recall) -> bool {
        if self.known.contains_key(&recall.database) {
            self.hasten(recall);
            return false;
        }
        let stamp = self.stamp(&recall);
        let stamps = self.users.entry(recall.user.clone()).or_default();
        for last in &mut stamps[..=usize::from(recall.priority.min(PRIORITY_MAX))] {
            // A file without bytes takes a turn, too.
            *last = (*last).max(self.now) + recall.bytes.max(1);
        }
        self.bytes += recall.bytes;
        self.known.insert(recall.database, (recall.tape.clone(), recall.position));
        let tape = recall.tape.clone();
        self.change(&tape, |waiting| {
            waiting.stamps.insert((stamp, recall.database));
            waiting.by_position.insert((recall.position, recall.database), (stamp, recall));
        });
        true
    }

    /// Moves a queued database to the turn of another user, or another priority, if that is sooner.
    pub fn hasten(&mut self, recall: Recall) {
        if self.stamp_of(recall.database).is_some_and(|before| self.stamp(&recall) < before) {
            self.remove(recall.database);
            self.add(recall);
        }
    }

    /// The stamp that a recall gets.
    fn stamp(&self, recall: &Recall) -> u64 {
        let stamps = self.users.get(&recall.user);
        let last = stamps.map_or(0, |of| of[usize::from(recall.priority.min(PRIORITY_MAX))]);
        last.max(self.now)
    }

    fn stamp_of(&self, database: DatabaseId) -> Option<u64> {
        let (tape, position) = self.known.get(&database)?;
        let waiting = self.tapes.get(tape)?;
        waiting.by_position.get(&(*position, database)).map(|(stamp, _)| *stamp)
    }

    /// Mounts the tape of the request that is due first. A tape that has just left its drive for another one is mounted
    /// only if no other waits. `None` if nothing waits for a tape that is not mounted.
    pub fn mount(&mut self) -> Option<Tape> {
        let released = self.released.take();
        let other = self.due.iter().find(|(_, tape)| Some(tape) != released.as_ref());
        let (stamp, tape) = other.or_else(|| self.due.first())?.clone();
        self.now = self.now.max(stamp);
        if self.users.len() > self.known.len() {
            let now = self.now;
            self.users.retain(|_, stamps| stamps[0] > now);
        }
        self.change(&tape, |waiting| waiting.given = Some(0));
        Some(tape)
    }

    /// The next recall from a mounted tape. `None` if there is none, or if another tape gets the drive: then this tape
    /// is no longer mounted.
    pub fn next(&mut self, tape: &Tape) -> Option<Recall> {
        let others_wait = !self.due.is_empty();
        let next = self.change(tape, |waiting| {
            let given = waiting.given?;
            let is_over = others_wait && given >= MOUNTED_BYTES_MAX;
            let ahead = waiting.by_position.range((waiting.position, DatabaseId(0))..).next();
            // At the end of the tape: back to its beginning.
            let found = ahead.or_else(|| waiting.by_position.first_key_value());
            let Some((&place, _)) = found.filter(|_| !is_over) else {
                waiting.given = None;
                return None;
            };
            let (stamp, recall) = waiting.by_position.remove(&place)?;
            waiting.stamps.remove(&(stamp, recall.database));
            waiting.position = place.0;
            waiting.given = Some(given.saturating_add(recall.bytes));
            Some(recall)
        });
        let Some(next) = next else {
            self.released = Some(tape.clone());
            return None;
        };
        self.known.remove(&next.database);
        self.bytes -= next.bytes;
        Some(next)
    }

    /// Removes a recall; false if it does not wait.
    pub fn remove(&mut self, database: DatabaseId) -> bool {
        let Some((tape, position)) = self.known.remove(&database) else { return false };
        let removed = self.change(&tape, |waiting| {
            let (stamp, recall) = waiting.by_position.remove(&(position, database))?;
            waiting.stamps.remove(&(stamp, database));
            Some(recall)
        });
        self.bytes -= removed.map_or(0, |recall| recall.bytes);
        true
    }

    /// The number of recalls that wait, and their bytes.
    pub fn waiting(&self) -> (usize, u64) {
        (self.known.len(), self.bytes)
    }

    /// The number of mounts until everything that waits is staged, including a request for this tape.
    pub fn mounts_with(&self, tape: &Tape) -> usize {
        self.due.len() + usize::from(!self.tapes.contains_key(tape))
    }

    /// The recalls that wait, in the order in which one drive for each mounted tape, and then one for all other tapes,
    /// would take them if no further requests came.
    pub fn in_order(&self) -> impl Iterator<Item = &Recall> {
        let due = self.due.iter().map(|(_, tape)| tape);
        let tapes = self.mounted.iter().chain(due).filter_map(|tape| self.tapes.get(tape));
        tapes.flat_map(Waiting::in_order)
    }

    /// The tapes that are mounted; objects of stores without tapes, too.
    pub fn mounted(&self) -> impl Iterator<Item = &Tape> {
        self.mounted.iter()
    }

    /// Changes the recalls that wait for a tape, and keeps `due` and `mounted` in step.
    fn change<T>(&mut self, tape: &Tape, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let waiting = self.tapes.entry(tape.clone()).or_default();
        if let Some(stamp) = waiting.due() {
            self.due.remove(&(stamp, tape.clone()));
        }
        let changed = change(waiting);
        if waiting.given.is_none() {
            self.mounted.remove(tape);
        } else if !self.mounted.contains(tape) {
            self.mounted.insert(tape.clone());
        }
        match waiting.due() {
            Some(stamp) => drop(self.due.insert((stamp, tape.clone()))),
            None if waiting.by_position.is_empty() && waiting.given.is_none() => {
                self.tapes.remove(tape);
            }
            None => {}
        }
        changed
    }
}

impl Waiting {
    /// The stamp of the request that is due first; `None` while the tape is mounted.
    fn due(&self) -> Option<u64> {
        if self.given.is_some() { None } else { self.stamps.first().map(|(stamp, _)| *stamp) }
    }

    /// The recalls ahead of the tape's position, then those before it.
    fn in_order(&self) -> impl Iterator<Item = &Recall> {
        let here = (self.position, DatabaseId(0));
        let ahead = self.by_position.range(here..);
        ahead.chain(self.by_position.range(..here)).map(|(_, (_, recall))| recall)
    }
}

#[cfg(test)]
mod tests {
    use femtobarn_catalog::clock;

    use super::*;

    fn tape_called(name: &str) -> Tape {
        Tape { store: "tape".to_owned(), name: name.to_owned(), is_object: false }
    }

    fn recall(database: u32, tape: &str, position: u64, user: &str, bytes: u64) -> Recall {
        let (database, tape) = (DatabaseId(database), tape_called(tape));
        Recall { database, bytes, tape, position, user: user.to_owned(), priority: 0 }
    }

    /// Empties the queue with one drive; returns the databases in order, and how often a tape was mounted.
    fn emptied(queue: &mut RecallQueue) -> (Vec<u32>, usize) {
        let (mut order, mut mounts) = (vec![], 0);
        while let Some(tape) = queue.mount() {
            mounts += 1;
            while let Some(next) = queue.next(&tape) {
                order.push(next.database.0);
            }
        }
        (order, mounts)
    }

    #[test]
    fn a_tape_gives_all_that_is_wanted_in_the_order_of_its_positions() {
        let mut queue = RecallQueue::default();
        for (database, tape, position) in [(1, "A", 30), (2, "B", 5), (3, "A", 10), (4, "A", 20)] {
            assert!(queue.add(recall(database, tape, position, "ann", 10)));
        }
        assert!(!queue.add(recall(3, "A", 10, "bob", 10)), "queued already");
        assert_eq!(queue.waiting(), (4, 40));
        let mounts = |name| queue.mounts_with(&tape_called(name));
        assert_eq!((mounts("A"), mounts("C")), (2, 3));
        assert_eq!(emptied(&mut queue), (vec![3, 4, 1, 2], 2));
        assert_eq!(queue.waiting(), (0, 0));
    }

    #[test]
    fn one_file_does_not_wait_for_many_of_another_user() {
        let mut queue = RecallQueue::default();
        for number in 0..100_000 {
            let tape = format!("T{}", number % 50);
            assert!(queue.add(recall(number, &tape, u64::from(number), "many", 1 << 30)));
        }
        let first = queue.mount().unwrap();
        assert!(queue.next(&first).is_some());
        queue.add(recall(2_000_000, "lone", 0, "one", 1 << 30));
        let second = queue.mount().unwrap();
        assert_eq!(second.name, "lone");
    }

    #[test]
    fn a_tape_that_gave_much_leaves_its_drive_to_another() {
        let mut queue = RecallQueue::default();
        for number in 0..3 {
            queue.add(recall(number, "A", u64::from(number), "ann", MOUNTED_BYTES_MAX));
        }
        queue.add(recall(9, "B", 0, "ann", 1));
        let (order, mounts) = emptied(&mut queue);
        assert_eq!((order, mounts), (vec![0, 9, 1, 2], 3));
    }

    #[test]
    fn later_recalls_before_the_head_do_not_delay_those_behind_it() {
        let mut queue = RecallQueue::default();
        let in_front =
            |number| recall(number, "A", 100 - u64::from(number), "ann", MOUNTED_BYTES_MAX);
        queue.add(in_front(0));
        queue.add(recall(9, "A", 9_000, "ann", MOUNTED_BYTES_MAX));
        let mut order = vec![];
        for round in 1..=3 {
            queue.add(in_front(round));
            queue.add(recall(100 + round, "B", 0, "bob", 1));
            for _ in 0..2 {
                let tape = queue.mount().unwrap();
                order.extend(queue.next(&tape).map(|next| next.database.0));
                assert_eq!(queue.next(&tape), None, "another tape waits");
            }
        }
        assert!(order.contains(&9), "{order:?}");
    }

    #[test]
    fn recalls_added_behind_the_head_are_given_after_the_end_of_the_tape() {
        let mut queue = RecallQueue::default();
        queue.add(recall(1, "A", 10, "ann", 1));
        queue.add(recall(2, "A", 20, "ann", 1));
        let tape = queue.mount().unwrap();
        assert_eq!(queue.next(&tape).unwrap().database, DatabaseId(1));
        queue.add(recall(3, "A", 5, "bob", 1));
        assert_eq!(queue.next(&tape).unwrap().database, DatabaseId(2));
        assert_eq!(queue.next(&tape).unwrap().database, DatabaseId(3));
        assert_eq!(queue.next(&tape), None);
        assert!(queue.mount().is_none());
    }

    #[test]
    fn the_first_of_many_recalls_are_listed_in_order_without_delay() {
        let mut queue = RecallQueue::default();
        for number in 0..200_000 {
            let tape = format!("T{:04}", number % 1000);
            queue.add(recall(number, &tape, u64::from(200_000 - number), "many", 1));
        }
        let tape = queue.mount().unwrap();
        let first = queue.next(&tape).unwrap();
        queue.add(recall(2_000_000, "T0000", 0, "one", 1));
        let began = clock::now();
        for _ in 0..1000 {
            assert_eq!(queue.waiting(), (200_000, 200_000));
            assert_eq!(queue.mounted().collect::<Vec<_>>(), [&tape]);
            assert_eq!(queue.in_order().take(100).count(), 100);
        }
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        let listed: Vec<Recall> = queue.in_order().take(300).cloned().collect();
        assert_eq!(
            (first.database, listed[0].database),
            (DatabaseId(199_000), DatabaseId(198_000))
        );
        assert_eq!(listed[199].database, DatabaseId(2_000_000), "it is behind the head");
        for recall in &listed[..200] {
            assert_eq!(queue.next(&tape).as_ref(), Some(recall));
        }
        assert_eq!((queue.next(&tape), queue.mounted().count()), (None, 0));
        let second = queue.mount().unwrap();
        assert_eq!(queue.next(&second).as_ref(), Some(&listed[200]));
    }

    #[test]
    fn priorities_order_the_recalls_of_one_user() {
        let mut queue = RecallQueue::default();
        let urgent = |it: Recall| Recall { priority: 2, ..it };
        for number in 0..4 {
            queue.add(recall(number, &format!("A{number}"), 0, "ann", 10));
            queue.add(recall(100 + number, &format!("B{number}"), 0, "bob", 10));
        }
        queue.add(urgent(recall(4, "A4", 0, "ann", 10)));
        assert!(
            !queue.add(urgent(recall(3, "A3", 0, "ann", 10))),
            "queued already, and sooner now"
        );
        assert!(!queue.add(recall(2, "A2", 0, "ann", 10)), "its turn is not later");
        let (order, _) = emptied(&mut queue);
        let place = |database: u32| order.iter().position(|it| *it == database).unwrap();
        assert!(place(4) < place(1) && place(3) < place(2), "{order:?}");
        assert!(
            place(100) < 3 && place(101) < 6,
            "the other user's turns come as before: {order:?}"
        );
        assert_eq!(order.len(), 9);
    }

    #[test]
    fn a_database_that_two_users_want_is_staged_at_the_earlier_turn() {
        let mut queue = RecallQueue::default();
        for number in 0..100 {
            queue.add(recall(number, &format!("A{number}"), 0, "ann", 10));
        }
        assert!(!queue.add(recall(99, "A99", 0, "bob", 10)));
        let (order, _) = emptied(&mut queue);
        assert!(order[..2].contains(&99), "{order:?}");
        assert_eq!((order.len(), queue.waiting()), (100, (0, 0)));
    }

    #[test]
    fn a_removed_recall_is_not_given() {
        let mut queue = RecallQueue::default();
        queue.add(recall(1, "A", 10, "ann", 7));
        queue.add(recall(2, "A", 20, "ann", 8));
        assert!(queue.remove(DatabaseId(1)));
        assert!(!queue.remove(DatabaseId(1)));
        assert_eq!(queue.waiting(), (1, 8));
        assert_eq!(emptied(&mut queue), (vec![2], 1));
    }

    #[test]
    fn grouping_by_tape_takes_a_tenth_of_the_mounts() {
        let mut queue = RecallQueue::default();
        let mut first_come = (0, None);
        // A permutation: neighbours in time lie on other tapes.
        for number in 0..10_000_u32 {
            let file = number.wrapping_mul(7919) % 10_000;
            let (tape, user) = (file % 50, file % 7);
            queue.add(recall(file, &format!("T{tape}"), u64::from(file), &format!("u{user}"), 1));
            if first_come.1 != Some(tape) {
                first_come = (first_come.0 + 1, Some(tape));
            }
        }
        let (order, mounts) = emptied(&mut queue);
        assert_eq!(order.len(), 10_000);
        assert!(mounts * 10 <= first_come.0, "{mounts} mounts for {}", first_come.0);
    }
}

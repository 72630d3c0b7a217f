//! The rows that the last changes of the catalogue touched: one page in `locks/recent`, a file that all processes map.
//!
//! ```text
//! word 0          1..7         7          8         9..9+256
//!      +----------+------------+----------+---------+----------------------------+
//!      | checksum | log's      | newest   | changes | what each of the last 256  |    8 bytes each, in the
//!      |          | state      | commit   | so far  | touched, change n at n%256 |    order of the host
//!      +----------+------------+----------+---------+----------------------------+
//! ```
//!
//! Changes are counted. The rows that a change touched are a set of bits: a container sets one of 63, and any other row
//! sets the last bit. A process that has rows as of change `n` in memory thus sees which of them are still valid, and
//! asks the catalogue only for the others.
//!
//! Invariants:
//! 1. The page is valid only while its state of the log is the log's present one. So a change that is not on the page,
//!    because its process was killed, or the program does not know this page, makes it invalid.
//! 2. The holder of the turn to commit writes it. If the page did not have the log's state before its change, it skips
//!    257 counts, one more than the page has: the rows touched in between are unknown.
//! 3. A page whose checksum differs is being written, and is invalid.

use std::path::Path;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use super::shared_numbers::SharedNumbers;
use crate::error::Result;
use crate::ids::{ContainerId, Csn, DatabaseId};

/// A state of the catalogue's log, which differs after each change.
pub(crate) type LogState = [u64; LOG_STATE_WORDS];
pub(crate) const LOG_STATE_WORDS: usize = 6;

const FILE: &str = "recent";
/// Changes on the page.
const CHANGES: usize = 256;
const HEAD: usize = 1 + LOG_STATE_WORDS;
const COUNT: usize = HEAD + 1;
const FIRST: usize = COUNT + 1;
const WORDS: usize = FIRST + CHANGES;

/// The set of rows that a change touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TouchedRows(u64);

/// The page, for several threads.
#[derive(Debug)]
pub(crate) struct RecentChanges {
    numbers: SharedNumbers,
}

/// The page at one moment.
pub(crate) struct RecentPage {
    words: [u64; WORDS],
}

impl TouchedRows {
    /// All rows; for a change whose rows are unknown.
    pub(crate) const ALL: TouchedRows = TouchedRows(u64::MAX);
    /// Everything but the versions of containers.
    pub(crate) const STRUCTURE: TouchedRows = TouchedRows(1 << 63);

    /// New versions of a container.
    pub(crate) fn container(database: DatabaseId, container: ContainerId) -> Self {
        let number = (u64::from(database.0) << 32 | u64::from(container.0)).wrapping_add(1);
        // The upper bits of such a product differ for neighbouring numbers, too.
        TouchedRows(1 << ((number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 63))
    }

    /// The inverse of [`number`](Self::number).
    pub(crate) fn of_number(number: i64) -> Self {
        TouchedRows(number.cast_unsigned())
    }

    /// A number that means the same in all releases.
    pub(crate) fn number(self) -> i64 {
        self.0.cast_signed()
    }

    pub(crate) fn and(self, other: Self) -> Self {
        TouchedRows(self.0 | other.0)
    }

    /// Whether the two may have something in common.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl RecentChanges {
    /// Opens the page, to write it.
    pub(crate) fn open(locks: &Path) -> Result<Self> {
        Ok(RecentChanges { numbers: SharedNumbers::open(&locks.join(FILE), 8 * WORDS)? })
    }

    /// Opens the page to read it, if it exists.
    pub(crate) fn open_if_there(locks: &Path) -> Option<Self> {
        let numbers = SharedNumbers::open_to_read(&locks.join(FILE), 8 * WORDS)?;
        Some(RecentChanges { numbers })
    }

    /// The page, if it belongs to this state of the log.
    pub(crate) fn page(&self, state: &LogState) -> Option<RecentPage> {
        let page = self.read()?;
        (page.words[1..HEAD] == state[..]).then_some(page)
    }

    /// Adds changes that led from one state of the log to another; `head` is the newest commit, if known. Returns the
    /// new page, and the count of changes before these. The caller has the turn to commit.
    pub(crate) fn add(
        &self,
        (before, after): (&LogState, &LogState),
        head: Option<Csn>,
        changes: &[TouchedRows],
    ) -> (RecentPage, u64) {
        let mut page = self.read().unwrap_or_else(RecentPage::new);
        let is_next = page.words[1..HEAD] == before[..];
        if !is_next {
            page.words[COUNT] = page.words[COUNT].wrapping_add(CHANGES as u64 + 1);
        }
        let first = page.words[COUNT];
        for change in changes {
            page.words[FIRST + (page.words[COUNT] % CHANGES as u64) as usize] = change.0;
            page.words[COUNT] = page.words[COUNT].wrapping_add(1);
        }
        page.words[1..HEAD].copy_from_slice(after);
        page.words[HEAD] = head.unwrap_or(Csn::ZERO).0;
        page.words[0] = page.checksum();
        self.store(&page);
        (page, first)
    }

    fn store(&self, page: &RecentPage) {
        for (into, word) in self.numbers.u64s().iter().zip(&page.words) {
            into.store(*word, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Option<RecentPage> {
        let mut words = [0; WORDS];
        for (word, from) in words.iter_mut().zip(self.numbers.u64s()) {
            *word = from.load(Ordering::Relaxed);
        }
        let page = RecentPage { words };
        (page.words[0] == page.checksum()).then_some(page)
    }
}

impl RecentPage {
    /// A page without changes. Its count is random, and so far from the count of any earlier page.
    fn new() -> Self {
        let mut words = [0; WORDS];
        words[COUNT] = Uuid::new_v4().as_u64_pair().0 >> 1;
        RecentPage { words }
    }

    /// The state of the log that the page belongs to.
    pub(crate) fn state(&self) -> LogState {
        self.words[1..HEAD].try_into().unwrap_or_default()
    }

    /// Changes so far.
    pub(crate) fn count(&self) -> u64 {
        self.words[COUNT]
    }

    /// The newest commit, if known.
    pub(crate) fn head(&self) -> Option<Csn> {
        Some(Csn(self.words[HEAD])).filter(|head| *head > Csn::ZERO)
    }

    /// The rows that the changes from `count` up to `until` touched.
    pub(crate) fn touched(&self, count: u64, until: u64) -> TouchedRows {
        if count > until || until > self.count() || self.count() - count > CHANGES as u64 {
            return TouchedRows::ALL;
        }
        let change = |n: u64| TouchedRows(self.words[FIRST + (n % CHANGES as u64) as usize]);
        (count..until).map(change).fold(TouchedRows::default(), TouchedRows::and)
    }

    fn checksum(&self) -> u64 {
        let words = self.words[1..].iter();
        words.fold(0x243f_6a88_85a3_08d3, |sum: u64, word| {
            (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_changes_may_overflow() {
        let folder = tempfile::tempdir().unwrap();
        let recent = RecentChanges::open(folder.path()).unwrap();
        let mut page = RecentPage::new();
        page.words[COUNT] = u64::MAX;
        page.words[0] = page.checksum();
        recent.store(&page);
        for before in [1, 2] {
            let states = (&[before; LOG_STATE_WORDS], &[before + 1; LOG_STATE_WORDS]);
            recent.add(states, None, &[TouchedRows::ALL]);
        }
    }
}

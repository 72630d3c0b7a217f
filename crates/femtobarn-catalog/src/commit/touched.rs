//! The rows that a commit touched, as the one number in the commit's row in PostgreSQL.

use super::Commit;
use crate::ids::{ContainerId, DatabaseId};
use crate::locks::TouchedRows;

/// The rows that a commit touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitTouch {
    /// Only those of a container, which got a new version.
    Container(DatabaseId, ContainerId),
    /// A set that contains them.
    Rows(TouchedRows),
}

impl CommitTouch {
    pub(crate) fn of(commit: &Commit) -> Self {
        let touched = commit.touched();
        match commit.versions[..] {
            [one] if touched != TouchedRows::ALL => {
                CommitTouch::Container(one.database, one.container)
            }
            _ => CommitTouch::Rows(touched),
        }
    }

    /// The number, which means the same in all releases. The number of one container has the bit
    /// [`TouchedRows::STRUCTURE`], but not all bits, as no set of rows does; so a release that knows only sets treats
    /// it as all rows.
    pub(crate) fn number(self) -> i64 {
        let CommitTouch::Container(database, container) = self else { return self.rows().number() };
        let key = u64::from(database.0) << 32 | u64::from(container.0);
        let number = (TouchedRows::STRUCTURE.number() | key.cast_signed(), key >> 63);
        match number {
            (number, 0) if number != TouchedRows::ALL.number() => number,
            _ => self.rows().number(),
        }
    }

    /// Reads a number that [`number`](Self::number) has returned.
    pub(crate) fn of_number(number: i64) -> Self {
        let rows = TouchedRows::of_number(number);
        if rows == TouchedRows::ALL || !rows.meets(TouchedRows::STRUCTURE) {
            return CommitTouch::Rows(rows);
        }
        let key = (number ^ TouchedRows::STRUCTURE.number()).cast_unsigned();
        CommitTouch::Container(DatabaseId((key >> 32) as u32), ContainerId(key as u32))
    }

    /// The rows, as a set.
    fn rows(self) -> TouchedRows {
        match self {
            CommitTouch::Container(database, container) => {
                TouchedRows::container(database, container)
            }
            CommitTouch::Rows(rows) => rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touch_is_read_back_from_its_number() {
        let last = u32::MAX >> 1;
        let one = |database, container| {
            CommitTouch::Container(DatabaseId(database), ContainerId(container))
        };
        for touch in [one(0, 0), one(1, 2), one(last, 7), one(7, u32::MAX), one(last, u32::MAX - 1)]
        {
            assert_eq!(CommitTouch::of_number(touch.number()), touch);
            let as_set = TouchedRows::of_number(touch.number());
            assert!(as_set.meets(TouchedRows::STRUCTURE), "as of a release that knows only sets");
        }
        for touch in [one(last, u32::MAX), one(last + 1, 0), one(u32::MAX, u32::MAX)] {
            let rows = CommitTouch::Rows(touch.rows());
            assert_eq!(CommitTouch::of_number(touch.number()), rows, "there is no number for it");
        }
        for rows in [TouchedRows::ALL, TouchedRows::default(), one(1, 2).rows()] {
            let rows = CommitTouch::Rows(rows);
            assert_eq!(CommitTouch::of_number(rows.number()), rows);
        }
    }
}

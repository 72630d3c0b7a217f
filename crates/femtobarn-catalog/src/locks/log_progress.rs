//! How far the catalogue's log is durable: three numbers in `locks/commit`, and the lock of the syncing process.
//!
//! ```text
//! byte 192        208        224        240
//!      +----------+----------+----------+
//!      | written  | durable  | torn     |    each a number and its complement, little-endian
//!      +----------+----------+----------+
//! ```
//!
//! Changes of the catalogue are numbered in sequence. `written` is the newest change in the log; the holder of the
//! turn to commit writes it. A sync of the log that begins afterwards makes the change durable. `durable` is the
//! newest change known to be durable, and `torn` is 1 if a sync has failed since the log was last known to be good;
//! the holder of the sync lock writes both.
//!
//! Invariants:
//! 1. `durable` never exceeds what is durable, even after a loss of power: a new number is greater than both.
//! 2. A number that differs from its complement is being written, and reads as 0, which claims nothing.

use std::path::Path;

use super::commit_turn::COMMIT_FILE;
use super::file::{LockFile, LockKind, SLOT_BYTES, Span};
use crate::error::Result;

const SYNC: u64 = 2;
const NUMBERS_AT: u64 = 3 * SLOT_BYTES;
const NUMBER_BYTES: usize = 16;
const WRITTEN: u64 = 0;
const DURABLE: u64 = 1;
const TORN: u64 = 2;

/// The numbers in their file, for one thread at a time.
#[derive(Debug)]
pub(crate) struct LogProgress {
    file: LockFile,
}

/// The numbers at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogNumbers {
    pub(crate) written: u64,
    pub(crate) durable: u64,
    pub(crate) is_torn: bool,
}

impl LogProgress {
    pub(crate) fn open(locks: &Path) -> Result<Self> {
        Ok(LogProgress { file: LockFile::open(&locks.join(COMMIT_FILE))? })
    }

    pub(crate) fn numbers(&self) -> Result<LogNumbers> {
        let mut bytes = [0; 3 * NUMBER_BYTES];
        self.file.read_at(&mut bytes, NUMBERS_AT)?;
        let number = |at: u64| decode(&bytes[at as usize * NUMBER_BYTES..][..NUMBER_BYTES]);
        Ok(LogNumbers {
            written: number(WRITTEN),
            durable: number(DURABLE),
            is_torn: number(TORN) != 0,
        })
    }

    /// The caller has the turn to commit.
    pub(crate) fn set_written(&self, change: u64) -> Result<()> {
        self.set(WRITTEN, change)
    }

    /// The caller holds the sync lock.
    pub(crate) fn set_durable(&self, change: u64) -> Result<()> {
        self.set(DURABLE, change)
    }

    /// The caller holds the sync lock.
    pub(crate) fn set_torn(&self, is_torn: bool) -> Result<()> {
        self.set(TORN, u64::from(is_torn))
    }

    fn set(&self, at: u64, number: u64) -> Result<()> {
        self.file.write_at(&encode(number), NUMBERS_AT + at * NUMBER_BYTES as u64)
    }

    /// Takes the sync lock, in the order of arrival.
    pub(crate) fn begin_sync(&self) -> Result<()> {
        self.file.lock(LockKind::Exclusive, Span::hold(SYNC))
    }

    pub(crate) fn end_sync(&self) {
        self.file.unlock(Span::hold(SYNC));
    }
}

fn encode(number: u64) -> [u8; NUMBER_BYTES] {
    let mut bytes = [0; NUMBER_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&(!number).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> u64 {
    let (number, complement) = bytes.split_at(8);
    let number = u64::from_le_bytes(number.try_into().unwrap_or_default());
    let complement = u64::from_le_bytes(complement.try_into().unwrap_or_default());
    if number == !complement { number } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_number_reads_as_old_new_or_zero() {
        let (old, new) = (encode(0x00ff), encode(0x0100));
        assert_eq!((decode(&old), decode(&new)), (0x00ff, 0x0100));
        for at in 1..NUMBER_BYTES {
            let torn = [&new[..at], &old[at..]].concat();
            let read = decode(&torn);
            assert!([0, 0x00ff, 0x0100].contains(&read), "{read:#x} when torn at {at}");
        }
        assert_eq!(decode(&[0; NUMBER_BYTES]), 0);
    }

    #[test]
    fn numbers_set_through_one_file_are_read_through_another() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| LogProgress::open(folder.path()).unwrap());
        let nothing = LogNumbers { written: 0, durable: 0, is_torn: false };
        assert_eq!(one.numbers().unwrap(), nothing);
        one.set_written(7).unwrap();
        one.set_durable(6).unwrap();
        one.set_torn(true).unwrap();
        let noted = LogNumbers { written: 7, durable: 6, is_torn: true };
        assert_eq!(other.numbers().unwrap(), noted);
        one.begin_sync().unwrap();
        one.end_sync();
        other.begin_sync().unwrap();
    }
}

//! A database that is open as a complete file.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use femtobarn_catalog::{Csn, PinGuard};
use nix::errno::Errno;

use super::making::MadeUp;
use crate::physical::{Answer, Facts, StoredFile, Trouble};

/// A database as of a snapshot, pinned for as long as this lives.
pub(super) struct Shown {
    file: Arc<dyn StoredFile>,
    made: Arc<MadeUp>,
    csn: Csn,
    _pin: PinGuard,
}

impl Shown {
    pub(super) fn new(
        file: Arc<dyn StoredFile>,
        made: Arc<MadeUp>,
        (csn, pin): (Csn, PinGuard),
    ) -> Self {
        Shown { file, made, csn, _pin: pin }
    }
}

impl StoredFile for Shown {
    fn facts(&self) -> Answer<Facts> {
        Ok(self.made.facts(read_only(self.file.facts()?)))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        let filled = self.made.mosaic.fill(offset, buffer, |at, buffer| {
            whole(at, buffer.len(), self.file.read_at(at, buffer)?)
        })?;
        Ok(filled.unwrap_or(0))
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Answer<Option<usize>> {
        self.made.mosaic.fill(offset, buffer, |at, buffer| {
            match self.file.try_read_at(at, buffer)? {
                Some(read) => whole(at, buffer.len(), read),
                None => Ok(None),
            }
        })
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Answer<()> {
        Err(unchanging())
    }

    fn sync(&self) -> Answer<()> {
        Ok(())
    }

    fn truncate(&self, _size: u64) -> Answer<()> {
        Err(unchanging())
    }

    fn will_need(&self, offset: u64, size: u64) {
        self.file.will_need(offset, size);
    }

    fn snapshot(&self) -> Option<u64> {
        Some(self.csn.0)
    }

    /// Once it is closed, nobody keeps its snapshot, and its name is that of another.
    fn can_be_reopened(&self) -> bool {
        false
    }
}

/// A database whose file is complete, as of a snapshot. It may not have been so in an earlier one.
pub(super) struct Whole {
    pub file: Arc<dyn StoredFile>,
    pub csn: Csn,
}

impl StoredFile for Whole {
    fn facts(&self) -> Answer<Facts> {
        Ok(read_only(self.file.facts()?))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        self.file.read_at(offset, buffer)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Answer<Option<usize>> {
        self.file.try_read_at(offset, buffer)
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Answer<()> {
        Err(unchanging())
    }

    fn sync(&self) -> Answer<()> {
        Ok(())
    }

    fn truncate(&self, _size: u64) -> Answer<()> {
        Err(unchanging())
    }

    fn will_need(&self, offset: u64, size: u64) {
        self.file.will_need(offset, size);
    }

    fn snapshot(&self) -> Option<u64> {
        Some(self.csn.0)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}

/// Facts of what is not written to here.
pub(super) fn read_only(facts: Facts) -> Facts {
    Facts { mode: facts.mode & 0o555, is_writable: false, ..facts }
}

fn unchanging() -> Trouble {
    Trouble::refused(Errno::EROFS, "a database as of a snapshot does not change")
}

/// What was committed is there: a file that ends before is damaged.
fn whole(at: u64, wanted: usize, read: usize) -> Answer<Option<()>> {
    if read < wanted {
        let what = format!("the database's file ends before the {wanted} bytes at byte {at}");
        return Err(Trouble::refused(Errno::EIO, what));
    }
    Ok(Some(()))
}

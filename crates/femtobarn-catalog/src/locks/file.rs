//! One lock file: byte ranges locked in the kernel, and the records of who holds them.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};

use super::SLOT_BYTES;
use super::holder::Holder;
use crate::catalog::numbers::{signed, unsigned};
use crate::error::{Error, Result};

/// An open file description, which owns what is locked through it.
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    path: PathBuf,
}

impl LockFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| Error::io("cannot open the lock file", path, error))?;
        Ok(LockFile { file, path: path.to_owned() })
    }

    /// For looking at what others have locked, and for shared locks.
    pub(super) fn open_to_look(path: &Path) -> Result<Self> {
        let file = File::open(path)
            .map_err(|error| Error::io("cannot open the lock file", path, error))?;
        Ok(LockFile { file, path: path.to_owned() })
    }

    /// Whether the lock was free, and is now ours.
    pub(super) fn try_lock(&self, slot: u64) -> Result<bool> {
        loop {
            match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&range(libc::F_WRLCK, slot))) {
                Ok(_) => return Ok(true),
                Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(self.refused(errno)),
            }
        }
    }

    /// Waits in the kernel's queue.
    pub(super) fn lock(&self, slot: u64) -> Result<()> {
        loop {
            match fcntl(&self.file, FcntlArg::F_OFD_SETLKW(&range(libc::F_WRLCK, slot))) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(self.refused(errno)),
            }
        }
    }

    /// Unlocking cannot fail on an open file, and closing it unlocks in any case.
    pub(super) fn unlock(&self, slot: u64) {
        let _ = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&range(libc::F_UNLCK, slot)));
    }

    /// Whether anybody else has locked the slot.
    pub(super) fn is_locked(&self, slot: u64) -> Result<bool> {
        let mut found = range(libc::F_WRLCK, slot);
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut found)).map_err(|e| self.refused(e))?;
        Ok(i32::from(found.l_type) != libc::F_UNLCK)
    }

    /// Locks one byte together with whoever else does.
    pub(super) fn share_byte(&self, at: u64) -> Result<()> {
        match self.try_bytes(libc::F_RDLCK, at, 1)? {
            true => Ok(()),
            false => Err(self.refused(Errno::EAGAIN)),
        }
    }

    /// Unlocking cannot fail on an open file, and closing it unlocks in any case.
    pub(super) fn free_byte(&self, at: u64) {
        let _ = self.try_bytes(libc::F_UNLCK, at, 1);
    }

    /// The ranges of bytes between `start` and `end` that others have locked. Neighbouring locks
    /// of one owner are one range.
    pub(super) fn locked_ranges(&self, start: u64, end: u64) -> Result<Vec<Range<u64>>> {
        let mut ranges = Vec::new();
        let mut unknown: Vec<_> = std::iter::once(start..end).collect();
        while let Some(part) = unknown.pop() {
            if part.is_empty() {
                continue;
            }
            let mut found = bytes(libc::F_WRLCK, part.start, part.end - part.start);
            fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut found)).map_err(|e| self.refused(e))?;
            if i32::from(found.l_type) == libc::F_UNLCK {
                continue;
            }
            // A length of 0 is up to the end of all files.
            let first = unsigned(found.l_start).max(part.start);
            let last = match unsigned(found.l_len) {
                0 => part.end,
                length => unsigned(found.l_start).saturating_add(length).min(part.end),
            };
            unknown.extend([part.start..first, last..part.end]);
            ranges.push(first..last);
        }
        Ok(ranges)
    }

    fn try_bytes(&self, kind: libc::c_int, at: u64, count: u64) -> Result<bool> {
        loop {
            match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&bytes(kind, at, count))) {
                Ok(_) => return Ok(true),
                Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(self.refused(errno)),
            }
        }
    }

    /// Says in the slot that this process holds it.
    pub(super) fn write_holder(&self, slot: u64) -> Result<()> {
        self.file
            .write_all_at(&Holder::this_process().encode(), slot * SLOT_BYTES)
            .map_err(|error| Error::io("cannot write the lock file", &self.path, error))
    }

    /// What is left behind would only mislead an error message, so failing is no harm.
    pub(super) fn wipe_holder(&self, slot: u64) {
        let _ = self.file.write_all_at(&[0; SLOT_BYTES as usize], slot * SLOT_BYTES);
    }

    /// Who the slot says holds it; none if it does not say, or is being written.
    pub(super) fn read_holder(&self, slot: u64) -> Result<Option<Holder>> {
        let mut record = [0; SLOT_BYTES as usize];
        match self.file.read_exact_at(&mut record, slot * SLOT_BYTES) {
            Ok(()) => Ok(Holder::decode(&record)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(Error::io("cannot read the lock file", &self.path, error)),
        }
    }

    fn refused(&self, errno: Errno) -> Error {
        Error::io("cannot lock", &self.path, errno)
    }
}

/// A slot's range. Both ends fit: a slot is at most 2^32.
fn range(kind: libc::c_int, slot: u64) -> flock {
    bytes(kind, slot * SLOT_BYTES, SLOT_BYTES)
}

/// `count` bytes from `at`; what is beyond 2^63 is no position in a file.
fn bytes(kind: libc::c_int, at: u64, count: u64) -> flock {
    flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: signed(at),
        l_len: signed(count),
        l_pid: 0,
    }
}

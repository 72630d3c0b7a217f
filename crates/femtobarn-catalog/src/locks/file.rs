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
use crate::error::{Error, Result};
use crate::local::numbers::{signed, unsigned};

/// An open file description, which owns what is locked through it.
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    path: PathBuf,
}

/// Bytes locked by who holds a slot. What is between these and the stairs keeps the kernel from making
/// one lock of two that an owner has side by side, which could not be told apart.
pub(super) const SPAN_BYTES: u64 = SLOT_BYTES / 4;
/// Bytes that are locked one by one by those who wait for a slot.
pub(super) const STAIRS: u64 = SLOT_BYTES / 4;

/// How something is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Together with others that share.
    Shared,
    /// Alone.
    Exclusive,
}

/// Bytes that are locked as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    start: u64,
    count: u64,
}

/// Bytes that somebody else has locked. Neighbouring locks of one owner are one.
#[derive(Clone, Debug)]
pub(super) struct Locked {
    pub(super) bytes: Range<u64>,
    pub(super) kind: Kind,
}

impl Span {
    /// The bytes of a slot that are locked by who holds it.
    pub(super) fn hold(slot: u64) -> Self {
        Span { start: slot * SLOT_BYTES, count: SPAN_BYTES }
    }

    /// The bytes of a slot that are locked by those who wait to hold it.
    pub(super) fn stairs(slot: u64) -> Self {
        Span { start: slot * SLOT_BYTES + SLOT_BYTES / 2, count: STAIRS }
    }

    /// The byte that is locked by who is number `stair` to hold the slot.
    pub(super) fn stair(slot: u64, stair: u64) -> Self {
        Span { start: Self::stairs(slot).start + stair, count: 1 }
    }

    /// All stairs above that one.
    pub(super) fn stairs_above(slot: u64, stair: u64) -> Self {
        Span { start: Self::stairs(slot).start + stair + 1, count: STAIRS - stair - 1 }
    }

    pub(super) fn byte(start: u64) -> Self {
        Span { start, count: 1 }
    }

    /// What is beyond 2^63 is no position in a file.
    fn request(self, kind: libc::c_int) -> flock {
        flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: signed(self.start),
            l_len: signed(self.count),
            l_pid: 0,
        }
    }
}

impl Kind {
    fn code(self) -> libc::c_int {
        match self {
            Kind::Shared => libc::F_RDLCK,
            Kind::Exclusive => libc::F_WRLCK,
        }
    }
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
    pub(super) fn try_lock(&self, kind: Kind, span: Span) -> Result<bool> {
        loop {
            match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&span.request(kind.code()))) {
                Ok(_) => return Ok(true),
                Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(self.refused(errno)),
            }
        }
    }

    /// Waits in the kernel's queue.
    pub(super) fn lock(&self, kind: Kind, span: Span) -> Result<()> {
        loop {
            match fcntl(&self.file, FcntlArg::F_OFD_SETLKW(&span.request(kind.code()))) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(self.refused(errno)),
            }
        }
    }

    /// Unlocking cannot fail on an open file, and closing it unlocks in any case.
    pub(super) fn unlock(&self, span: Span) {
        let _ = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&span.request(libc::F_UNLCK)));
    }

    /// What others have locked between two bytes, in no order.
    pub(super) fn locked_between(&self, start: u64, end: u64) -> Result<Vec<Locked>> {
        let mut locked = Vec::new();
        let mut unknown: Vec<_> = std::iter::once(start..end).collect();
        while let Some(part) = unknown.pop() {
            if part.is_empty() {
                continue;
            }
            // The kernel tells of one lock at a time, not of the first one.
            let Some(found) = self.locked_in(&part)? else { continue };
            unknown.extend([part.start..found.bytes.start, found.bytes.end..part.end]);
            locked.push(found);
        }
        Ok(locked)
    }

    /// Any lock of others in these bytes, as far as it is within them.
    fn locked_in(&self, part: &Range<u64>) -> Result<Option<Locked>> {
        let span = Span { start: part.start, count: part.end - part.start };
        let mut found = span.request(libc::F_WRLCK);
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut found)).map_err(|e| self.refused(e))?;
        let kind = match i32::from(found.l_type) {
            libc::F_UNLCK => return Ok(None),
            libc::F_RDLCK => Kind::Shared,
            _ => Kind::Exclusive,
        };
        let first = unsigned(found.l_start);
        // A length of 0 is up to the end of all files.
        let last = match unsigned(found.l_len) {
            0 => part.end,
            count => first.saturating_add(count).min(part.end),
        };
        Ok(Some(Locked { bytes: first.max(part.start)..last, kind }))
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
            Ok(()) => Ok(Holder::decode(&record).map(Holder::with_application)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(Error::io("cannot read the lock file", &self.path, error)),
        }
    }

    /// Reads numbers that others may be writing; zeros beyond the end of the file.
    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        bytes.fill(0);
        self.file
            .read_at(bytes, offset)
            .map(drop)
            .map_err(|error| Error::io("cannot read the lock file", &self.path, error))
    }

    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| Error::io("cannot write the lock file", &self.path, error))
    }

    /// Replaces what the file says by `text`.
    pub(super) fn write_text(&self, text: &str) -> Result<()> {
        self.file
            .write_all_at(text.as_bytes(), 0)
            .map_err(|error| Error::io("cannot write the lock file", &self.path, error))
    }

    fn refused(&self, errno: Errno) -> Error {
        Error::io("cannot lock", &self.path, errno)
    }
}

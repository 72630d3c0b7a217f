//! One lock file: byte ranges locked in the kernel, and the records of their holders.
//!
//! A lock file is an array of slots of 64 bytes. The holder of a slot locks its first 16 bytes; processes that queue
//! for it lock single bytes of its second half, the *stairs* ([`super::wait_queue`]). The gap between the two keeps the
//! kernel from merging adjacent locks of one owner into one, which could not be told apart.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};

use super::record::{self, RECORD_BYTES};
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::numbers::{signed, unsigned};

/// Bytes of a slot: the record of its holder.
pub(super) const SLOT_BYTES: u64 = RECORD_BYTES as u64;
/// Bytes locked by the holder of a slot.
pub(super) const SPAN_BYTES: u64 = SLOT_BYTES / 4;
/// Bytes that waiters for a slot lock one by one.
pub(super) const STAIRS: u64 = SLOT_BYTES / 4;

/// An open lock file. Locks belong to its open file description (`F_OFD_SETLK`), not to the process.
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    path: PathBuf,
    /// The device and the number of the file.
    inode: (u64, u64),
}

/// Whether a lock is shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Together with other shared locks.
    Shared,
    /// Alone.
    Exclusive,
}

/// Bytes that are locked as one. To the kernel, a count of 0 means all bytes from the start on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    start: u64,
    count: u64,
}

/// Bytes that another open file description has locked. The kernel reports adjacent locks of one owner as one.
#[derive(Clone, Debug)]
pub(super) struct LockedRange {
    pub(super) bytes: Range<u64>,
    pub(super) kind: LockKind,
}

impl Span {
    /// The bytes of a slot that its holder locks.
    pub(super) fn hold(slot: u64) -> Self {
        Span { start: slot * SLOT_BYTES, count: SPAN_BYTES }
    }

    /// The bytes of a slot that its waiters lock.
    pub(super) fn stairs(slot: u64) -> Self {
        Span { start: slot * SLOT_BYTES + SLOT_BYTES / 2, count: STAIRS }
    }

    /// All bytes of a slot: those that its holder locks, those that its waiters lock, and the gap between them.
    pub(super) fn whole(slot: u64) -> Self {
        Span { start: slot * SLOT_BYTES, count: SLOT_BYTES / 2 + STAIRS }
    }

    /// All bytes of a slot except those that its holder locks.
    pub(super) fn whole_but_hold(slot: u64) -> Self {
        Span { start: slot * SLOT_BYTES + SPAN_BYTES, count: SLOT_BYTES / 2 + STAIRS - SPAN_BYTES }
    }

    /// The byte of one stair; the waiter on stair 0 is the next to get the slot.
    pub(super) fn stair(slot: u64, stair: u64) -> Self {
        Span { start: Self::stairs(slot).start + stair, count: 1 }
    }

    /// All stairs above `stair`.
    pub(super) fn stairs_above(slot: u64, stair: u64) -> Self {
        Span { start: Self::stairs(slot).start + stair + 1, count: STAIRS - stair - 1 }
    }

    /// All bytes of the file, however long it becomes.
    pub(super) fn all() -> Self {
        Span { start: 0, count: 0 }
    }

    pub(super) fn byte(start: u64) -> Self {
        Span { start, count: 1 }
    }

    /// The first byte, relative to the beginning of its slot.
    pub(super) fn byte_in_slot(self) -> u64 {
        self.start % SLOT_BYTES
    }

    #[cfg(test)]
    pub(super) fn bytes(self) -> Range<u64> {
        self.start..self.start + self.count
    }

    /// Positions stay below 2^63, the largest that a file can have.
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

impl LockKind {
    fn code(self) -> libc::c_int {
        match self {
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
        }
    }
}

impl LockFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        Self::of(options.read(true).write(true).create(true).truncate(false).open(path), path)
    }

    fn of(file: io::Result<File>, path: &Path) -> Result<Self> {
        let found = file.and_then(|file| {
            let inode = inode_of(&file.metadata()?);
            Ok(LockFile { file, path: path.to_owned(), inode })
        });
        found.map_err(|error| Error::io("cannot open the lock file", path, error))
    }

    /// Opens the file, and makes its folder if it is missing.
    pub(super) fn open_with_folder(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .map_err(|error| Error::io("cannot create the folder", folder, error))?;
        }
        Self::open(path)
    }

    /// Opens the file read-only, which is enough to inspect locks and to take shared locks.
    pub(super) fn open_read_only(path: &Path) -> Result<Self> {
        Self::of(File::open(path), path)
    }

    /// Opens the file as [`LockFile::open_read_only`] does, if it exists. A vacuum may remove it at any time.
    pub(super) fn open_if_there(path: &Path) -> Result<Option<Self>> {
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => Self::of(file, path).map(Some),
        }
    }

    /// Removes the file from its folder, unless an owner holds a lock in it or waits for one. An owner that has it open
    /// finds out by [`LockFile::is_in_place`].
    pub(super) fn remove_if_unused(&self) -> Result<()> {
        if !self.try_lock(LockKind::Exclusive, Span::all())? {
            return Ok(());
        }
        let remove = || {
            fs::remove_file(&self.path)
                .map_err(|error| Error::io("cannot remove the lock file", &self.path, error))
        };
        let removed =
            self.is_in_place().and_then(|is_in_place| if is_in_place { remove() } else { Ok(()) });
        // A child that was forked meanwhile has the file open, too, so closing it here would not free the lock.
        self.unlock(Span::all());
        removed
    }

    /// Whether the path still leads to this file: it was neither removed nor replaced.
    pub(super) fn is_in_place(&self) -> Result<bool> {
        match fs::metadata(&self.path) {
            Ok(found) => Ok(inode_of(&found) == self.inode),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("cannot examine the lock file", &self.path, error)),
        }
    }

    /// Takes the lock if it is free; returns whether it did.
    pub(super) fn try_lock(&self, kind: LockKind, span: Span) -> Result<bool> {
        loop {
            match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&span.request(kind.code()))) {
                Ok(_) => return Ok(true),
                Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(self.refused(errno)),
            }
        }
    }

    /// Takes the lock, waiting in the kernel's queue without a time limit.
    pub(super) fn lock(&self, kind: LockKind, span: Span) -> Result<()> {
        loop {
            match fcntl(&self.file, FcntlArg::F_OFD_SETLKW(&span.request(kind.code()))) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(self.refused(errno)),
            }
        }
    }

    /// Frees the lock. That cannot fail on an open file, and closing the file frees it in any case.
    pub(super) fn unlock(&self, span: Span) {
        let _ = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&span.request(libc::F_UNLCK)));
    }

    /// The locks of other open file descriptions between two bytes, in no particular order.
    pub(super) fn locked_between(&self, start: u64, end: u64) -> Result<Vec<LockedRange>> {
        let mut locked = Vec::new();
        let mut unknown: Vec<_> = std::iter::once(start..end).collect();
        while let Some(part) = unknown.pop() {
            if part.is_empty() {
                continue;
            }
            // The kernel reports one lock at a time, not necessarily the first one.
            let Some(found) = self.locked_in(&part)? else { continue };
            unknown.extend([part.start..found.bytes.start, found.bytes.end..part.end]);
            locked.push(found);
        }
        Ok(locked)
    }

    /// Whether another open file description has locked any of these bytes.
    pub(super) fn is_locked(&self, span: Span) -> Result<bool> {
        Ok(self.locked_in(&(span.start..span.start + span.count))?.is_some())
    }

    /// One lock of another open file description in `part`, clipped to it.
    fn locked_in(&self, part: &Range<u64>) -> Result<Option<LockedRange>> {
        let span = Span { start: part.start, count: part.end - part.start };
        let mut found = span.request(libc::F_WRLCK);
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut found)).map_err(|e| self.refused(e))?;
        let kind = match i32::from(found.l_type) {
            libc::F_UNLCK => return Ok(None),
            libc::F_RDLCK => LockKind::Shared,
            _ => LockKind::Exclusive,
        };
        let first = unsigned(found.l_start);
        // A length of 0 means up to the largest position.
        let last = match unsigned(found.l_len) {
            0 => part.end,
            count => first.saturating_add(count).min(part.end),
        };
        Ok(Some(LockedRange { bytes: first.max(part.start)..last, kind }))
    }

    /// Writes this process into the slot as its holder.
    pub(super) fn write_holder(&self, slot: u64) -> Result<()> {
        self.file
            .write_all_at(&record::encode(&Holder::this_process()), slot * SLOT_BYTES)
            .map_err(|error| Error::io("cannot write the lock file", &self.path, error))
    }

    /// The holder recorded in the slot; `None` if no other open file description locks it exclusively, or its record is
    /// being written. The record of a lock that was just taken may still name the previous holder.
    pub(super) fn read_holder(&self, slot: u64) -> Result<Option<Holder>> {
        let first = slot * SLOT_BYTES;
        let locked = self.locked_in(&(first..first + SPAN_BYTES))?;
        if locked.is_none_or(|locked| locked.kind == LockKind::Shared) {
            return Ok(None);
        }
        let mut bytes = [0; RECORD_BYTES];
        match self.file.read_exact_at(&mut bytes, slot * SLOT_BYTES) {
            Ok(()) => Ok(record::decode(&bytes).map(Holder::with_application)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(Error::io("cannot read the lock file", &self.path, error)),
        }
    }

    /// Writes `text` at the front of the file.
    pub(super) fn write_text(&self, text: &str) -> Result<()> {
        self.file
            .write_all_at(text.as_bytes(), 0)
            .map_err(|error| Error::io("cannot write the lock file", &self.path, error))
    }

    fn refused(&self, errno: Errno) -> Error {
        Error::io("cannot lock", &self.path, errno)
    }
}

fn inode_of(found: &fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// The names of the files in a folder of lock files; empty if the folder does not exist.
pub(super) fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(Error::io("cannot list the folder", folder, error)),
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_file_is_not_locked_although_a_child_has_inherited_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7");
        let [creator, file] = [&path, &path].map(|path| LockFile::open(path).unwrap());
        // A forked child has the same open file description.
        let inherited = file.file.try_clone().unwrap();
        file.remove_if_unused().unwrap();
        drop(file);
        assert!(!creator.is_in_place().unwrap());
        assert!(creator.try_lock(LockKind::Exclusive, Span::hold(0)).unwrap());
        drop(inherited);
        assert!(LockFile::open_if_there(&path).unwrap().is_none());
    }
}

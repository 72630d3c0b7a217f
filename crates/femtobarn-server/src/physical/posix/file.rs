//! An open file of a POSIX file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;
use nix::sys::stat::fstat;

use super::reserved_space::ReservedSpace;
use super::tree::PosixTree;
use crate::physical::ahead::ReadAhead;
use crate::physical::{Metadata, ReadOrder, StorageError, StoragePath, StorageResult, StoredFile};

/// The kernel is asked to write dirty bytes back whenever a write crosses a multiple of this.
const WRITE_BACK_BYTES: u64 = 2 << 20;

/// Writes that bypass the page cache are whole windows: this many bytes at a multiple of as many. No page of the
/// cache is larger, so no cached page holds bytes of a window together with bytes that a concurrent write puts
/// beside it. The kernel could not drop such a page, and the next sync would fail.
const WINDOW_BYTES: usize = 2 << 20;

/// The alignment in memory that direct writes need.
const ALIGNMENT: usize = 4096;

/// Bytes of one write call: with it 256 MB take 0.11 to 0.13 s of processor time. With larger calls the kernel looks
/// for larger pages of memory: mostly that takes somewhat less, but up to 0.43 s if such pages are rare.
const CALL_BYTES: usize = 32 << 10;

/// An open plain file.
#[derive(Debug)]
pub(super) struct PosixFile {
    file: File,
    /// The same file opened with `O_DIRECT`; `None` if the file system does not support it.
    direct: OnceLock<Option<File>>,
    /// The path by which the file was opened.
    path: StoragePath,
    tree: Arc<PosixTree>,
    /// Whether the file is new and its name may not be durable yet.
    is_new: AtomicBool,
    /// Whether a sync has failed.
    is_broken: AtomicBool,
    /// `None` unless the client announces sequential reading.
    ahead: Option<ReadAhead>,
    /// `None` unless the client announces the size of the new file.
    reserved: Option<ReservedSpace>,
}

impl PosixFile {
    pub(super) fn new(
        file: OwnedFd,
        path: StoragePath,
        tree: Arc<PosixTree>,
        is_new: bool,
    ) -> Self {
        PosixFile {
            file: File::from(file),
            direct: OnceLock::new(),
            path,
            tree,
            is_new: AtomicBool::new(is_new),
            is_broken: AtomicBool::new(false),
            ahead: None,
            reserved: None,
        }
    }

    /// Sets the order of reads, or the size of a new file, that the client announces.
    pub(super) fn told(self, order: ReadOrder, size: Option<u64>) -> Self {
        if order == ReadOrder::Random {
            // Otherwise the kernel reads ahead after some ranges: 1.09 bytes for each byte of 64 KiB, 1.8 of 256 KiB.
            let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
        }
        let (ahead, reserved) = (ReadAhead::of_disk(order), size.map(ReservedSpace::new));
        PosixFile { ahead, reserved, ..self }
    }

    /// Announces the next range of a sequential client to the kernel.
    fn read_ahead(&self, offset: u64, length: usize) {
        let ahead = self.ahead.as_ref().and_then(|ahead| ahead.after(offset, length));
        if let Some(ahead) = ahead {
            self.will_need(ahead.start, ahead.end - ahead.start);
        }
    }

    fn cannot(&self, what: &str, error: &io::Error) -> StorageError {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        StorageError::cannot(what, &self.path, errno)
    }

    fn refuse_if_broken(&self) -> StorageResult<()> {
        if self.is_broken.load(Ordering::Acquire) {
            let what = format!("cannot write {}: a sync has failed; open it again", self.path);
            return Err(StorageError::refused(Errno::EIO, what));
        }
        Ok(())
    }

    /// One `preadv2` that does not wait for the disk; `EAGAIN` if it would have to.
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> nix::Result<usize> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let range = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: the buffer is borrowed exclusively, and the descriptor is open.
        let read =
            unsafe { libc::preadv2(self.file.as_raw_fd(), &range, 1, offset, libc::RWF_NOWAIT) };
        Errno::result(read).map(|read| read as usize)
    }

    /// Writes whole windows around the page cache: no fresh pages are needed, and the cache keeps the pages that are
    /// read often. Returns how many bytes were written in this way. The caller writes the rest through the cache, which
    /// also reports the error if there was one.
    fn write_past_cache(&self, offset: u64, bytes: &[u8]) -> usize {
        let is_whole = |count: u64| count.is_multiple_of(WINDOW_BYTES as u64);
        let is_aligned = (bytes.as_ptr() as usize).is_multiple_of(ALIGNMENT);
        if !is_whole(offset) || !is_whole(bytes.len() as u64) || !is_aligned {
            return 0;
        }
        let direct = self.direct.get_or_init(|| {
            // Opened by its descriptor, since the path may lead to another file by now.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).ok()
        });
        let written = direct.as_ref().and_then(|file| file.write_at(bytes, offset).ok());
        written.unwrap_or(0)
    }

    /// Starts writing back everything before the last multiple of [`WRITE_BACK_BYTES`] that a write crossed, so that a
    /// later sync has little left to do. Does not wait.
    fn write_back(&self, offset: u64, end: u64) {
        let boundary = end - end % WRITE_BACK_BYTES;
        if boundary <= offset {
            return;
        }
        let start = offset - offset % WRITE_BACK_BYTES;
        let (Ok(start), Ok(size)) = (i64::try_from(start), i64::try_from(boundary - start)) else {
            return;
        };
        let flags = libc::SYNC_FILE_RANGE_WRITE;
        // SAFETY: the call takes numbers only, and the descriptor is open.
        let begun = unsafe { libc::sync_file_range(self.file.as_raw_fd(), start, size, flags) };
        // A hint: a sync writes the same bytes, and reports errors.
        let _ = begun;
    }
}

impl StoredFile for PosixFile {
    fn metadata(&self) -> StorageResult<Metadata> {
        let metadata = fstat(&self.file);
        Ok(self
            .tree
            .metadata(&metadata.map_err(|errno| StorageError::cannot("stat", &self.path, errno))?))
    }

    fn identity(&self) -> StorageResult<u64> {
        // File systems reuse the inode number of a removed file for a new one.
        let born = self.file.metadata().and_then(|metadata| metadata.created()).ok();
        let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born = born.map_or(0, |born| born.as_nanos() as u64);
        Ok(self.metadata()?.id ^ born.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        // No file has bytes beyond `i64::MAX`, and the kernel refuses offsets above it.
        let possible = (i64::MAX as u64).saturating_sub(offset);
        let fits = buffer.len().min(usize::try_from(possible).unwrap_or(usize::MAX));
        let buffer = &mut buffer[..fits];
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.cannot("read", &error)),
            }
        }
        self.read_ahead(offset, filled);
        Ok(filled)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<Option<usize>> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_now(offset.saturating_add(filled as u64), &mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                // The blocking read that follows reports real errors.
                Err(_) => return Ok(None),
            }
        }
        self.read_ahead(offset, filled);
        Ok(Some(filled))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> StorageResult<()> {
        self.refuse_if_broken()?;
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(StorageError::cannot("write", &self.path, Errno::EFBIG));
        }
        if let Some(reserved) = &self.reserved {
            reserved.reach(&self.file, offset);
        }
        let written = self.write_past_cache(offset, bytes);
        let cached = &bytes[written..];
        let start = offset + written as u64;
        let mut next = start;
        for part in cached.chunks(CALL_BYTES) {
            let written = self.file.write_all_at(part, next);
            written.map_err(|error| self.cannot("write", &error))?;
            next += part.len() as u64;
        }
        self.write_back(start, next);
        Ok(())
    }

    fn sync(&self) -> StorageResult<()> {
        self.refuse_if_broken()?;
        let mut synced = self.file.sync_data();
        if synced.is_ok() && self.is_new.load(Ordering::Acquire) {
            synced = self.tree.sync_names(&self.path).map_err(io::Error::from);
        }
        if synced.is_ok() {
            self.is_new.store(false, Ordering::Release);
        } else {
            self.is_broken.store(true, Ordering::Release);
        }
        synced.map_err(|error| self.cannot("sync", &error))
    }

    fn truncate(&self, size: u64) -> StorageResult<()> {
        self.refuse_if_broken()?;
        self.file.set_len(size).map_err(|error| self.cannot("truncate", &error))
    }

    fn will_need(&self, offset: u64, size: u64) {
        let (Ok(offset), Ok(size)) = (i64::try_from(offset), i64::try_from(size)) else {
            return;
        };
        // A hint: without it the read is only slower.
        let _ = posix_fadvise(&self.file, offset, size, PosixFadviseAdvice::POSIX_FADV_WILLNEED);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

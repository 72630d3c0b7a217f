//! A database file that is open, on this machine or on a server.
//!
//! Only this module opens, creates, syncs or removes a database file on this machine.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use femtobarn_catalog::{Csn, clock};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc::{O_DIRECT, off_t};
use rntuple::tfile::{FRONT_SIZE_MIN, FileHeader, FileIdentity, Timestamp};
use rntuple::{ByteSource, ReadRequest};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::storage::remote::recent_ranges::KnownFile;
use crate::storage::remote::server_file::ServerFile;

/// A database file that is open.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    pub path: PathBuf,
    /// No extent begins before this byte: the end of the front of a file that was just created, and of the shortest
    /// possible front of any other file.
    pub front_end: u64,
    location: FileLocation,
    /// The sizes and ranges that a writer knows of a file on a server.
    pub known: Option<KnownFile>,
    /// The epoch of the database when the file was opened on a server to be read.
    pub epoch: u64,
}

#[derive(Debug)]
enum FileLocation {
    Local {
        file: File,
        /// The same file, opened with `O_DIRECT` at the first use; `None` if the file system does not support it.
        direct: OnceLock<Option<File>>,
    },
    Server(Box<dyn ServerFile>),
}

impl<F: ServerFile + 'static> From<F> for DatabaseFile {
    fn from(file: F) -> Self {
        let path = file.path().to_owned();
        let location = FileLocation::Server(Box::new(file));
        DatabaseFile { path, front_end: FRONT_SIZE_MIN, location, known: None, epoch: 0 }
    }
}

impl DatabaseFile {
    fn new(file: File, path: PathBuf) -> Self {
        let location = FileLocation::Local { file, direct: OnceLock::new() };
        DatabaseFile { path, front_end: FRONT_SIZE_MIN, location, known: None, epoch: 0 }
    }

    /// The same file on a server, with the sizes and ranges that its writer knows.
    pub(crate) fn with_known(self, known: Option<KnownFile>) -> Self {
        DatabaseFile { known, ..self }
    }

    /// Creates an empty file; refuses to overwrite.
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|source| match source.kind() {
            std::io::ErrorKind::AlreadyExists => Error::Exists {
                what: format!("file {} exists already; move it elsewhere", path.display()),
            },
            _ => Error::io("create", &path, source),
        })?;
        Ok(Self::new(file, path))
    }

    /// Writes the front of a new file; removes the file if that fails.
    pub(crate) fn with_front(mut self, uuid: Uuid) -> Result<Self> {
        match front(&self.path, uuid).and_then(|front| self.write(&front, 0).map(|()| front)) {
            Ok(front) => self.front_end = front.len() as u64,
            Err(error) => {
                // An empty file that cannot be removed does no harm.
                drop(self.remove());
                return Err(error);
            }
        }
        Ok(self)
    }

    /// Opens a database file for reading and writing.
    pub(crate) fn open_to_write(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(Self::new(file.map_err(|source| Error::io("open", &path, source))?, path))
    }

    /// Opens a file for reading.
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).map_err(|source| Error::io("open", &path, source))?;
        Ok(Self::new(file, path))
    }

    /// Whether the file is on a disk of this machine, and not on a server or in a store.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.location, FileLocation::Local { .. })
    }

    /// A file of a server that is on this machine, if the server has passed it.
    pub(crate) fn passed(&self) -> Option<&File> {
        match &self.location {
            FileLocation::Server(file) => file.passed(),
            FileLocation::Local { .. } => None,
        }
    }

    /// The path below the federation's folder, of a file on a server.
    pub(crate) fn path_on_server(&self) -> Option<&str> {
        match &self.location {
            FileLocation::Server(file) => Some(file.relative()),
            FileLocation::Local { .. } => None,
        }
    }

    /// Whether unsynced writes may be lost because the connection was. All further operations fail.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(&self.location, FileLocation::Server(file) if file.is_broken())
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let written = match &self.location {
            FileLocation::Local { file, .. } => file.write_all_at(bytes, offset),
            FileLocation::Server(file) => file.write(bytes, offset),
        };
        written.map_err(|source| Error::io("write", &self.path, source))?;
        self.note_written(bytes, offset);
        Ok(())
    }

    /// Notes bytes that this process wrote, or that the server writes for it.
    pub(crate) fn note_written(&self, bytes: &[u8], offset: u64) {
        if let Some(known) = &self.known {
            known.ranges.add_written(bytes, offset);
        }
    }

    /// Forgets ranges that were written and read recently.
    pub(crate) fn forget_recent(&self) {
        self.known.iter().for_each(|known| known.ranges.clear());
    }

    /// Writes whole pages of memory with `O_DIRECT`, and bytes that the file system does not accept that way through
    /// the page cache. `offset` is a multiple of the disk's block size.
    pub(crate) fn write_past_cache(&self, pages: &[u8], offset: u64) -> Result<()> {
        let FileLocation::Local { file, direct } = &self.location else {
            return self.write(pages, offset);
        };
        let direct = direct.get_or_init(|| {
            // By descriptor, since another file may have taken the name.
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            OpenOptions::new().write(true).custom_flags(O_DIRECT).open(path).ok()
        });
        let written = direct.as_ref().and_then(|file| file.write_at(pages, offset).ok());
        let written = written.unwrap_or(0);
        self.write(&pages[written..], offset + written as u64)
    }

    /// Punches a hole: frees the blocks of a range, whose bytes are zero from then on. Does nothing if the file
    /// system does not support it, or the file is on a server.
    pub(crate) fn punch(&self, range: Range<u64>) -> Result<()> {
        // XRootD's protocol has no request for it.
        let FileLocation::Local { file, .. } = &self.location else { return Ok(()) };
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let (start, size) = (range.start, range.end - range.start);
        match fallocate(file, flags, start as off_t, size as off_t) {
            Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOSYS) => Ok(()),
            other => other.map_err(|errno| Error::io("punch a hole in", &self.path, errno)),
        }
    }

    pub(crate) fn size(&self) -> Result<u64> {
        let size = match &self.location {
            FileLocation::Local { file, .. } => file.metadata().map(|metadata| metadata.len()),
            FileLocation::Server(file) => file.size(Csn::MAX),
        };
        size.map_err(|source| Error::io("stat", &self.path, source))
    }

    /// Extends the file from `offset` by `size` bytes, and allocates their blocks if the file system supports it.
    pub(crate) fn extend(&self, offset: u64, size: u64) -> Result<()> {
        let FileLocation::Local { file, .. } = &self.location else {
            return self.resize("extend", offset + size);
        };
        match fallocate(file, FallocateFlags::empty(), offset as off_t, size as off_t) {
            Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOSYS) => {
                self.resize("extend", offset + size)
            }
            other => other.map_err(|errno| Error::io("extend", &self.path, errno)),
        }
    }

    /// Truncates the file to `size` bytes.
    pub(crate) fn cut(&self, size: u64) -> Result<()> {
        self.resize("cut", size)
    }

    fn resize(&self, what: &str, size: u64) -> Result<()> {
        let resized = match &self.location {
            FileLocation::Local { file, .. } => file.set_len(size),
            FileLocation::Server(file) => file.resize(size),
        };
        resized.map_err(|source| Error::io(what, &self.path, source))
    }

    /// Waits until a server has acknowledged all writes so far. They are not durable yet.
    pub(crate) fn settle(&self) -> Result<()> {
        let settled = match &self.location {
            FileLocation::Local { .. } => Ok(()),
            FileLocation::Server(file) => file.settle(),
        };
        settled.map_err(|source| Error::io("write", &self.path, source))
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = match &self.location {
            FileLocation::Local { file, .. } => file.sync_data(),
            FileLocation::Server(file) => file.sync(),
        };
        synced.map_err(|source| Error::io("sync", &self.path, source))
    }

    /// Removes the file.
    pub(crate) fn remove(&self) -> Result<()> {
        match &self.location {
            FileLocation::Local { .. } => remove(&self.path),
            FileLocation::Server(file) => {
                file.remove().map_err(|source| Error::io("remove", &self.path, source))
            }
        }
    }

    /// Fills `buffer` from `offset` on, over a connection for prefetching, and returns the number of bytes
    /// read, which is smaller than the buffer only at the end of the file.
    pub(crate) fn read_ahead_at(
        &self,
        at: Csn,
        offset: u64,
        buffer: &mut [u8],
    ) -> rntuple::Result<usize> {
        let read = match &self.location {
            FileLocation::Local { file, .. } => FileExt::read_at(file, buffer, offset),
            FileLocation::Server(file) => file.read_ahead_at(at, offset, buffer),
        };
        read.map_err(|source| self.read_error(source))
    }

    /// Fills all requests, over a connection for prefetching.
    pub(crate) fn read_ahead(
        &self,
        at: Csn,
        requests: &mut [ReadRequest<'_>],
    ) -> rntuple::Result<()> {
        self.read_with(requests, |file, requests| file.read_ahead(at, requests))
    }

    /// The size, on a server that has reached a commit.
    pub(crate) fn size_as_of(&self, at: Csn) -> rntuple::Result<u64> {
        match &self.location {
            FileLocation::Local { file, .. } => file.size(),
            FileLocation::Server(file) => file.size(at).map_err(|source| self.read_error(source)),
        }
    }

    /// Fills all requests with bytes that a commit refers to.
    pub(crate) fn read_as_of(
        &self,
        at: Csn,
        requests: &mut [ReadRequest<'_>],
    ) -> rntuple::Result<()> {
        self.read_with(requests, |file, requests| file.read_many(at, requests))
    }

    /// Fills all requests anew, whose bytes were damaged.
    pub(crate) fn read_again(
        &self,
        at: Csn,
        requests: &mut [ReadRequest<'_>],
    ) -> rntuple::Result<()> {
        self.read_with(requests, |file, requests| file.read_again(at, requests))
    }

    fn read_with<'a>(
        &self,
        requests: &mut [ReadRequest<'a>],
        from_server: impl FnOnce(&dyn ServerFile, &mut [ReadRequest<'a>]) -> std::io::Result<()>,
    ) -> rntuple::Result<()> {
        match &self.location {
            FileLocation::Local { file, .. } => file.read_many(requests),
            FileLocation::Server(file) => {
                from_server(&**file, requests).map_err(|source| self.read_error(source))
            }
        }
    }

    fn read_error(&self, source: std::io::Error) -> rntuple::Error {
        rntuple::Error::Io { what: format!("cannot read {}", self.path.display()), source }
    }

    /// Whether this is a complete ROOT file, such as a sealed database: its header refers to streamer information.
    pub(crate) fn is_complete(&self) -> Result<bool> {
        const HEADER_BYTES: u64 = 100;
        let mut header = vec![0; HEADER_BYTES.min(self.size()?) as usize];
        ByteSource::read_at(self, 0, &mut header)
            .map_err(Error::storage(self.path.display().to_string()))?;
        let header = FileHeader::decode(&header);
        let header = header.map_err(Error::storage(self.path.display().to_string()))?;
        Ok(header.streamer_info.0 != 0)
    }

    /// Name, UUID and time of creation, from the front of the file.
    pub(crate) fn identity(&self) -> Result<FileIdentity> {
        let identity = FileIdentity::read(self);
        identity.map_err(Error::storage(self.path.display().to_string()))
    }
}

impl ByteSource for DatabaseFile {
    fn size(&self) -> rntuple::Result<u64> {
        match &self.known {
            Some(known) => known.size(|| self.size_as_of(Csn::MAX)),
            None => self.size_as_of(Csn::MAX),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        match &self.location {
            FileLocation::Local { file, .. } => ByteSource::read_at(file, offset, buffer),
            FileLocation::Server(_) => self.read_many(&mut [ReadRequest { offset, buffer }]),
        }
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        match &self.known {
            Some(known) => known.ranges.read(requests, |rest| self.read_as_of(Csn::MAX, rest)),
            None => self.read_as_of(Csn::MAX, requests),
        }
    }

    fn read_past_caches(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.forget_recent();
        self.read_as_of(Csn::MAX, requests)
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        if let FileLocation::Local { file, .. } = &self.location {
            file.will_need(ranges);
        }
    }

    fn is_remote(&self) -> bool {
        !self.is_local()
    }
}

/// The front of a new file.
pub(crate) fn front(path: &Path, uuid: Uuid) -> Result<Vec<u8>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let identity = FileIdentity::new(&name, *uuid.as_bytes(), now());
    Ok(identity.map_err(Error::storage(path.display().to_string()))?.front())
}

/// Makes the creation and removal of files in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| Error::io("sync", folder, source))
}

/// The files in a folder with their sizes, sorted by name; none if the folder does not exist.
pub(crate) fn list(folder: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(Error::io("list", folder, error)),
    };
    let mut found = vec![];
    for entry in entries {
        let path = entry.map_err(|error| Error::io("list", folder, error))?.path();
        // A file may be removed meanwhile.
        if let Ok(metadata) = path.metadata()
            && metadata.is_file()
        {
            found.push((path, metadata.len()));
        }
    }
    found.sort();
    Ok(found)
}

/// The time since a file was last written to.
pub(crate) fn age(path: &Path) -> Option<std::time::Duration> {
    path.metadata().ok()?.modified().ok()?.elapsed().ok()
}

/// Removes a file if it exists.
pub(crate) fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, source))
        }
        _ => Ok(()),
    }
}

/// Moves a file, also to another file system; refuses to overwrite.
pub(crate) fn move_to(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        return Err(Error::Exists {
            what: format!("file {} exists already; move it elsewhere", to.display()),
        });
    }
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
            let copied = std::fs::copy(from, to).and_then(|_| File::open(to)?.sync_all());
            copied.map_err(|error| Error::io("copy", from, error))?;
            remove(from)?;
        }
        other => other.map_err(|error| Error::io("move", from, error))?,
    }
    [from, to].into_iter().filter_map(Path::parent).try_for_each(sync_folder)
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> Result<()> {
    std::fs::remove_file(path).map_err(|source| Error::io("remove", path, source))
}

/// The time of day, as ROOT's keys store it.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_unix(clock::utc_us() / 1_000_000)
}

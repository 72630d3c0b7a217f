//! Database files, here or on a server: the only module that opens, creates, syncs or removes one that
//! is here.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc::{O_DIRECT, off_t};
use rntuple::tfile::{FRONT_SIZE_MIN, FileHeader, FileIdentity, Timestamp};
use rntuple::{ByteSource, ReadRequest};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::storage::remote::folder::RemoteFile;

/// A database file that is open.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    pub path: PathBuf,
    /// No extent begins before this byte: where the front of a new file ends, and of any other one the
    /// shortest front.
    pub front_end: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Here {
        file: File,
        /// The same file, past the page cache; none where that cannot be.
        direct: OnceLock<Option<File>>,
    },
    Server(Box<RemoteFile>),
}

impl From<RemoteFile> for DatabaseFile {
    fn from(file: RemoteFile) -> Self {
        let path = file.path().to_owned();
        DatabaseFile { path, front_end: FRONT_SIZE_MIN, place: Place::Server(Box::new(file)) }
    }
}

impl DatabaseFile {
    fn new(file: File, path: PathBuf) -> Self {
        let place = Place::Here { file, direct: OnceLock::new() };
        DatabaseFile { path, front_end: FRONT_SIZE_MIN, place }
    }

    /// Creates a database file and writes its front; refuses to overwrite.
    pub fn create(path: PathBuf, uuid: Uuid) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|source| match source.kind() {
            std::io::ErrorKind::AlreadyExists => Error::Exists {
                what: format!("file {} exists already; move it away", path.display()),
            },
            _ => Error::io("create", &path, source),
        })?;
        Self::new(file, path).with_front(uuid)
    }

    /// Writes the front of a new file, or removes it. A server need not have answered yet: the writer
    /// of extents settles the file before it asks for the first one.
    pub fn with_front(mut self, uuid: Uuid) -> Result<Self> {
        match self.write_front(uuid) {
            Ok(front_end) => self.front_end = front_end,
            Err(error) => {
                // An empty file that cannot be removed is in nobody's way.
                drop(self.remove());
                return Err(error);
            }
        }
        Ok(self)
    }

    /// Writes the front and returns where it ends.
    fn write_front(&self, uuid: Uuid) -> Result<u64> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let identity = FileIdentity::new(&name, *uuid.as_bytes(), now())
            .map_err(Error::storage(self.path.display().to_string()))?;
        self.write(&identity.front(), 0)?;
        Ok(identity.front_size())
    }

    /// Opens a database file for reading and writing.
    pub fn open_to_write(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(Self::new(file.map_err(|source| Error::io("open", &path, source))?, path))
    }

    /// Opens a file for reading.
    pub fn open(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).map_err(|source| Error::io("open", &path, source))?;
        Ok(Self::new(file, path))
    }

    /// Whether the file is a server's.
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Place::Server(_))
    }

    /// The path below the federation's folder, of a server's file.
    pub fn on_server(&self) -> Option<&str> {
        match &self.place {
            Place::Server(file) => Some(file.relative()),
            Place::Here { .. } => None,
        }
    }

    /// Whether what was written may be lost already, so that nothing more is to be done with it.
    pub fn is_broken(&self) -> bool {
        matches!(&self.place, Place::Server(file) if file.is_broken())
    }

    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let written = match &self.place {
            Place::Here { file, .. } => file.write_all_at(bytes, offset),
            Place::Server(file) => file.write(bytes, offset),
        };
        written.map_err(|source| Error::io("write", &self.path, source))
    }

    /// Writes whole pages of memory past the page cache, and through it what cannot be written so:
    /// not all file systems can, or not at every moment. `offset` is a multiple of a block of the
    /// disk.
    pub fn write_past_cache(&self, pages: &[u8], offset: u64) -> Result<()> {
        let Place::Here { file, direct } = &self.place else { return self.write(pages, offset) };
        let direct = direct.get_or_init(|| {
            // By its number: the name may be another file's by now.
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            OpenOptions::new().write(true).custom_flags(O_DIRECT).open(path).ok()
        });
        let written = direct.as_ref().and_then(|file| file.write_at(pages, offset).ok());
        let written = written.unwrap_or(0);
        self.write(&pages[written..], offset + written as u64)
    }

    /// Gives the disk a range of the file back; the bytes there are zero from then on. A file system
    /// that cannot do it keeps them.
    pub fn punch(&self, range: Range<u64>) -> Result<()> {
        // The protocol of servers has no such request.
        let Place::Here { file, .. } = &self.place else { return Ok(()) };
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let (start, size) = (range.start, range.end - range.start);
        match fallocate(file, flags, start as off_t, size as off_t) {
            Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOSYS) => Ok(()),
            other => other.map_err(|errno| Error::io("punch a hole in", &self.path, errno)),
        }
    }

    pub fn size(&self) -> Result<u64> {
        let size = match &self.place {
            Place::Here { file, .. } => file.metadata().map(|metadata| metadata.len()),
            Place::Server(file) => file.size(),
        };
        size.map_err(|source| Error::io("stat", &self.path, source))
    }

    /// Extends the file from `offset` by `size` bytes, on disk too where the file system can.
    pub fn extend(&self, offset: u64, size: u64) -> Result<()> {
        let Place::Here { file, .. } = &self.place else {
            return self.resize("extend", offset + size);
        };
        match fallocate(file, FallocateFlags::empty(), offset as off_t, size as off_t) {
            Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOSYS) => {
                self.resize("extend", offset + size)
            }
            other => other.map_err(|errno| Error::io("extend", &self.path, errno)),
        }
    }

    /// Cuts the file at `size`.
    pub fn cut(&self, size: u64) -> Result<()> {
        self.resize("cut", size)
    }

    fn resize(&self, what: &str, size: u64) -> Result<()> {
        let resized = match &self.place {
            Place::Here { file, .. } => file.set_len(size),
            Place::Server(file) => file.resize(size),
        };
        resized.map_err(|source| Error::io(what, &self.path, source))
    }

    /// Waits until what was written so far has been, which is not durable yet.
    pub fn settle(&self) -> Result<()> {
        let settled = match &self.place {
            Place::Here { .. } => Ok(()),
            Place::Server(file) => file.settle(),
        };
        settled.map_err(|source| Error::io("write", &self.path, source))
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Result<()> {
        let synced = match &self.place {
            Place::Here { file, .. } => file.sync_data(),
            Place::Server(file) => file.sync(),
        };
        synced.map_err(|source| Error::io("sync", &self.path, source))
    }

    /// Removes the file, which nothing refers to.
    pub fn remove(&self) -> Result<()> {
        match &self.place {
            Place::Here { .. } => remove(&self.path),
            Place::Server(file) => {
                file.remove().map_err(|source| Error::io("remove", &self.path, source))
            }
        }
    }

    /// Reads from `offset` on, ahead of its use; fewer bytes than fit only at the end.
    pub fn read_ahead_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<usize> {
        let read = match &self.place {
            Place::Here { file, .. } => FileExt::read_at(file, buffer, offset),
            Place::Server(file) => file.read_ahead_at(offset, buffer),
        };
        read.map_err(|source| self.unread(source))
    }

    /// Fills all requests, ahead of their use.
    pub fn read_ahead(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        match &self.place {
            Place::Here { file, .. } => file.read_many(requests),
            Place::Server(file) => file.read_ahead(requests).map_err(|source| self.unread(source)),
        }
    }

    fn unread(&self, source: std::io::Error) -> rntuple::Error {
        rntuple::Error::Io { what: format!("cannot read {}", self.path.display()), source }
    }

    /// Whether the front refers to all that makes it a complete ROOT file, as that of a sealed
    /// database does.
    pub fn is_complete(&self) -> Result<bool> {
        const HEADER_BYTES: u64 = 100;
        let mut header = vec![0; HEADER_BYTES.min(self.size()?) as usize];
        ByteSource::read_at(self, 0, &mut header)
            .map_err(Error::storage(self.path.display().to_string()))?;
        let header = FileHeader::decode(&header);
        let header = header.map_err(Error::storage(self.path.display().to_string()))?;
        Ok(header.streamer_info.0 != 0)
    }

    /// What the file says about itself at its front.
    pub fn identity(&self) -> Result<FileIdentity> {
        let identity = FileIdentity::read(self);
        identity.map_err(Error::storage(self.path.display().to_string()))
    }
}

impl ByteSource for DatabaseFile {
    fn size(&self) -> rntuple::Result<u64> {
        match &self.place {
            Place::Here { file, .. } => file.size(),
            Place::Server(file) => file.size().map_err(|source| self.unread(source)),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        match &self.place {
            Place::Here { file, .. } => ByteSource::read_at(file, offset, buffer),
            Place::Server(_) => self.read_many(&mut [ReadRequest { offset, buffer }]),
        }
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        match &self.place {
            Place::Here { file, .. } => file.read_many(requests),
            Place::Server(file) => file.read_many(requests).map_err(|source| self.unread(source)),
        }
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        if let Place::Here { file, .. } = &self.place {
            file.will_need(ranges);
        }
    }
}

/// Makes the entries of a folder durable: files that were created in it.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| Error::io("sync", folder, source))
}

/// The files in a folder with their sizes, in the order of their names; none if there is no such
/// folder.
pub(crate) fn list(folder: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(Error::io("list", folder, error)),
    };
    let mut found = vec![];
    for entry in entries {
        let path = entry.map_err(|error| Error::io("list", folder, error))?.path();
        // A file that vanishes meanwhile is none.
        if let Ok(facts) = path.metadata()
            && facts.is_file()
        {
            found.push((path, facts.len()));
        }
    }
    found.sort();
    Ok(found)
}

/// Seconds since a file was last written to.
pub(crate) fn age(path: &Path) -> Option<std::time::Duration> {
    path.metadata().ok()?.modified().ok()?.elapsed().ok()
}

/// Removes a file if there is one.
pub(crate) fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, source))
        }
        _ => Ok(()),
    }
}

/// Moves a file to where there is none, to another file system if need be.
pub(crate) fn move_to(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        return Err(Error::Exists { what: format!("{} exists already", to.display()) });
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

/// Removes a file that nothing refers to.
pub(crate) fn remove(path: &Path) -> Result<()> {
    std::fs::remove_file(path).map_err(|source| Error::io("remove", path, source))
}

/// The present, in microseconds since 1970.
pub(crate) fn now_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}

/// The current time, as ROOT's keys store it.
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix(since_epoch.as_secs() as i64)
}

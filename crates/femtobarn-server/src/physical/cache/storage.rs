//! The storage: the origin's folders and files, to be read only.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::stat::stat;
use xrd::Location;
use xrd::client::{File, Url};
use xrd::response::StatLine;

use super::file::CachedFile;
use super::header::Version;
use super::open::OpenCachedFile;
use super::origin::{self, Origin, OriginError};
use super::pages::KeptPages;
use super::room::{CacheCounts, CacheUse, LeavingFiles, Room};
use super::rooms::{CacheDisk, Rooms};
use super::shared::Shared;
use crate::physical::{
    Creation, FileKind, FolderEntry, Hints, Metadata, Opaque, OpenMode, Space, Storage,
    StorageError, StoragePath, StorageResult, StoredFile,
};

/// The shortest pause between two searches for unused files.
const CLEAR_MIN: Duration = Duration::from_secs(1);
const CLEAR_MAX: Duration = Duration::from_secs(60);

/// The files of an origin, whose bytes are kept in folders once they were read; see the module's documentation.
#[derive(Debug)]
pub struct CachedOrigin {
    shared: Arc<Shared>,
    file_system: u64,
    idle: Option<Duration>,
}

/// The known version of a file.
struct Known {
    version: Version,
    metadata: Metadata,
    /// Whether the origin has just reported it.
    is_from_origin: bool,
}

impl Known {
    fn told(stat: &StatLine, path: &StoragePath) -> StorageResult<Self> {
        let version = origin::version_of(stat, path)?;
        Ok(Known { version, metadata: origin::metadata(stat), is_from_origin: true })
    }
}

impl CachedOrigin {
    /// The files below the path of a URL, of which at most `bytes_max` are kept in each of `folders`, by default four
    /// fifths of its file system. With `is_immutable`, files of the origin never change, and it is not asked about
    /// files that are partly kept.
    ///
    /// # Errors
    /// [`StorageError::Refused`] if no folder can be used, or one for another reason than that its disk fails, or
    /// threads cannot be started.
    pub fn new<'a>(
        url: Url,
        folders: impl IntoIterator<Item = &'a Path>,
        bytes_max: Option<u64>,
        is_immutable: bool,
    ) -> StorageResult<Self> {
        let rooms =
            Rooms::open(folders, bytes_max).map_err(|(folder, error)| unusable(&folder, &error))?;
        let first = rooms.disks().swap_remove(0).folder;
        let file_system = stat(&first).map_err(|errno| unusable(&first, &errno.into()))?.st_dev;
        let origin = Origin::new(url).map_err(|error| unusable(&first, &error))?;
        let shared = Arc::new(Shared::new(origin, rooms, is_immutable));
        Ok(CachedOrigin { shared, file_system, idle: None })
    }

    /// Sets the time after which unused files are evicted.
    #[must_use]
    pub fn leaving(mut self, idle: Option<Duration>) -> Self {
        self.idle = idle;
        self
    }

    /// Evicts unused files again and again. Returns if they have no time-out.
    pub async fn clear_idle(self: Arc<Self>) {
        let Some(idle) = self.idle else { return };
        loop {
            tokio::time::sleep((idle / 4).clamp(CLEAR_MIN, CLEAR_MAX)).await;
            let shared = Arc::clone(&self.shared);
            // It fails only while the server is shutting down.
            let _ = tokio::task::spawn_blocking(move || shared.rooms.clear_idle(idle)).await;
        }
    }

    /// The sums since the server started.
    pub fn counts(&self) -> &CacheCounts {
        &self.shared.rooms.counts
    }

    /// The usage of its disks.
    pub fn usage(&self) -> CacheUse {
        self.shared.rooms.usage()
    }

    /// The folders, including those that are not used any more.
    pub fn disks(&self) -> Vec<CacheDisk> {
        self.shared.rooms.disks()
    }

    /// The next files to be evicted. May look at all folders.
    ///
    /// # Errors
    /// If a folder cannot be read.
    pub fn next_to_leave(&self) -> std::io::Result<LeavingFiles> {
        self.shared.rooms.leaving()
    }

    /// The time after which unused files are evicted.
    pub fn idle(&self) -> Option<Duration> {
        self.idle
    }

    /// The known version of a file; without the origin if that need not be asked or is offline.
    fn known(&self, path: &StoragePath, location: &Location) -> StorageResult<Known> {
        let origin = &self.shared.origin;
        let kept = || {
            let name = origin.kept_name(location);
            let stem = self.shared.rooms.of(&name).stem(&name);
            let version = KeptPages::version(&stem, &name).ok()??;
            Some(Known { version, metadata: origin::metadata_of(version), is_from_origin: false })
        };
        if let Some(known) = self.shared.is_immutable.then(kept).flatten() {
            return Ok(known);
        }
        match origin.stat(location) {
            Ok(stat) => Known::told(&stat, path),
            Err(OriginError::Away(error)) => kept().ok_or(error),
            Err(OriginError::Refused(error)) => Err(error),
        }
    }

    fn open_file(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Arc<CachedFile>> {
        let location = self.shared.origin.location(path, opaque)?;
        let mut known = self.known(path, &location)?;
        if known.metadata.kind == FileKind::Folder {
            return Err(StorageError::cannot("open", path, Errno::EISDIR));
        }
        let name = self.shared.origin.kept_name(&location);
        let room = self.shared.rooms.of(&name);
        let is_right = |kept| self.shared.is_same(kept, known.version);
        let kept = KeptPages::open_kept(&room.stem(&name), &name, is_right).ok().flatten();
        let is_whole = kept.is_some_and(|kept| kept.are_all_there());
        let mut remote = None;
        if known.is_from_origin && !is_whole {
            // Opened now, so that the origin keeps these bytes for this file, and refuses users who may not read them.
            // The version of the opened file counts: the answer about the path may have come from another server.
            let asked = self.shared.origin.location_to_open(path, opaque)?;
            let (file, connection, stat) = self.open_at_origin(&asked)?;
            known = Known::told(&stat, path)?;
            remote = Some((file, connection));
        }
        let whole_in = is_whole.then_some(room);
        let file = self.kept_file((path.clone(), location), &name, &known, whole_in);
        if let Some((remote, connection)) = remote {
            file.remotes.offer(remote, connection);
        }
        Ok(file)
    }

    /// The file of a name, in the first folder whose disk does not fail. In the folder `whole_in` all its pages are
    /// kept.
    fn kept_file(
        &self,
        (path, location): (StoragePath, Location),
        name: &[u8],
        known: &Known,
        whole_in: Option<&Arc<Room<CachedFile>>>,
    ) -> Arc<CachedFile> {
        let Known { version, metadata, .. } = known;
        let is_right = |kept| self.shared.is_same(kept, *version);
        let is_meant = |file: &CachedFile| file.location == location && is_right(file.version);
        loop {
            let room = self.shared.rooms.of(name);
            let (stem, mut failure) = (room.stem(name), None);
            let file = room.open_file(&stem, is_meant, || {
                let pages = KeptPages::open(&stem, name, *version, is_right);
                let pages = pages.map_err(|error| failure = Some(error)).ok();
                let at = (path.clone(), location.clone());
                let kept = (Arc::clone(room), stem.clone(), pages);
                let is_whole = whole_in.is_some_and(|whole| Arc::ptr_eq(whole, room));
                let shared = Arc::clone(&self.shared);
                CachedFile::new(shared, at, (*version, metadata.clone()), kept, is_whole)
            });
            match failure {
                Some(error) if self.shared.rooms.note_failure(room, &error) => {}
                _ => return file,
            }
        }
    }

    fn open_at_origin(&self, location: &Location) -> StorageResult<(File, usize, StatLine)> {
        let origin = &self.shared.origin;
        Ok(origin.tasks.block_on(async {
            let connection = origin.turn();
            let file = origin.open(location, connection).await?;
            let stat = origin.stat_open(&file).await?;
            Ok::<_, OriginError>((file, connection, stat))
        })?)
    }
}

impl Storage for CachedOrigin {
    fn read_only(&self, what: &str, path: &StoragePath) -> StorageError {
        let what = format!("cannot {what} {path}: this server is a cache; change it at the origin");
        StorageError::refused(Errno::EROFS, what)
    }

    fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        if how.write || how.creation != Creation::Existing {
            return Err(self.read_only("write", path));
        }
        let file = self.open_file(path, opaque)?;
        Ok(Arc::new(OpenCachedFile::new(file, Hints::of(opaque).order)))
    }

    fn metadata(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Metadata> {
        let location = self.shared.origin.location(path, opaque)?;
        self.known(path, &location).map(|known| known.metadata)
    }

    fn list(
        &self,
        path: &StoragePath,
        with_metadata: bool,
        opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>> {
        let origin = &self.shared.origin;
        let location = origin.location(path, opaque)?;
        let mut entries: Vec<_> = origin
            .list(&location, with_metadata)?
            .entries
            .into_iter()
            .map(|entry| FolderEntry {
                name: entry.name.to_vec(),
                metadata: entry.stat.as_ref().map(origin::metadata).filter(|_| with_metadata),
            })
            .collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// Drops the kept pages of a file; they are fetched again when it is read.
    fn evict(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        let location = self.shared.origin.location(path, opaque)?;
        let name = self.shared.origin.kept_name(&location);
        self.shared.rooms.remove(&name);
        Ok(())
    }

    fn space(&self, _path: &StoragePath) -> StorageResult<Space> {
        let free = |usage: CacheUse| usage.limit.saturating_sub(usage.used);
        let largest = self.disks().into_iter().map(|disk| free(disk.usage)).max().unwrap_or(0);
        let (total, free) = (self.usage().limit, free(self.usage()));
        Ok(Space { total, free, largest, file_system: self.file_system })
    }

    fn attributes(&self, _path: &StoragePath) -> StorageResult<Vec<Vec<u8>>> {
        Ok(vec![])
    }

    fn attribute(&self, path: &StoragePath, _name: &[u8]) -> StorageResult<Vec<u8>> {
        Err(StorageError::cannot("read an attribute of", path, Errno::ENODATA))
    }
}

fn unusable(folder: &Path, error: &std::io::Error) -> StorageError {
    let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
    StorageError::refused(errno, format!("cannot keep files in {}: {error}", folder.display()))
}

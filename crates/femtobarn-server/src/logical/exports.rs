//! The name space: storages by the prefix of the paths that they serve.
//!
//! 1. The longest prefix wins.
//! 2. A path above a prefix, `/` at least, is a read-only folder that lists the prefixes below it.
//! 3. [`Exports`] is a storage itself, so no other module parses prefixes.
//! 4. The folders of the server's own journals and of uploads are hidden from clients.
//! 5. Names that clients make and remove are reported to an observer, if there is one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;

use super::cluster::NameNews;
use super::journal::JOURNALS;
use super::latency::Latencies;
use super::uploads::UPLOADS;
use crate::physical::{
    Creation, FileKind, FolderEntry, Metadata, Opaque, OpenMode, Space, Storage, StorageError,
    StoragePath, StorageResult, StoredFile, WantedBy,
};

/// All storages of a server, by prefix.
#[derive(Default)]
pub struct Exports {
    /// Sorted, the longest prefixes first.
    exports: Vec<ExportedStorage>,
    /// Told of names that appear and vanish.
    pub(super) news: NameNews,
}

struct ExportedStorage {
    /// `/lhc.fed`; empty for the top.
    prefix: Vec<u8>,
    storage: Arc<dyn Storage>,
    options: ExportOptions,
    latencies: Arc<Latencies>,
}

/// Options of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Reading metadata and opening files takes microseconds, so such calls are made on the connection's own thread.
    pub is_quick: bool,
    /// Clients may not change anything in the storage.
    pub is_read_only: bool,
}

impl Exports {
    /// Serves a storage below a prefix.
    ///
    /// # Errors
    /// `EEXIST` if the prefix is taken.
    pub fn add(
        &mut self,
        prefix: &StoragePath,
        storage: Arc<dyn Storage>,
        options: ExportOptions,
    ) -> StorageResult<()> {
        let prefix = match prefix.as_bytes() {
            b"/" => Vec::new(),
            bytes => bytes.to_vec(),
        };
        if self.exports.iter().any(|export| export.prefix == prefix) {
            let name = String::from_utf8_lossy(&prefix).into_owned();
            return Err(StorageError::refused(
                Errno::EEXIST,
                format!("{name}/ is exported already"),
            ));
        }
        self.exports.push(ExportedStorage { prefix, storage, options, latencies: Arc::default() });
        self.exports.sort_by_key(|export| std::cmp::Reverse(export.prefix.len()));
        Ok(())
    }

    /// Sets the observer of names that appear and vanish.
    pub fn tell(&mut self, news: NameNews) {
        self.news = news;
    }

    /// [`ExportOptions::is_quick`] of the export of this path; true outside exports.
    pub fn is_quick(&self, path: &StoragePath) -> bool {
        self.export(path).is_none_or(|(export, _)| export.options.is_quick)
    }

    /// The number of file requests in progress in all exports, except those that are answered from memory.
    pub fn requests_running(&self) -> u64 {
        self.exports.iter().map(|export| export.latencies.running()).sum()
    }

    /// Microseconds of a recent read that was not answered from memory, of the slowest export.
    pub fn recent_read_us(&self) -> u64 {
        let recent = self.exports.iter().map(|export| export.latencies.recent_read_us());
        recent.max().unwrap_or(0)
    }

    /// The latencies of the export of this path. Those of a path outside exports are discarded.
    pub fn latencies(&self, path: &StoragePath) -> Arc<Latencies> {
        let export = self.export(path);
        export.map_or_else(Arc::default, |(export, _)| Arc::clone(&export.latencies))
    }

    fn export(&self, path: &StoragePath) -> Option<(&ExportedStorage, StoragePath)> {
        self.exports.iter().find_map(|export| {
            let rest = path.as_bytes().strip_prefix(export.prefix.as_slice())?;
            let below = match rest {
                [] => StoragePath::new(b"/"),
                [b'/', ..] => StoragePath::new(rest),
                _ => return None,
            };
            if rest.split(|byte| *byte == b'/').nth(1).is_some_and(is_hidden) {
                return None;
            }
            Some((export, below.expect("the rest of a valid path is valid")))
        })
    }

    /// The storage that serves a path, and the path within it.
    ///
    /// # Errors
    /// `ENOENT` if no storage serves the path.
    pub(super) fn locate(
        &self,
        path: &StoragePath,
    ) -> StorageResult<(Arc<dyn Storage>, StoragePath)> {
        let (export, below) =
            self.export(path).ok_or_else(|| StorageError::cannot("find", path, Errno::ENOENT))?;
        Ok((Arc::clone(&export.storage), below))
    }

    fn storage(&self, path: &StoragePath) -> StorageResult<(&dyn Storage, StoragePath)> {
        match self.export(path) {
            Some((export, below)) => Ok((&*export.storage, below)),
            None if self.is_above(path) => Err(StorageError::refused(
                Errno::EACCES,
                format!("cannot change {path}: it is a folder of exports"),
            )),
            None => Err(StorageError::cannot("find", path, Errno::ENOENT)),
        }
    }

    /// Removes a file, or an empty folder.
    ///
    /// # Errors
    /// The errors of the storage.
    pub fn remove(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        match self.remove_file(path, opaque) {
            Err(StorageError::Refused(Errno::EISDIR, _)) => self.remove_folder(path),
            removed => removed,
        }
    }

    /// The storage that serves a path, and the path within it, as [`locate`](Self::locate) returns them, if the storage
    /// is not read-only.
    ///
    /// # Errors
    /// `ENOENT` if no storage serves the path; `EROFS` if it is read-only.
    pub(super) fn locate_writable(
        &self,
        path: &StoragePath,
    ) -> StorageResult<(Arc<dyn Storage>, StoragePath)> {
        self.writable(path)?;
        self.locate(path)
    }

    /// The storage that serves a path, if it is not read-only.
    fn writable(&self, path: &StoragePath) -> StorageResult<(&dyn Storage, StoragePath)> {
        match self.export(path) {
            Some((export, _)) if export.options.is_read_only => {
                Err(StorageError::cannot("change", path, Errno::EROFS))
            }
            _ => self.storage(path),
        }
    }

    /// The storage that serves both paths, and the paths within it.
    fn both_in_one(
        &self,
        from: &StoragePath,
        to: &StoragePath,
    ) -> StorageResult<(&dyn Storage, StoragePath, StoragePath)> {
        let (storage, from_below) = self.writable(from)?;
        let (other, to_below) = self.writable(to)?;
        if std::ptr::addr_eq(storage, other) {
            Ok((storage, from_below, to_below))
        } else {
            let what = format!("{from} and {to} lie in different exports");
            Err(StorageError::refused(Errno::EXDEV, what))
        }
    }

    fn moved(&self, from: &StoragePath, to: &StoragePath) {
        self.news.vanishes(from);
        self.news.appears(to);
    }

    fn is_above(&self, path: &StoragePath) -> bool {
        path.as_bytes() == b"/" || self.names_below(path).next().is_some()
    }

    /// The capacity of all file systems below this path, except those that report an error.
    fn space_below(&self, path: &StoragePath) -> StorageResult<Space> {
        let top = StoragePath::new(b"/")?;
        let exports = self.exports.iter().filter(|export| lies_below(&export.prefix, path));
        let found: Vec<_> = exports.map(|export| export.storage.space(&top)).collect();
        let mut spaces: Vec<Space> = Vec::new();
        for space in found.iter().flatten() {
            if spaces.iter().all(|known| known.file_system != space.file_system) {
                spaces.push(*space);
            }
        }
        if let (true, Some(Err(error))) = (spaces.is_empty(), found.last()) {
            return Err(error.clone());
        }
        let together = |all: Space, space: Space| Space {
            total: all.total + space.total,
            free: all.free + space.free,
            largest: all.largest.max(space.largest),
            file_system: 0,
        };
        Ok(spaces.into_iter().fold(Space::default(), together))
    }

    /// The next name of each prefix that continues this path.
    fn names_below(&self, path: &StoragePath) -> impl Iterator<Item = &[u8]> {
        let top = path.as_bytes().strip_suffix(b"/").unwrap_or(path.as_bytes()).to_vec();
        self.exports.iter().filter_map(move |export| {
            let rest = export.prefix.strip_prefix(top.as_slice())?.strip_prefix(b"/")?;
            rest.split(|byte| *byte == b'/').next()
        })
    }
}

/// Whether a name at the top of an export is one of the server's own.
fn is_hidden(name: &[u8]) -> bool {
    [JOURNALS, UPLOADS].contains(&name)
}

/// Whether a prefix continues a path.
fn lies_below(prefix: &[u8], path: &StoragePath) -> bool {
    let top = path.as_bytes().strip_suffix(b"/").unwrap_or(path.as_bytes());
    prefix.strip_prefix(top).is_some_and(|rest| rest.starts_with(b"/"))
}

/// The metadata of a folder that exists only because exports lie below it.
fn folder_of_exports() -> Metadata {
    Metadata {
        kind: FileKind::Folder,
        id: 1,
        size: 0,
        modified: SystemTime::UNIX_EPOCH,
        changed: SystemTime::UNIX_EPOCH,
        accessed: SystemTime::UNIX_EPOCH,
        mode: 0o555,
        owner: Arc::from("femtobarn"),
        group: Arc::from("femtobarn"),
        is_readable: true,
        is_writable: false,
        is_online: true,
        is_backed_up: false,
    }
}

impl Storage for Exports {
    fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        if self.export(path).is_none() && self.is_above(path) {
            return Err(StorageError::cannot("open", path, Errno::EISDIR));
        }
        let (storage, below) = if how.write || how.creation != Creation::Existing {
            self.writable(path)?
        } else {
            self.storage(path)?
        };
        let file = storage.open(&below, how, opaque)?;
        match how.creation {
            Creation::Existing => {}
            _ if how.make_folders => self.news.appears_with_folders(path),
            _ => self.news.appears(path),
        }
        Ok(file)
    }

    fn metadata(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Metadata> {
        match self.export(path) {
            Some((export, below)) => export.storage.metadata(&below, opaque),
            None if self.is_above(path) => Ok(folder_of_exports()),
            None => self.storage(path).map(|_| folder_of_exports()),
        }
    }

    fn list(
        &self,
        path: &StoragePath,
        with_metadata: bool,
        opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>> {
        let above: BTreeMap<_, _> = self
            .names_below(path)
            .map(|name| (name.to_vec(), with_metadata.then(folder_of_exports)))
            .collect();
        let entries = match self.export(path) {
            Some((export, below)) => {
                let mut entries = export.storage.list(&below, with_metadata, opaque)?;
                entries.retain(|entry| below.parent().is_some() || !is_hidden(&entry.name));
                entries
            }
            None if self.is_above(path) => Vec::new(),
            None => return self.storage(path).map(|_| Vec::new()),
        };
        let mut all: BTreeMap<_, _> =
            entries.into_iter().map(|entry| (entry.name, entry.metadata)).collect();
        all.extend(above);
        Ok(all.into_iter().map(|(name, metadata)| FolderEntry { name, metadata }).collect())
    }

    fn stage(
        &self,
        path: &StoragePath,
        wanted: WantedBy<'_>,
        opaque: Opaque<'_>,
    ) -> StorageResult<Option<Duration>> {
        let (storage, below) = self.storage(path)?;
        storage.stage(&below, wanted, opaque)
    }

    fn evict(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        let (storage, below) = self.storage(path)?;
        storage.evict(&below, opaque)
    }

    fn pin(
        &self,
        paths: &[StoragePath],
        holder: &str,
        until: Option<SystemTime>,
    ) -> StorageResult<()> {
        let mut by_prefix: BTreeMap<&[u8], (&ExportedStorage, Vec<StoragePath>)> = BTreeMap::new();
        for (export, below) in paths.iter().filter_map(|path| self.export(path)) {
            by_prefix.entry(&export.prefix).or_insert((export, vec![])).1.push(below);
        }
        let mut all = by_prefix.into_values();
        all.try_for_each(|(export, below)| export.storage.pin(&below, holder, until))
    }

    fn make_folder(&self, path: &StoragePath, mode: u32, parents: bool) -> StorageResult<()> {
        if parents && self.export(path).is_none() && self.is_above(path) {
            return Ok(());
        }
        let (storage, below) = self.writable(path)?;
        storage.make_folder(&below, mode, parents)?;
        if parents {
            self.news.appears_with_folders(path);
        } else {
            self.news.appears(path);
        }
        Ok(())
    }

    fn remove_file(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        let (storage, below) = self.writable(path)?;
        storage.remove_file(&below, opaque)?;
        self.news.vanishes(path);
        Ok(())
    }

    fn remove_folder(&self, path: &StoragePath) -> StorageResult<()> {
        let (storage, below) = self.writable(path)?;
        storage.remove_folder(&below)?;
        self.news.vanishes(path);
        Ok(())
    }

    fn rename(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
        let (storage, from_below, to_below) = self.both_in_one(from, to)?;
        storage.rename(&from_below, &to_below)?;
        self.moved(from, to);
        Ok(())
    }

    fn rename_new(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
        let (storage, from_below, to_below) = self.both_in_one(from, to)?;
        storage.rename_new(&from_below, &to_below)?;
        self.moved(from, to);
        Ok(())
    }

    fn set_mode(&self, path: &StoragePath, mode: u32) -> StorageResult<()> {
        let (storage, below) = self.writable(path)?;
        storage.set_mode(&below, mode)
    }

    fn truncate(&self, path: &StoragePath, size: u64) -> StorageResult<()> {
        let (storage, below) = self.writable(path)?;
        storage.truncate(&below, size)
    }

    fn space(&self, path: &StoragePath) -> StorageResult<Space> {
        if self.export(path).is_none() && self.is_above(path) {
            return self.space_below(path);
        }
        let (storage, below) = self.storage(path)?;
        storage.space(&below)
    }

    fn attributes(&self, path: &StoragePath) -> StorageResult<Vec<Vec<u8>>> {
        let (storage, below) = self.storage(path)?;
        storage.attributes(&below)
    }

    fn attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<Vec<u8>> {
        let (storage, below) = self.storage(path)?;
        storage.attribute(&below, name)
    }

    fn set_attribute(
        &self,
        path: &StoragePath,
        name: &[u8],
        value: &[u8],
        must_be_new: bool,
    ) -> StorageResult<()> {
        let (storage, below) = self.writable(path)?;
        storage.set_attribute(&below, name, value, must_be_new)
    }

    fn remove_attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<()> {
        let (storage, below) = self.writable(path)?;
        storage.remove_attribute(&below, name)
    }
}

//! The name space: which storage serves the names below a prefix.
//!
//! 1. The longest prefix wins.
//! 2. What lies above prefixes, `/` at least, is a folder that lists them and cannot be changed.
//! 3. [`Exports`] is a storage itself, so that nobody else looks at prefixes.
//! 4. The folder in which the server keeps journals of its own is not there for clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use nix::errno::Errno;

use super::journal::JOURNALS;
use super::latency::Latencies;
use crate::physical::{
    Creation, FileKind, FolderEntry, Metadata, Opaque, OpenMode, Space, Storage, StorageError,
    StoragePath, StorageResult, StoredFile,
};

/// All storages of a server, by the prefixes of their names.
#[derive(Default)]
pub struct Exports {
    /// The longest prefixes first.
    exports: Vec<Export>,
}

struct Export {
    /// `/lhc.fed`; empty for the top.
    prefix: Vec<u8>,
    storage: Arc<dyn Storage>,
    manner: Manner,
    latencies: Arc<Latencies>,
}

/// How a storage is exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Looking at its files and opening them takes microseconds, so that connections need not be kept
    /// going by another thread meanwhile.
    pub is_quick: bool,
    /// Nobody may change anything in it.
    pub is_read_only: bool,
}

impl Exports {
    /// Shows a storage below a prefix.
    ///
    /// # Errors
    /// `EEXIST` if there is one with this prefix.
    pub fn add(
        &mut self,
        prefix: &StoragePath,
        storage: Arc<dyn Storage>,
        manner: Manner,
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
        self.exports.push(Export { prefix, storage, manner, latencies: Arc::default() });
        self.exports.sort_by_key(|export| std::cmp::Reverse(export.prefix.len()));
        Ok(())
    }

    /// Whether looking at this path and opening it takes microseconds.
    pub fn is_quick(&self, path: &StoragePath) -> bool {
        self.export(path).is_none_or(|(export, _)| export.manner.is_quick)
    }

    /// How long requests for what lies in the export of this path took; what lies in none is not told of.
    pub fn latencies(&self, path: &StoragePath) -> Arc<Latencies> {
        let export = self.export(path);
        export.map_or_else(Arc::default, |(export, _)| Arc::clone(&export.latencies))
    }

    fn export(&self, path: &StoragePath) -> Option<(&Export, StoragePath)> {
        self.exports.iter().find_map(|export| {
            let rest = path.as_bytes().strip_prefix(export.prefix.as_slice())?;
            let below = match rest {
                [] => StoragePath::new(b"/"),
                [b'/', ..] => StoragePath::new(rest),
                _ => return None,
            };
            if rest.split(|byte| *byte == b'/').nth(1) == Some(JOURNALS) {
                return None;
            }
            Some((export, below.expect("what is left of a clean path is one, too")))
        })
    }

    /// The storage that has a path, and where it is there.
    ///
    /// # Errors
    /// `ENOENT` if there is none.
    pub(super) fn home(
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
                format!("{path} is a folder of exports, which cannot be changed"),
            )),
            None => Err(StorageError::cannot("find", path, Errno::ENOENT)),
        }
    }

    /// The storage, if it may be changed.
    fn writable(&self, path: &StoragePath) -> StorageResult<(&dyn Storage, StoragePath)> {
        match self.export(path) {
            Some((export, _)) if export.manner.is_read_only => {
                Err(StorageError::cannot("change", path, Errno::EROFS))
            }
            _ => self.storage(path),
        }
    }

    fn is_above(&self, path: &StoragePath) -> bool {
        path.as_bytes() == b"/" || self.names_below(path).next().is_some()
    }

    /// The space of all file systems that exports below this path lie in, but for those that do not tell.
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
        if let (true, Some(Err(trouble))) = (spaces.is_empty(), found.last()) {
            return Err(trouble.clone());
        }
        let together = |all: Space, space: Space| Space {
            total: all.total + space.total,
            free: all.free + space.free,
            largest: all.largest.max(space.largest),
            file_system: 0,
        };
        Ok(spaces.into_iter().fold(Space::default(), together))
    }

    /// The next piece of each prefix that continues this path.
    fn names_below(&self, path: &StoragePath) -> impl Iterator<Item = &[u8]> {
        let top = path.as_bytes().strip_suffix(b"/").unwrap_or(path.as_bytes()).to_vec();
        self.exports.iter().filter_map(move |export| {
            let rest = export.prefix.strip_prefix(top.as_slice())?.strip_prefix(b"/")?;
            rest.split(|byte| *byte == b'/').next()
        })
    }
}

/// Whether a prefix continues a path.
fn lies_below(prefix: &[u8], path: &StoragePath) -> bool {
    let top = path.as_bytes().strip_suffix(b"/").unwrap_or(path.as_bytes());
    prefix.strip_prefix(top).is_some_and(|rest| rest.starts_with(b"/"))
}

/// What is known of a folder that is there only because exports lie below it.
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
        let (storage, below) = match how.write || how.creation != Creation::Existing {
            true => self.writable(path)?,
            false => self.storage(path)?,
        };
        storage.open(&below, how, opaque)
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
        with_facts: bool,
        opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>> {
        let above: BTreeMap<_, _> = self
            .names_below(path)
            .map(|name| (name.to_vec(), with_facts.then(folder_of_exports)))
            .collect();
        let entries = match self.export(path) {
            Some((export, below)) => {
                let mut entries = export.storage.list(&below, with_facts, opaque)?;
                entries.retain(|entry| below.parent().is_some() || entry.name != JOURNALS);
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

    fn make_folder(&self, path: &StoragePath, mode: u32, parents: bool) -> StorageResult<()> {
        if parents && self.export(path).is_none() && self.is_above(path) {
            return Ok(());
        }
        let (storage, below) = self.writable(path)?;
        storage.make_folder(&below, mode, parents)
    }

    fn remove_file(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        let (storage, below) = self.writable(path)?;
        storage.remove_file(&below, opaque)
    }

    fn remove_folder(&self, path: &StoragePath) -> StorageResult<()> {
        let (storage, below) = self.writable(path)?;
        storage.remove_folder(&below)
    }

    fn rename(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
        let (storage, from_below) = self.writable(from)?;
        let (other, to_below) = self.writable(to)?;
        if !std::ptr::addr_eq(storage, other) {
            let what = format!("{from} and {to} lie in different exports");
            return Err(StorageError::refused(Errno::EXDEV, what));
        }
        storage.rename(&from_below, &to_below)
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

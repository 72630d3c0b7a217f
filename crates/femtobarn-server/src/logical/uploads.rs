//! Uploads: files that appear under their paths when they are complete and durable.
//!
//! 1. An upload is written into a folder at the top of its export that clients do not see. The caller syncs it before
//!    it finishes it.
//! 2. An upload that is dropped before it is finished is removed. Uploads that killed servers have left are removed
//!    when a server starts, after an hour without a write to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use femtobarn_catalog::clock;
use nix::errno::Errno;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::cluster::NameNews;
use super::exports::Exports;
use crate::physical::{
    Creation, Metadata, Opaque, OpenMode, Storage, StorageError, StoragePath, StorageResult,
    StoredFile,
};

/// The folder of uploads.
pub(super) const UPLOADS: &[u8] = b".femtobarn-uploads";

/// The age after which an upload is an orphan. Another server may serve the same folder.
const LEFT: Duration = Duration::from_secs(3600);

/// Permission bits of new files, if the client chooses none.
pub const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// A file that is being uploaded. Its methods may block. Dropping it may, too, but not within a tokio runtime.
pub struct Upload {
    storage: Arc<dyn Storage>,
    file: Arc<dyn StoredFile>,
    /// The path of the part and that of the finished file, within the storage.
    part: StoragePath,
    below: StoragePath,
    /// The path for clients, and the observer of new names.
    path: StoragePath,
    news: NameNews,
    is_finished: AtomicBool,
}

impl Upload {
    /// Begins to upload a file with these permission bits, and this size if it is known.
    ///
    /// # Errors
    /// The errors of the storage; `EBUSY` if the path is the top of an export.
    pub fn begin(
        exports: &Exports,
        path: &StoragePath,
        mode: u32,
        size: Option<u64>,
    ) -> StorageResult<Self> {
        let (storage, below) = exports.locate_writable(path)?;
        if below.parent().is_none() {
            return Err(StorageError::cannot("store", path, Errno::EBUSY));
        }
        let part = folder()?.join(Uuid::new_v4().simple().to_string().as_bytes())?;
        let how = OpenMode { write: true, creation: Creation::New, make_folders: true, mode };
        let announced = size.map(|size| format!("oss.asize={size}")).unwrap_or_default();
        let file = storage.open(&part, how, Opaque(announced.as_bytes()))?;
        Ok(Upload {
            storage,
            file,
            part,
            below,
            path: path.clone(),
            news: exports.news.clone(),
            is_finished: AtomicBool::new(false),
        })
    }

    /// The open file.
    pub fn file(&self) -> &Arc<dyn StoredFile> {
        &self.file
    }

    /// Writes all of the bytes.
    ///
    /// # Errors
    /// The errors of the storage.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> StorageResult<()> {
        self.file.write_at(offset, bytes)
    }

    /// Makes the bytes durable.
    ///
    /// # Errors
    /// The errors of the storage.
    pub fn sync(&self) -> StorageResult<()> {
        self.file.sync()
    }

    /// Gives the file its path, makes missing folders, and returns its metadata. An existing file is replaced, or
    /// refused with `EEXIST` unless `replaces`.
    ///
    /// # Errors
    /// The errors of the storage; then the old file stays.
    pub fn finish(&self, replaces: bool) -> StorageResult<Metadata> {
        if let Some((above, _)) = self.below.parent()
            && above.parent().is_some()
        {
            self.storage.make_folder(&above, FOLDER_MODE, true)?;
        }
        if replaces {
            self.storage.rename(&self.part, &self.below)?;
        } else {
            self.storage.rename_new(&self.part, &self.below)?;
        }
        self.is_finished.store(true, Ordering::Release);
        self.news.appears_with_folders(&self.path);
        self.storage.metadata(&self.below, Opaque::default())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if *self.is_finished.get_mut() {
            return;
        }
        let remains = Remains { storage: Arc::clone(&self.storage), part: self.part.clone() };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || drop(remains));
        }
    }
}

/// A file that is removed when this is dropped, also by a runtime that stops.
struct Remains {
    storage: Arc<dyn Storage>,
    part: StoragePath,
}

impl Drop for Remains {
    fn drop(&mut self) {
        if let Err(error) = self.storage.remove_file(&self.part, Opaque::default()) {
            tracing::warn!(?error, part = %self.part, "an abandoned upload cannot be removed from the disk");
        }
    }
}

/// Removes the remains of killed servers from a storage. Failures are logged.
pub(crate) fn remove_left(storage: &dyn Storage) {
    let Ok(folder) = folder() else { return };
    // Without uploads there is no folder.
    let Ok(entries) = storage.list(&folder, true, Opaque::default()) else { return };
    for entry in entries {
        let is_left = entry.metadata.is_some_and(|metadata| {
            clock::utc().duration_since(metadata.modified).is_ok_and(|age| age > LEFT)
        });
        let removed = folder.join(&entry.name).and_then(|path| {
            if is_left { storage.remove_file(&path, Opaque::default()) } else { Ok(()) }
        });
        if let Err(error) = removed {
            tracing::warn!(?error, "an abandoned upload cannot be removed from the disk");
        }
    }
}

fn folder() -> StorageResult<StoragePath> {
    StoragePath::new(b"/")?.join(UPLOADS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logical::exports::ExportOptions;
    use crate::physical::PosixStorage;

    #[test]
    fn an_upload_appears_when_it_is_finished_and_leaves_nothing_when_it_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &str| StoragePath::new(path.as_bytes()).expect("a path");
        let storage = Arc::new(PosixStorage::new(folder.path()).expect("a storage"));
        let mut exports = Exports::default();
        exports.add(&at("/data"), storage, ExportOptions::default()).expect("an export");
        let begin = || {
            let upload =
                Upload::begin(&exports, &at("/data/a/b"), FILE_MODE, None).expect("an upload");
            upload.write_at(0, b"new").expect("a write");
            upload
        };
        let names = |folder: &std::path::Path| std::fs::read_dir(folder).expect("a folder").count();
        drop(begin());
        assert!(!folder.path().join("a").exists());
        begin().finish(false).expect("a new file");
        let again = begin().finish(false).expect_err("it exists");
        assert!(matches!(again, StorageError::Refused(Errno::EEXIST, _)), "{again:?}");
        begin().finish(true).expect("it is replaced");
        assert_eq!(std::fs::read(folder.path().join("a/b")).expect("the file"), b"new");
        assert_eq!(names(&folder.path().join(".femtobarn-uploads")), 0);
        let seen = exports.list(&at("/data"), false, Opaque::default()).expect("a list");
        assert_eq!(seen.iter().map(|entry| &*entry.name).collect::<Vec<_>>(), [b"a"]);
        let hidden = exports.metadata(&at("/data/.femtobarn-uploads"), Opaque::default());
        assert!(hidden.is_err());
    }
}

//! Requests that cannot be made, with a storage that has no room for their pins.

use super::*;
use crate::logical::exports::ExportOptions;
use crate::physical::{FolderEntry, Metadata, OpenMode, Space, StoredFile};

/// A storage that pins as many files as it is allowed to, and whose files never arrive.
#[derive(Default)]
struct Pinning {
    pins_max: usize,
    pinned: Mutex<Vec<StoragePath>>,
}

fn nothing<T>() -> StorageResult<T> {
    Err(StorageError::refused(Errno::ENOENT, "nothing is there"))
}

impl Storage for Pinning {
    fn open(
        &self,
        _: &StoragePath,
        _: OpenMode,
        _: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        nothing()
    }
    fn metadata(&self, _: &StoragePath, _: Opaque<'_>) -> StorageResult<Metadata> {
        nothing()
    }
    fn list(&self, _: &StoragePath, _: bool, _: Opaque<'_>) -> StorageResult<Vec<FolderEntry>> {
        nothing()
    }
    fn space(&self, _: &StoragePath) -> StorageResult<Space> {
        nothing()
    }
    fn attributes(&self, _: &StoragePath) -> StorageResult<Vec<Vec<u8>>> {
        nothing()
    }
    fn attribute(&self, _: &StoragePath, _: &[u8]) -> StorageResult<Vec<u8>> {
        nothing()
    }
    fn stage(
        &self,
        _: &StoragePath,
        _: WantedBy<'_>,
        _: Opaque<'_>,
    ) -> StorageResult<Option<Duration>> {
        Ok(Some(Duration::ZERO))
    }
    fn pin(&self, paths: &[StoragePath], _: &str, until: Option<SystemTime>) -> StorageResult<()> {
        let mut pinned = self.pinned.lock();
        pinned.retain(|path| !paths.contains(path));
        if until.is_some() && pinned.len() + paths.len() > self.pins_max {
            return Err(StorageError::refused(Errno::ENOSPC, "no room for a pin"));
        }
        pinned.extend(until.is_some().then_some(paths).into_iter().flatten().cloned());
        Ok(())
    }
}

#[test]
fn a_request_that_cannot_be_pinned_or_kept_leaves_nothing() {
    let federation = tempfile::tempdir().unwrap();
    let gone = federation.path().join("gone");
    let wanted = |path: &str, lifetime| WantedFile { path: path.to_owned(), lifetime };
    // Pins with the same end are made together.
    let files = vec![wanted("/a", 60), wanted("/b", 90)];
    for (pins_max, folder) in [(1, federation.path()), (2, gone.as_path())] {
        let storage = Arc::new(Pinning { pins_max, ..Pinning::default() });
        let mut exports = Exports::default();
        let top = StoragePath::new(b"/").unwrap();
        exports.add(&top, Arc::clone(&storage) as _, ExportOptions::default()).unwrap();
        let requests = StageRequests::open([folder.to_owned()].into_iter());
        requests.begin(&exports, "ann", files.clone()).unwrap_err();
        assert!(storage.pinned.lock().is_empty());
        assert!(requests.requests.lock().is_empty());
    }
    assert_eq!(std::fs::read_dir(federation.path()).unwrap().count(), 0);
}

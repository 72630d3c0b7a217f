//! The conformance suite of storages: each rule is a test, run over all of them.

mod attributes;
mod capacity;
mod direct_writes;
mod faulty;
mod files;
mod folders;
mod posix;
mod throttle;

use std::sync::Arc;
use std::time::Duration;

use femtobarn_server::physical::{
    Creation, DiskModel, FaultyStorage, MemoryStorage, Opaque, OpenMode, PosixStorage, Storage,
    StorageError, StoragePath, StorageResult, StoredFile, ThrottledStorage,
};
use nix::errno::Errno;

/// An empty storage of one kind, and its folder if it has one.
pub(crate) struct Stage {
    pub kind: &'static str,
    pub storage: Arc<dyn Storage>,
    _folder: Option<tempfile::TempDir>,
}

/// One storage of each kind.
fn stages() -> Vec<Stage> {
    let slowness = DiskModel {
        bytes_per_second: 22_000_000,
        seeks_per_second: 100,
        block_size: 4096,
        cache_bytes: 1 << 20,
        write_behind: Duration::from_secs(1),
        defer_above: None,
    };
    let clock = Arc::new(throttle::TestClock::default());
    let memory = || Arc::new(MemoryStorage::new(64 << 20));
    let throttled = ThrottledStorage::throttled(memory(), slowness, &[], clock);
    vec![
        posix_stage(),
        Stage { kind: "memory", storage: memory(), _folder: None },
        Stage { kind: "throttled", storage: Arc::new(throttled), _folder: None },
        Stage {
            kind: "faulty",
            storage: Arc::new(FaultyStorage::failing(memory(), vec![])),
            _folder: None,
        },
    ]
}

fn posix_stage() -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let storage = Arc::new(PosixStorage::new(folder.path()).unwrap());
    Stage { kind: "posix", storage, _folder: Some(folder) }
}

impl Stage {
    fn open(&self, path: &str, how: OpenMode) -> StorageResult<Arc<dyn StoredFile>> {
        self.storage.open(&at(path), how, Opaque::default())
    }

    fn make(&self, path: &str, bytes: &[u8]) -> Arc<dyn StoredFile> {
        let file = self.open(path, how(Creation::New)).unwrap();
        file.write_at(0, bytes).unwrap();
        file
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let file = self.open(path, OpenMode::default()).unwrap();
        all_of(&*file)
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = self.storage.list(&at(path), false, Opaque::default()).unwrap();
        entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
    }
}

fn at(path: &str) -> StoragePath {
    StoragePath::new(path.as_bytes()).unwrap()
}

fn how(creation: Creation) -> OpenMode {
    OpenMode { creation, mode: 0o644, ..OpenMode::default() }
}

fn to_write() -> OpenMode {
    OpenMode { write: true, ..OpenMode::default() }
}

fn all_of(file: &dyn StoredFile) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().size as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// The error's number, if it is one of the operating system's.
fn errno_of<T>(answer: StorageResult<T>) -> Option<Errno> {
    match answer {
        Err(StorageError::Refused(errno, _)) => Some(errno),
        _ => None,
    }
}

//! A federation as presented to programs that do not know Femtobarn.

mod checksums;
mod complete;
mod histories;
mod hostile;
mod in_place;
mod names;
mod raw;
mod stable;

use std::path::PathBuf;
use std::sync::Arc;

use femtobarn::{Class, ContainerOptions, Federation, Transaction, TransactionOptions};
use femtobarn_catalog::LocalCatalogue;
use femtobarn_server::physical::{
    FederationStorage, Opaque, OpenMode, PosixStorage, Storage, StorageError, StoragePath,
    StorageResult, StoredFile,
};
use nix::errno::Errno;
use rntuple::{Array, Primitive, Reader, Value, bytes_of};
use tempfile::TempDir;

use crate::remote::Anyone;

/// A federation that the tests write to, and a storage that presents it.
struct Stage {
    folder: TempDir,
    federation: Federation,
    shown: Arc<FederationStorage>,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("test.fed");
        let federation = Federation::create(&place, "test").unwrap();
        let catalogue = Arc::new(LocalCatalogue::open(&place).unwrap());
        let files = Arc::new(PosixStorage::new(&place).unwrap());
        let shown = FederationStorage::new(catalogue, files).writable(Arc::new(Anyone));
        let shown = Arc::new(shown);
        Stage { folder, federation, shown }
    }

    fn begin(&self) -> Transaction {
        self.federation.transaction(TransactionOptions::default()).unwrap()
    }

    fn open(&self, path: &str, opaque: &str) -> StorageResult<Arc<dyn StoredFile>> {
        self.shown.open(&at(path), OpenMode::default(), Opaque(opaque.as_bytes()))
    }

    /// All bytes of a database as it is shown.
    fn bytes(&self, path: &str, opaque: &str) -> Vec<u8> {
        all_of(&*self.open(path, opaque).unwrap())
    }

    fn reader(&self, path: &str, opaque: &str, name: &str) -> Reader {
        Reader::open(Arc::new(self.bytes(path, opaque)), name).unwrap()
    }

    /// A database's file.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("test.fed/databases").join(name)
    }

    /// Creates `run7/events` with ten events.
    fn with_ten_events(self) -> Self {
        let mut transaction = self.begin();
        let database = transaction.create_database("run7").unwrap();
        let options = ContainerOptions::default();
        let key = transaction.create_container(database, "events", &class(), options).unwrap();
        for n in 0..10 {
            transaction.append_value(key, event(n)).unwrap();
        }
        transaction.commit().unwrap();
        self
    }

    /// Adds events to `run7/events`.
    fn append(&self, numbers: std::ops::Range<u64>) {
        let mut transaction = self.begin();
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, "events").unwrap();
        for n in numbers {
            transaction.append_value(key, event(n)).unwrap();
        }
        transaction.commit().unwrap();
    }
}

fn class() -> Class {
    let json = r#"{"name": "Event", "version": 1, "fields": [
        {"name": "n", "type": "uint64"}, {"name": "hits", "type": {"list": "uint16"}}]}"#;
    Class::from_json(json).unwrap()
}

fn event(n: u64) -> Value {
    let hits = (0..n % 5).map(|hit| Value::UInt(n % 1000 + hit)).collect();
    Value::Record(vec![("n".into(), Value::UInt(n)), ("hits".into(), Value::List(hits))])
}

/// The events with these numbers, as an array.
fn events(numbers: &[u64]) -> Array {
    let counts = numbers.iter().map(|n| (n % 5) as i64);
    let ends = counts.scan(0, |end, count| {
        *end += count;
        Some(*end)
    });
    let offsets: Vec<i64> = [0].into_iter().chain(ends).collect();
    let hits = numbers.iter().flat_map(|n| (0..n % 5).map(move |hit| (n % 1000 + hit) as u16));
    let hits = Array::List {
        offsets: bytes_of(offsets),
        content: Array::primitive(Primitive::UInt16, hits.collect()).into(),
        optional: false,
    };
    let members = vec![
        ("n".to_owned(), Array::primitive(Primitive::UInt64, numbers.to_vec())),
        ("hits".to_owned(), hits),
    ];
    Array::Record { length: numbers.len(), members }
}

fn at(path: &str) -> StoragePath {
    StoragePath::new(path.as_bytes()).unwrap()
}

/// The bytes of a file, read in pieces that do not divide it evenly.
fn all_of(file: &dyn StoredFile) -> Vec<u8> {
    let size = file.metadata().unwrap().size as usize;
    let mut bytes = vec![0xaa; size + 1];
    let mut done = 0;
    while done < size {
        let end = bytes.len().min(done + 100_003);
        let read = file.read_at(done as u64, &mut bytes[done..end]).unwrap();
        assert_eq!(read, (end - done).min(size - done));
        done += read;
    }
    bytes.truncate(size);
    bytes
}

/// All entries of an RNTuple.
fn entries(reader: &Reader) -> Vec<Value> {
    let array = reader.read(&reader.select_all(), 0..reader.entries()).unwrap();
    (0..array.len()).map(|at| array.value(at).unwrap()).collect()
}

fn errno_of<T>(answer: StorageResult<T>) -> Option<Errno> {
    match answer {
        Err(StorageError::Refused(errno, _)) => Some(errno),
        _ => None,
    }
}

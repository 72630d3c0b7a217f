//! Helpers of the tests: a folder, classes, and a few events.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use femtobarn::{Class, ContainerOptions, Federation, Transaction, TransactionOptions};
use rntuple::tfile::KeyChain;
use rntuple::{Array, Primitive, Value};
use tempfile::TempDir;

/// A federation in a folder of its own.
pub(crate) fn federation() -> (TempDir, Federation) {
    let folder = tempfile::tempdir().unwrap();
    let federation = Federation::create(&folder.path().join("test.fed"), "test").unwrap();
    (folder, federation)
}

/// The same federation, reopened.
pub(crate) fn reopened(folder: &TempDir) -> Federation {
    Federation::open(&Path::new(folder.path()).join("test.fed")).unwrap()
}

/// Sets a flag when dropped, also by a panic, that tells the other threads of a test to end.
pub(crate) struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A class with a run and an event number.
pub(crate) fn event_class() -> Class {
    let json = r#"{"name": "Event", "version": 1, "fields": [
        {"name": "run", "type": "uint32"}, {"name": "event", "type": "uint64"}]}"#;
    Class::from_json(json).unwrap()
}

/// Events of one run, numbered from `first` on.
pub(crate) fn events(run: u32, first: u64, count: u64) -> Array {
    let runs = vec![run; count as usize];
    let numbers: Vec<u64> = (first..first + count).collect();
    Array::Record {
        length: count as usize,
        members: vec![
            ("run".to_owned(), Array::primitive(Primitive::UInt32, runs)),
            ("event".to_owned(), Array::primitive(Primitive::UInt64, numbers)),
        ],
    }
}

/// Creates `run7/events` with ten events.
pub(crate) fn with_ten_events(federation: &Federation) {
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    let database = transaction.create_database("run7").unwrap();
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "events", &event_class(), options).unwrap();
    transaction.extend(key, events(7, 0, 10)).unwrap();
    transaction.commit().unwrap();
}

/// The event number of each object of a container that is not deleted.
pub(crate) fn numbers(federation: &Federation, path: &str) -> Vec<u64> {
    let view = federation.snapshot(None).unwrap().view(path).unwrap();
    let live = view.live_entries(0..view.entries()).unwrap();
    live.into_iter().map(|entry| number(&view.value(entry).unwrap())).collect()
}

/// The event number of one object.
pub(crate) fn number(event: &Value) -> u64 {
    event.member("event").and_then(Value::as_integer).unwrap() as u64
}

/// A transaction with default options.
pub(crate) fn begin(federation: &Federation) -> Transaction {
    federation.transaction(TransactionOptions::default()).unwrap()
}

/// Asserts that the keys of a sealed file follow each other from its front to its end.
pub(crate) fn assert_chain(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    let keys: Vec<_> = KeyChain::of_file(&file).unwrap().map(Result::unwrap).collect();
    assert!(keys.iter().all(|(position, key)| key.gap || *position == key.position));
    let (position, last) = keys.last().unwrap();
    assert!(position + last.size <= file.metadata().unwrap().len());
}

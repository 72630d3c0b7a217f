//! Objects so large that they are written past the page cache, while small writes to the same file go through it:
//! all readers see the bytes that were written.

use bytes::Bytes;
use femtobarn::{CheckLevel, Class, ContainerKey, Federation, Transaction};
use rntuple::Value;

use crate::support::{begin, federation, reopened};

const OBJECT_BYTES: usize = 10_240;

rntuple::row! {
    struct Object { id: u64, blob: Bytes }
}

fn create(federation: &Federation, database: &str, name: &str) {
    let json = r#"{"name": "Object", "version": 1, "fields": [
        {"name": "id", "type": "uint64"}, {"name": "blob", "type": {"list": "uint8"}}]}"#;
    let class = Class::from_json(json).unwrap();
    let mut transaction = begin(federation);
    let database =
        transaction.database(database).or_else(|_| transaction.create_database(database)).unwrap();
    transaction.create_container(database, name, &class, Default::default()).unwrap();
    transaction.commit().unwrap();
}

fn open(transaction: &mut Transaction, path: &str) -> ContainerKey {
    let (database, name) = path.split_once('/').unwrap();
    let database = transaction.database(database).unwrap();
    transaction.container(database, name).unwrap()
}

fn blob(id: u64) -> Bytes {
    let words = (0..OBJECT_BYTES as u64 / 8).map(|at| id.wrapping_mul(0x9e37_79b9) ^ at);
    words.flat_map(u64::to_le_bytes).collect()
}

fn append(transaction: &mut Transaction, key: ContainerKey, ids: std::ops::Range<u64>) {
    let mut rows = transaction.rows::<Object>(key).unwrap();
    for id in ids {
        rows.append(&Object { id, blob: blob(id) }).unwrap();
    }
}

fn assert_objects(federation: &Federation, path: &str, count: u64) {
    let view = federation.snapshot(None).unwrap().view(path).unwrap();
    assert_eq!(view.entries(), count, "{path}");
    for id in 0..count {
        let value = view.value(id).unwrap();
        assert_eq!(value.member("blob"), Some(&Value::Bytes(blob(id))), "object {id} of {path}");
    }
}

/// Reads the whole file, so that the page cache has its present bytes.
fn read_into_page_cache(folder: &tempfile::TempDir, database: &str) {
    let file = folder.path().join(format!("test.fed/databases/{database}.root"));
    assert!(!std::fs::read(file).unwrap().is_empty());
}

#[test]
fn bytes_written_past_the_page_cache_are_read_by_all() {
    let (folder, federation) = federation();
    create(&federation, "db", "objects");
    let mut count = 0;
    // Small writes stay in the page cache, large ones bypass it; the cache already has the bytes before the new ones.
    for more in [10, 1500, 3, 700, 1, 900] {
        let mut transaction = begin(&federation);
        let key = open(&mut transaction, "db/objects");
        append(&mut transaction, key, count..count + more / 2);
        read_into_page_cache(&folder, "db");
        append(&mut transaction, key, count + more / 2..count + more);
        count += more;
        let own = transaction.view("db/objects").unwrap();
        assert_eq!(own.entries(), count);
        assert_eq!(
            own.value(count - 1).unwrap().member("blob"),
            Some(&Value::Bytes(blob(count - 1)))
        );
        drop(own);
        transaction.commit().unwrap();
        assert_objects(&federation, "db/objects", count);
    }
    drop(federation);
    let federation = reopened(&folder);
    assert_objects(&federation, "db/objects", count);
    assert!(federation.check(CheckLevel::Full, &mut |_| true).unwrap().problems.is_empty());
}

/// The extents of two writers take turns in the file, and readers have pages of both in the cache.
#[test]
fn large_and_small_writers_share_a_file() {
    let (folder, federation) = federation();
    let paths = ["db/one", "db/two", "db/small"];
    paths.iter().for_each(|path| create(&federation, "db", path.split_once('/').unwrap().1));
    let handles = paths.map(|_| reopened(&folder));
    let mut counts = [0; 3];
    for round in 0..3 {
        let mut transactions = [0, 1, 2].map(|at| begin(&handles[at]));
        let keys = [0, 1, 2].map(|at| open(&mut transactions[at], paths[at]));
        for _ in 0..4 {
            for (at, more) in [(0, 150 + 70 * round), (2, 2), (1, 130), (2, 1)] {
                append(&mut transactions[at], keys[at], counts[at]..counts[at] + more);
                counts[at] += more;
            }
            read_into_page_cache(&folder, "db");
        }
        for transaction in transactions {
            transaction.commit().unwrap();
        }
        for (path, count) in paths.iter().zip(counts) {
            assert_objects(&federation, path, count);
        }
    }
    drop(handles);
    assert!(federation.check(CheckLevel::Full, &mut |_| true).unwrap().problems.is_empty());
}

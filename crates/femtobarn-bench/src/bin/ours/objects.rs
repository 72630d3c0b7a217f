//! Objects of 10 KB: a number and opaque bytes.

use std::path::Path;

use bytes::Bytes;
use femtobarn::{
    Class, ContainerKey, ContainerOptions, Federation, Snapshot, Transaction, TransactionOptions,
};
use rntuple::{Value, row};

use femtobarn_bench::{Outcome, Random, Stopwatch};

const OBJECT_BYTES: usize = 10_240;

const CLASS: &str = r#"{"name": "Object", "version": 1, "fields": [
    {"name": "id", "type": "uint64"}, {"name": "blob", "type": {"list": "uint8"}}]}"#;

row! {
    struct Object { id: u64, blob: Bytes }
}

/// Makes a federation of objects to be read.
pub(crate) fn write(folder: &Path, pool: &Path, count: u64, options: ContainerOptions) -> Outcome {
    let pool = Bytes::from(std::fs::read(pool)?);
    let federation = create(folder, options)?;
    let watch = Stopwatch::start();
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    fill(&mut transaction, &pool, 0..count)?;
    transaction.commit()?;
    watch.report(count, count * OBJECT_BYTES as u64, 0);
    Ok(())
}

/// Reads objects at random by their OIDs.
pub(crate) fn random(folder: &Path, reads: u64) -> Outcome {
    let snapshot = Federation::open(folder)?.snapshot(None)?;
    let view = snapshot.view("objects/objects")?;
    let entries = view.entries();
    // The hot case: every object has been read before, as for the peer whose file is in memory.
    for entry in 0..entries {
        blob_of(&snapshot, view.oid(entry))?;
    }
    let mut random = Random::default();
    let (mut bytes, mut check) = (0, 0);
    let watch = Stopwatch::start();
    for _ in 0..reads {
        let blob = blob_of(&snapshot, view.oid(random.below(entries)))?;
        check += u64::from(blob[17]);
        bytes += blob.len() as u64;
    }
    watch.report(reads, bytes, check);
    Ok(())
}

fn blob_of(
    snapshot: &Snapshot,
    oid: femtobarn::Oid,
) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    match snapshot.object(oid)? {
        Value::Record(members) => match members.into_iter().nth(1) {
            Some((_, Value::Bytes(blob))) => Ok(blob),
            _ => Err("the object has no blob".into()),
        },
        _ => Err("the object is not a record".into()),
    }
}

fn create(
    folder: &Path,
    options: ContainerOptions,
) -> Result<Federation, Box<dyn std::error::Error + Send + Sync>> {
    let federation = Federation::create(folder, "bench")?;
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let database = transaction.create_database("objects")?;
    transaction.create_container(database, "objects", &Class::from_json(CLASS)?, options)?;
    transaction.commit()?;
    Ok(federation)
}

fn fill(transaction: &mut Transaction, pool: &Bytes, ids: std::ops::Range<u64>) -> Outcome {
    let database = transaction.database("objects")?;
    let key: ContainerKey = transaction.container(database, "objects")?;
    let mut rows = transaction.rows::<Object>(key)?;
    for id in ids {
        rows.append(&Object { id, blob: object(pool, id) })?;
    }
    Ok(())
}

fn object(pool: &Bytes, id: u64) -> Bytes {
    let distinct = pool.len() / OBJECT_BYTES;
    let start = id as usize % distinct * OBJECT_BYTES;
    pool.slice(start..start + OBJECT_BYTES)
}

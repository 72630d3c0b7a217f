//! Objects that the database does not look into, appended one by one by one or several writers.

use std::path::Path;

use bytes::Bytes;
use femtobarn::{
    Class, ContainerKey, ContainerOptions, Federation, Transaction, TransactionOptions,
};
use rntuple::{Cell, row};

use femtobarn_bench::{Appends, Outcome, Pool, SMALL_BYTES, SMALL_OBJECTS, Stopwatch};

/// Objects of other sizes are lists of bytes, which have a place for their length.
pub const FIXED_BYTES: usize = 100;

const FIXED: &str = r#"{"name": "Fixed", "version": 1, "fields": [
    {"name": "bytes", "type": {"array": {"of": "uint8", "size": 100}}}]}"#;
const OBJECT: &str = r#"{"name": "Object", "version": 1, "fields": [
    {"name": "id", "type": "uint64"}, {"name": "blob", "type": {"list": "uint8"}}]}"#;

row! {
    pub struct Fixed { pub bytes: [u8; 100] }
}
row! {
    pub struct Object { id: u64, pub blob: Bytes }
}

impl Fixed {
    /// An object of the pool.
    pub fn new(pool: &Pool, id: u64) -> Self {
        Fixed { bytes: pool.object(id).try_into().expect("the pool's objects are so long") }
    }
}

impl Object {
    /// An object of the pool.
    pub fn new(pool: &Pool, id: u64) -> Self {
        Object { id, blob: pool.shared(id) }
    }
}

/// The class of objects of so many bytes.
pub fn class_of(size: usize) -> Outcome<Class> {
    Ok(Class::from_json(if size == FIXED_BYTES { FIXED } else { OBJECT })?)
}

/// Where writers write to: containers of one database, or a database each.
fn place(writer: u64, of: &str) -> (String, String) {
    match of {
        "shared" => ("objects".to_owned(), format!("w{writer}")),
        _ => (format!("objects{writer}"), "objects".to_owned()),
    }
}

/// Makes a federation with a container for each writer.
pub fn create(folder: &Path, of: &str, size: usize, writers: u64) -> Outcome {
    let federation = Federation::create(folder, "bench")?;
    let class = class_of(size)?;
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    for writer in 0..writers {
        let (database, container) = place(writer, of);
        let id = match writer > 0 && of == "shared" {
            true => transaction.database(&database)?,
            false => transaction.create_database(&database)?,
        };
        transaction.create_container(id, &container, &class, ContainerOptions::default())?;
    }
    transaction.commit()?;
    Ok(())
}

/// Appends objects to the writer's container.
pub fn append(folder: &Path, of: &str, work: &Appends) -> Outcome {
    match work.pool.size() {
        FIXED_BYTES => append_rows(folder, of, work, |id| Fixed::new(&work.pool, id)),
        _ => append_rows(folder, of, work, |id| Object::new(&work.pool, id)),
    }
}

fn append_rows<R: Cell>(
    folder: &Path,
    of: &str,
    work: &Appends,
    row: impl Fn(u64) -> R,
) -> Outcome {
    let federation = Federation::open(folder)?;
    let watch = Stopwatch::start();
    for ids in work.transactions() {
        let mut transaction = federation.transaction(TransactionOptions::default())?;
        let key = container(&mut transaction, work.writer, of)?;
        let mut rows = transaction.rows::<R>(key)?;
        for id in ids {
            rows.append(&row(id))?;
        }
        transaction.commit()?;
    }
    drop(federation);
    watch.report_on_disk(work.count, work.bytes(), folder)
}

/// Commits small transactions.
pub fn commits(folder: &Path, of: &str, writer: u64, seconds: f64) -> Outcome {
    let federation = Federation::open(folder)?;
    femtobarn_bench::commits(seconds, |_| {
        let mut transaction = federation.transaction(TransactionOptions::default())?;
        let key = container(&mut transaction, writer, of)?;
        let mut rows = transaction.rows::<Fixed>(key)?;
        for _ in 0..SMALL_OBJECTS {
            rows.append(&Fixed { bytes: [1; SMALL_BYTES] })?;
        }
        transaction.commit()?;
        Ok(())
    })
}

fn container(transaction: &mut Transaction, writer: u64, of: &str) -> Outcome<ContainerKey> {
    let (database, container) = place(writer, of);
    let database = transaction.database(&database)?;
    Ok(transaction.container(database, &container)?)
}

//! SQLite: a write-ahead log that is synced at each commit, prepared statements, one table for each writer.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use femtobarn_bench::{Appends, Outcome, Reads, SMALL_BYTES, SMALL_OBJECTS, Stopwatch, sum};

/// How long a writer waits for the others.
const WAIT: Duration = Duration::from_secs(120);

/// Appends objects to the writer's table.
pub(crate) fn append(folder: &Path, work: &Appends) -> Outcome {
    let mut connection = open(folder, work.writer, work.pool.size())?;
    let statement = insertion(work.writer);
    let watch = Stopwatch::start();
    for ids in work.transactions() {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut insert = transaction.prepare_cached(&statement)?;
        for id in ids {
            insert.execute((id as i64, work.pool.object(id)))?;
        }
        drop(insert);
        transaction.commit()?;
    }
    // The last process to close the database moves the rest of the log into it.
    drop(connection);
    watch.report_on_disk(work.count, work.bytes(), folder)
}

/// Reads objects at random, by key.
pub(crate) fn random(folder: &Path, reads: &Reads) -> Outcome {
    let connection = open(folder, 0, reads.size as usize)?;
    let mut select = connection.prepare("SELECT object FROM w0 WHERE id = ?")?;
    reads.one_by_one(|id| {
        Ok(select.query_row([id as i64], |row| Ok(sum(row.get_ref(0)?.as_blob()?)))?)
    })
}

/// Reads all objects in the order of their keys.
pub(crate) fn scan(folder: &Path, reads: &Reads) -> Outcome {
    let connection = open(folder, 0, reads.size as usize)?;
    let mut select = connection.prepare("SELECT object FROM w0 ORDER BY id")?;
    reads.in_order(|| {
        let mut rows = select.query(())?;
        let mut check = 0_u64;
        while let Some(row) = rows.next()? {
            check = check.wrapping_add(sum(row.get_ref(0)?.as_blob()?));
        }
        Ok(check)
    })
}

/// Commits small transactions.
pub(crate) fn commits(folder: &Path, writer: u64, seconds: f64) -> Outcome {
    let mut connection = open(folder, writer, SMALL_BYTES)?;
    let (statement, object) = (insertion(writer), [1; SMALL_BYTES]);
    femtobarn_bench::commits(seconds, |number| {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut insert = transaction.prepare_cached(&statement)?;
        for id in number * SMALL_OBJECTS..(number + 1) * SMALL_OBJECTS {
            insert.execute((id as i64, &object))?;
        }
        drop(insert);
        Ok(transaction.commit()?)
    })
}

fn insertion(writer: u64) -> String {
    format!("INSERT INTO w{writer} VALUES (?, ?)")
}

/// Pages of 16 KB suit objects of 100 KB and more, says SQLite ("Internal Versus External BLOBs").
fn open(folder: &Path, writer: u64, size: usize) -> Outcome<Connection> {
    let page_bytes = if size < 100_000 { 4096 } else { 16384 };
    let connection = Connection::open(folder.join("objects.sqlite"))?;
    connection.busy_timeout(WAIT)?;
    connection.execute_batch(&format!(
        "PRAGMA page_size = {page_bytes}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         PRAGMA cache_size = -65536; PRAGMA mmap_size = 1073741824;
         CREATE TABLE IF NOT EXISTS w{writer} (id INTEGER PRIMARY KEY, object BLOB);"
    ))?;
    Ok(connection)
}

//! Writers that are killed, and the check of their commits.
//!
//! Each writer has a container of its own, to which each of its transactions appends one object, so the number of
//! entries is the number of its commits. Depending on its number, a transaction also appends to a container that
//! all writers share, or deletes an earlier object of the writer. The number of commits thus determines all
//! contents, whichever writers were killed.

use std::path::Path;
use std::time::Duration;

use femtobarn::{ErrorKind, Federation, Profile, Result, Snapshot, TransactionOptions};
use rntuple::Value;

use crate::random::SplitMix;
use crate::script::{class, object, small_pages};
use crate::verify::{objects, say};

/// The container that all writers append to.
const SHARED: (&str, &str) = ("shared", "all");
/// The name of each writer's own container.
const OWN: &str = "own";
/// Numbers of one writer's objects in the shared container.
const NUMBERS: u64 = 1 << 32;

/// A transaction's action in addition to appending its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extra {
    Nothing,
    /// Appends to the shared container.
    Share,
    /// Deletes the writer's own object at this entry.
    Delete(u64),
}

fn extra(writer: u64, number: u64) -> Extra {
    let mut random = SplitMix(writer << 32 | number);
    match random.below(4) {
        0 => Extra::Share,
        // Only the transaction of twice its number deletes an object, so none is deleted twice.
        1 if number.is_multiple_of(2) && number > 0 => Extra::Delete(number / 2),
        _ => Extra::Nothing,
    }
}

fn database(writer: u64) -> String {
    // Two writers share a database.
    format!("database{}", writer / 2)
}

fn container(writer: u64) -> String {
    format!("{OWN}{writer}")
}

/// Creates the federation and the containers of `writers` writers.
///
/// # Errors
/// The errors of the engine.
pub fn prepare(folder: &Path, writers: u64) -> Result<()> {
    let federation = Federation::create(folder, "soak")?;
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let id = transaction.create_database(SHARED.0)?;
    transaction.create_container(id, SHARED.1, &class(), small_pages(Profile::Plain))?;
    for writer in 0..writers {
        let id = match writer % 2 {
            0 => transaction.create_database(&database(writer))?,
            _ => transaction.database(&database(writer))?,
        };
        let options = small_pages(Profile::Plain);
        transaction.create_container(id, &container(writer), &class(), options)?;
    }
    transaction.commit().map(drop)
}

/// Commits `count` transactions, unless the process is killed before. Calls `acknowledge` after each commit.
///
/// # Errors
/// Those of the engine, except [`ErrorKind::Busy`], after which the transaction is repeated.
pub fn write(
    folder: &Path,
    writer: u64,
    count: u64,
    mut acknowledge: impl FnMut(u64),
) -> Result<()> {
    let federation = Federation::open(folder)?;
    let path = format!("{}/{}", database(writer), container(writer));
    let first = federation.snapshot(None)?.view(&path)?.entries();
    let mut number = first;
    while number < first + count {
        match transact(&federation, writer, number) {
            Ok(()) => {
                acknowledge(number);
                number += 1;
            }
            Err(error) if error.kind() == ErrorKind::Busy => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn transact(federation: &Federation, writer: u64, number: u64) -> Result<()> {
    let lock_wait = Duration::from_secs(20);
    let options = TransactionOptions { lock_wait, ..TransactionOptions::default() };
    let mut transaction = federation.transaction(options)?;
    let id = transaction.database(&database(writer))?;
    let own = transaction.container(id, &container(writer))?;
    transaction.append_value(own, object(number, 0))?;
    match extra(writer, number) {
        Extra::Nothing => {}
        Extra::Delete(entry) => drop(transaction.delete(own, &[entry])?),
        Extra::Share => {
            let id = transaction.database(SHARED.0)?;
            let all = transaction.container(id, SHARED.1)?;
            transaction.append_value(all, object(writer * NUMBERS + number, 0))?;
        }
    }
    transaction.commit().map(drop)
}

/// Checks the contents of a snapshot. `acknowledged` has, for each writer, the number of commits that were acknowledged
/// before the snapshot was taken. Returns the number of commits in the snapshot.
///
/// # Errors
/// The first violation.
pub fn check(snapshot: &Snapshot, acknowledged: &[u64]) -> std::result::Result<Vec<u64>, String> {
    let mut counts = vec![];
    for (writer, acknowledged) in (0..).zip(acknowledged) {
        let path = format!("{}/{}", database(writer), container(writer));
        let found = objects(snapshot, &path).map_err(say(&path))?;
        let count = found.len() as u64;
        if count < *acknowledged {
            return Err(format!("{path}: {acknowledged} transactions acknowledged, {count} found"));
        }
        if found != expected(writer, count) {
            return Err(format!("{path}: not the contents after {count} transactions"));
        }
        counts.push(count);
    }
    let path = format!("{}/{}", SHARED.0, SHARED.1);
    let mut next = vec![0; counts.len()];
    for found in objects(snapshot, &path).map_err(say(&path))? {
        let number = found.as_ref().and_then(|value| value.member("number"));
        let number = number.and_then(Value::as_integer).unwrap_or(-1) as u64;
        let (writer, number) = ((number / NUMBERS) as usize, number % NUMBERS);
        let is_expected = next.get(writer).is_some_and(|next| {
            number >= *next
                && number < counts[writer]
                && (*next..=number).rev().skip(1).all(|n| extra(writer as u64, n) != Extra::Share)
                && extra(writer as u64, number) == Extra::Share
        });
        if !is_expected || found != Some(object(writer as u64 * NUMBERS + number, 0)) {
            return Err(format!("{path}: object {number} of writer {writer} is out of place"));
        }
        next[writer] = number + 1;
    }
    for (writer, (next, count)) in next.iter().zip(&counts).enumerate() {
        if (*next..*count).any(|number| extra(writer as u64, number) == Extra::Share) {
            return Err(format!("{path}: objects of writer {writer} after {next} are missing"));
        }
    }
    Ok(counts)
}

fn expected(writer: u64, count: u64) -> Vec<Option<Value>> {
    let mut objects: Vec<Option<Value>> = vec![];
    for number in 0..count {
        objects.push(Some(object(number, 0)));
        if let Extra::Delete(entry) = extra(writer, number) {
            objects[entry as usize] = None;
        }
    }
    objects
}

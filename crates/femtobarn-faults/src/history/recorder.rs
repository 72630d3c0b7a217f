//! Runs random transactions on the registers of a federation, and records them.
//!
//! A register is the list `words` of an object. Registers lie in a few containers of three databases, so that some
//! transactions share a container or database and others do not.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use femtobarn::{Error, ErrorKind, Federation, Isolation, Profile, Result, TransactionOptions};
use rntuple::Value;

use super::{
    IsolationLevel, ObservedTransaction, RegisterOperation, TransactionOutcome, check, settle,
};
use crate::random::SplitMix;
use crate::script::{class, object, small_pages, split, updated_fields};

/// The containers.
const PATHS: [&str; 4] = ["left/a", "left/b", "right/c", "far/d"];
/// Registers in each container.
const REGISTERS_EACH: u64 = 2;
/// The largest number of reads in a transaction.
const OPERATIONS_MAX: u64 = 4;

/// The longest pause of a writer after a failure, if its surroundings are deadly.
const PAUSE_MS_MAX: u64 = 2000;

/// The time that a writer gives the operator to restart a server.
const RESTARTED_WITHIN: Duration = Duration::from_secs(10);

/// Creates a federation with empty registers.
///
/// # Errors
/// Those of the engine.
pub fn prepare(folder: &Path) -> Result<()> {
    fill(&Federation::create(folder, "registers")?)
}

/// Adds empty registers to a federation.
///
/// # Errors
/// Those of the engine.
pub fn fill(federation: &Federation) -> Result<()> {
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    for path in PATHS {
        let (database, name) = split(path);
        let id = match transaction.database(database) {
            Ok(id) => id,
            Err(_) => transaction.create_database(database)?,
        };
        let key = transaction.create_container(id, name, &class(), small_pages(Profile::Plain))?;
        // Objects with numbers that are multiples of four have no words.
        for register in 0..REGISTERS_EACH {
            transaction.append_value(key, object(register * 4, 0))?;
        }
    }
    transaction.commit().map(drop)
}

/// The current list of each register.
///
/// # Errors
/// Those of the engine.
pub fn lists(federation: &Federation) -> Result<BTreeMap<u64, Vec<u64>>> {
    let snapshot = federation.snapshot(None)?;
    let mut lists = BTreeMap::new();
    for register in 0..PATHS.len() as u64 * REGISTERS_EACH {
        let (path, entry) = place(register);
        lists.insert(register, words(&snapshot.view(path)?.value(entry)?));
    }
    Ok(lists)
}

/// Checks that the history of a federation's registers satisfies snapshot isolation and that no transaction was
/// committed twice. Returns the number of committed transactions.
///
/// # Errors
/// A text that describes the violation.
pub fn judge(
    federation: &Federation,
    mut history: Vec<ObservedTransaction>,
) -> std::result::Result<u64, String> {
    let commits = federation.history(u64::MAX >> 1).map_err(|error| error.to_string())?;
    // The messages of writers' commits are numbers; those of other commits are not.
    let is_writers = |message: &str| message.parse::<u64>().is_ok();
    let commits: Vec<_> =
        commits.into_iter().filter(|commit| is_writers(&commit.message)).collect();
    let count = commits.len();
    let commits: BTreeMap<_, _> =
        commits.into_iter().map(|commit| (commit.message, commit.csn.0)).collect();
    if commits.len() != count {
        return Err("a transaction was committed twice".to_owned());
    }
    settle(&mut history, &commits);
    let last = lists(federation).map_err(|error| error.to_string())?;
    check(&history, &last, IsolationLevel::Snapshot).map_err(|anomaly| format!("{anomaly:?}"))?;
    let is_committed = |it: &&ObservedTransaction| it.outcome != TransactionOutcome::Aborted;
    Ok(history.iter().filter(is_committed).count() as u64)
}

fn place(register: u64) -> (&'static str, u64) {
    (PATHS[(register / REGISTERS_EACH) as usize], register % REGISTERS_EACH)
}

fn words(object: &Value) -> Vec<u64> {
    let number = |word: &Value| word.as_integer().unwrap_or_default() as u64;
    match object.member("words") {
        Some(Value::List(words)) => words.iter().map(number).collect(),
        _ => vec![],
    }
}

/// The failures around the writers of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surroundings {
    /// Nothing fails: every failure except a lost race is an error.
    Calm,
    /// Servers fail. A transaction whose server did not answer is aborted, or unknown if it may have been committed.
    Failing,
    /// Servers fail, disks are full, and writers are killed. So a transaction is also recorded, with an unknown
    /// outcome, when it has its first lock and before it commits.
    Deadly,
}

/// Runs random transactions while `goes_on` returns true for their number, and passes each to `record`. `writer` is the
/// seed, and must be unique among the threads and processes of a history.
///
/// # Errors
/// Those of the engine, except those that count as outcomes: [`ErrorKind::Conflict`] and [`ErrorKind::Busy`], and the
/// failures that [`Surroundings`] allows.
pub fn run(
    federation: &Federation,
    level: IsolationLevel,
    (writer, surroundings): (u64, Surroundings),
    goes_on: impl Fn(u64) -> bool,
    mut record: impl FnMut(ObservedTransaction),
) -> Result<()> {
    let mut random = SplitMix(writer);
    let mut next = writer << 20;
    let mut count = 0;
    while goes_on(count) {
        count += 1;
        let start = now();
        let mut run = RunningTransaction { operations: vec![], is_committing: false };
        let mut announce = |operations: &[RegisterOperation]| {
            if surroundings == Surroundings::Deadly {
                let (outcome, operations) = (TransactionOutcome::Unknown, operations.to_vec());
                record(ObservedTransaction { time: start..start, outcome, operations });
            }
        };
        let level = (level, &mut announce as Announce);
        let outcome = match transact(federation, level, &mut random, &mut next, &mut run) {
            Ok(csn) => TransactionOutcome::Committed(csn),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Busy) => {
                TransactionOutcome::Aborted
            }
            Err(error) if is_outcome(&error, surroundings) => {
                eprintln!("{error}");
                if surroundings == Surroundings::Deadly {
                    std::thread::sleep(Duration::from_millis(random.below(PAUSE_MS_MAX)));
                }
                if needs_restart(&error) {
                    std::thread::sleep(RESTARTED_WITHIN);
                }
                if run.is_committing {
                    TransactionOutcome::Unknown
                } else {
                    TransactionOutcome::Aborted
                }
            }
            Err(error) => return Err(error),
        };
        let operations = run.operations;
        record(ObservedTransaction { time: start..now(), outcome, operations });
    }
    Ok(())
}

/// Whether an error is what a transaction may end with.
fn is_outcome(error: &Error, surroundings: Surroundings) -> bool {
    let kind = error.kind();
    match surroundings {
        Surroundings::Calm => false,
        Surroundings::Failing => is_failure(kind),
        Surroundings::Deadly => is_failure(kind) || kind == ErrorKind::Full || needs_restart(error),
    }
}

/// Whether a server refuses commits until it is restarted, as after a failed sync of the catalogue's log.
fn needs_restart(error: &Error) -> bool {
    error.kind() == ErrorKind::Closed && error.to_string().contains("restart its server")
}

/// Whether an error may come from a server that failed.
pub fn is_failure(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Io)
}

/// Hears of the operations of a transaction when it has its first lock, and before it commits.
type Announce<'a> = &'a mut dyn FnMut(&[RegisterOperation]);

/// A transaction that runs.
struct RunningTransaction {
    operations: Vec<RegisterOperation>,
    /// Whether its commit has begun.
    is_committing: bool,
}

fn transact(
    federation: &Federation,
    (level, announce): (IsolationLevel, Announce),
    random: &mut SplitMix,
    next: &mut u64,
    RunningTransaction { operations, is_committing }: &mut RunningTransaction,
) -> Result<u64> {
    let isolation = match level {
        IsolationLevel::Snapshot => Isolation::Snapshot,
        IsolationLevel::Serializable => Isolation::Serializable,
    };
    let lock_wait = Duration::from_millis(20);
    let message = next.to_string();
    let options = TransactionOptions { lock_wait, isolation, message };
    let mut transaction = federation.transaction(options)?;
    let count = 1 + random.below(OPERATIONS_MAX);
    let mut has_lock = false;
    for at in 0..count {
        let register = random.below(PATHS.len() as u64 * REGISTERS_EACH);
        let (path, entry) = place(register);
        let object = transaction.view(path)?.value(entry)?;
        operations.push(RegisterOperation::Read(register, words(&object)));
        // Every transaction writes, so that its commit has a sequence number.
        if random.one_in(2) || at + 1 == count {
            let (database, name) = split(path);
            let id = transaction.database(database)?;
            let key = transaction.container(id, name)?;
            let object = with_word(object, *next);
            operations.push(RegisterOperation::Append(register, *next));
            *next += 1;
            transaction.update(key, &[entry], updated_fields(&[object]))?;
            if !std::mem::replace(&mut has_lock, true) {
                announce(operations);
            }
        }
        if random.one_in(4) {
            std::thread::sleep(Duration::from_micros(random.below(2000)));
        }
    }
    announce(operations);
    *is_committing = true;
    transaction.commit().map(|csn| csn.0)
}

fn with_word(mut object: Value, word: u64) -> Value {
    if let Value::Record(members) = &mut object {
        for (name, value) in members {
            if let ("words", Value::List(words)) = (name.as_str(), value) {
                words.push(Value::UInt(word));
            }
        }
    }
    object
}

/// Nanoseconds on a clock that all processes of a machine share, and of a simulation, whose hosts have other clocks of their own.
fn now() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    now.map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

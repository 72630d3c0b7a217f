//! Runs random transactions on the registers of a federation, and records them.
//!
//! A register is the list `words` of an object. Registers lie in a few containers of three databases, so that some
//! transactions share a container or database and others do not.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use femtobarn::{
    Error, ErrorKind, Federation, Isolation, Profile, Result, Snapshot, TransactionOptions,
};
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
/// The errors of the engine.
pub fn prepare(folder: &Path) -> Result<()> {
    fill(&Federation::create(folder, "registers")?)
}

/// Adds empty registers to a federation.
///
/// # Errors
/// The errors of the engine.
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
/// The errors of the engine.
pub fn lists(federation: &Federation) -> Result<BTreeMap<u64, Vec<u64>>> {
    lists_in(&federation.snapshot(None)?)
}

fn lists_in(snapshot: &Snapshot) -> Result<BTreeMap<u64, Vec<u64>>> {
    let mut lists = BTreeMap::new();
    for register in 0..PATHS.len() as u64 * REGISTERS_EACH {
        let (path, entry) = place(register);
        lists.insert(register, words(&snapshot.view(path)?.value(entry)?));
    }
    Ok(lists)
}

/// Reads all registers of the newest snapshot: a transaction that has the number of this snapshot, and no message.
///
/// # Errors
/// The errors of the engine.
pub fn read_all(federation: &Federation) -> Result<ObservedTransaction> {
    let start = now();
    let snapshot = federation.snapshot(None)?;
    let lists = lists_in(&snapshot)?.into_iter();
    let operations = lists.map(|(register, list)| RegisterOperation::Read(register, list));
    let operations = operations.collect();
    let outcome = TransactionOutcome::Committed(snapshot.csn().0);
    Ok(ObservedTransaction { time: start..now(), outcome, operations })
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
    /// As deadly, and another server may become the leader: a transaction that the former one denies is aborted.
    Succession,
}

impl Surroundings {
    fn are_deadly(self) -> bool {
        matches!(self, Surroundings::Deadly | Surroundings::Succession)
    }
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
    let mut writer = RegisterWriter::new(level, writer, surroundings);
    let mut count = 0;
    while goes_on(count) {
        count += 1;
        writer.transact(federation, &mut record)?;
    }
    Ok(())
}

/// A writer of random transactions.
pub struct RegisterWriter {
    level: IsolationLevel,
    surroundings: Surroundings,
    random: SplitMix,
    /// The number that it appends next.
    next: u64,
}

impl RegisterWriter {
    /// The writer with this number, which is its seed, and must be unique in a history.
    pub fn new(level: IsolationLevel, writer: u64, surroundings: Surroundings) -> Self {
        RegisterWriter { level, surroundings, random: SplitMix(writer), next: writer << 20 }
    }

    /// Runs one transaction, and passes it to `record`. Returns the failure with which it ended, after a pause.
    ///
    /// # Errors
    /// As [`run`].
    pub fn transact(
        &mut self,
        federation: &Federation,
        record: &mut impl FnMut(ObservedTransaction),
    ) -> Result<Option<Error>> {
        let start = now();
        let mut run = RunningTransaction { operations: vec![], is_committing: false };
        let surroundings = self.surroundings;
        let mut announce = |operations: &[RegisterOperation]| {
            if surroundings.are_deadly() {
                let (outcome, operations) = (TransactionOutcome::Unknown, operations.to_vec());
                record(ObservedTransaction { time: start..start, outcome, operations });
            }
        };
        let level = (self.level, &mut announce as Announce);
        let done = transact(federation, level, &mut self.random, &mut self.next, &mut run);
        let (outcome, failure) = match done {
            Ok(csn) => (TransactionOutcome::Committed(csn), None),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Busy) => {
                (TransactionOutcome::Aborted, None)
            }
            Err(error) if is_outcome(&error, surroundings) => {
                self.pause_after(&error);
                let is_known = !run.is_committing || error.kind() == ErrorKind::Denied;
                let outcome = [TransactionOutcome::Unknown, TransactionOutcome::Aborted];
                (outcome[usize::from(is_known)], Some(error))
            }
            Err(error) => return Err(error),
        };
        record(ObservedTransaction { time: start..now(), outcome, operations: run.operations });
        Ok(failure)
    }

    fn pause_after(&mut self, error: &Error) {
        eprintln!("{error}");
        if self.surroundings.are_deadly() {
            std::thread::sleep(Duration::from_millis(self.random.below(PAUSE_MS_MAX)));
        }
        if needs_restart(error) {
            std::thread::sleep(RESTARTED_WITHIN);
        }
    }
}

/// Whether an error is what a transaction may end with.
fn is_outcome(error: &Error, surroundings: Surroundings) -> bool {
    let kind = error.kind();
    match surroundings {
        Surroundings::Calm => false,
        Surroundings::Failing => is_failure(kind),
        Surroundings::Deadly => is_failure(kind) || kind == ErrorKind::Full || needs_restart(error),
        Surroundings::Succession => {
            kind == ErrorKind::Denied || is_outcome(error, Surroundings::Deadly)
        }
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

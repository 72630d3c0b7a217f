//! Jobs: transactions whose tasks run in processes of their own, which may die.
//!
//! Each job appends the objects of its tasks to one container, in the order of the tasks, so the number of jobs
//! determines all contents. A task runs one to three times at once; the last of these runs answers with a receipt, the
//! others may die before. The job's own process may die before it merges the receipts, before it commits, and before it
//! reports the commit. All of this follows from a seed.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use femtobarn::{
    Federation, Fork, Profile, Receipt, Result, Snapshot, Transaction, TransactionOptions,
};
use nix::sys::signal::{Signal, raise};

use crate::random::SplitMix;
use crate::script::{class, object, objects, small_pages};
use crate::verify::{objects as objects_of, say};

const DATABASE: &str = "jobs";
const CONTAINER: &str = "all";
const TASKS: u64 = 3;
/// Objects of one task.
const OBJECTS: u64 = 20;
/// Runs of one task, at most.
const RUNS_MAX: u64 = 3;
/// At each of three places a job's process dies with a probability of 1 in `CHANCES`.
const CHANCES: u64 = 12;
/// Bytes of a fork or a receipt, at most.
const MESSAGE_BYTES_MAX: u64 = 2048;

/// The step of a task's run after which it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunEnd {
    /// The run has begun, and dies.
    Begun,
    /// The run has written its objects, and dies.
    Written,
    /// The run has a receipt, and dies.
    Finished,
    /// It returns the receipt.
    Answered,
}

const ENDS: [(RunEnd, &str); 4] = [
    (RunEnd::Begun, "begun"),
    (RunEnd::Written, "written"),
    (RunEnd::Finished, "finished"),
    (RunEnd::Answered, "answered"),
];

/// Creates the federation and the container of the jobs.
///
/// # Errors
/// The errors of the engine.
pub fn prepare(folder: &Path) -> Result<()> {
    let federation = Federation::create(folder, "jobs")?;
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let database = transaction.create_database(DATABASE)?;
    transaction.create_container(database, CONTAINER, &class(), small_pages(Profile::Plain))?;
    transaction.commit().map(drop)
}

/// Runs jobs until there are `count`, unless the process dies before. Calls `acknowledge` after each commit, with the
/// number of committed jobs.
///
/// # Errors
/// A text for errors of the engine and of processes.
pub fn run(
    folder: &Path,
    count: u64,
    seed: u64,
    mut acknowledge: impl FnMut(u64),
) -> std::result::Result<(), String> {
    let mut random = SplitMix(seed);
    let federation = Federation::open(folder).map_err(say("cannot open it"))?;
    let snapshot = federation.snapshot(None).map_err(say("no snapshot"))?;
    for job in check(&snapshot, 0)?..count {
        let options = TransactionOptions::default();
        let mut transaction = federation.transaction(options).map_err(say("no transaction"))?;
        let fork = fork(&mut transaction).map_err(say("no fork"))?;
        let receipts = run_tasks(folder, &fork, job, &mut random)?;
        die_by_chance(&mut random);
        let merged = transaction.merge(&receipts).map_err(say("no merge"))?;
        if merged != TASKS {
            return Err(format!("{merged} of {TASKS} tasks were merged"));
        }
        die_by_chance(&mut random);
        transaction.commit().map_err(say("no commit"))?;
        die_by_chance(&mut random);
        acknowledge(job + 1);
    }
    Ok(())
}

fn fork(transaction: &mut Transaction) -> Result<Fork> {
    let database = transaction.database(DATABASE)?;
    let container = transaction.container(database, CONTAINER)?;
    transaction.fork(&[container], &[])
}

fn die_by_chance(random: &mut SplitMix) {
    if random.below(CHANCES) == 0 {
        die();
    }
}

/// Ends this process as a kill does: nothing is dropped.
fn die() {
    raise(Signal::SIGKILL).expect("a process may kill itself");
}

/// Runs the tasks of a job at once, and returns the receipts of the runs that answered, in the order of the tasks.
fn run_tasks(
    folder: &Path,
    fork: &Fork,
    job: u64,
    random: &mut SplitMix,
) -> std::result::Result<Vec<Receipt>, String> {
    let mut running = vec![];
    for task in 0..TASKS {
        for run in (0..=random.below(RUNS_MAX)).rev() {
            let end = if run == 0 { RunEnd::Answered } else { ENDS[random.below(4) as usize].0 };
            let child = start_task(folder, fork, job * TASKS + task, end);
            running.push((end, child.map_err(say("cannot start a task"))?));
        }
    }
    let ended = running.into_iter().map(|(end, child)| (end, child.wait_with_output()));
    let mut receipts = vec![];
    for (end, output) in ended {
        let output = output.map_err(say("a task"))?;
        if output.status.success() != (end == RunEnd::Answered) {
            let (said, status) = (String::from_utf8_lossy(&output.stderr), output.status);
            return Err(format!("a task that was to be {end:?} ended with {status}: {said}"));
        }
        if output.status.success() {
            receipts.push(Receipt::decode(&output.stdout).map_err(say("no receipt"))?);
        }
    }
    Ok(receipts)
}

fn start_task(folder: &Path, fork: &Fork, task: u64, end: RunEnd) -> std::io::Result<Child> {
    let (_, word) = ENDS[end as usize];
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("task").arg(folder).args([&task.to_string(), word]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().expect("it is a pipe");
    input.write_all(&fork.encode())?;
    Ok(child)
}

/// Is a run of a task: reads the fork, writes objects, and writes the receipt, or dies before that.
///
/// # Errors
/// A text for errors of the engine.
pub fn run_task(
    folder: &Path,
    task: u64,
    end: &str,
    from: impl Read,
    mut into: impl Write,
) -> std::result::Result<(), String> {
    let end = ENDS.iter().find(|(_, word)| *word == end);
    let (end, _) = *end.ok_or_else(|| "no such end of a run".to_owned())?;
    let mut message = vec![];
    from.take(MESSAGE_BYTES_MAX).read_to_end(&mut message).map_err(say("no fork"))?;
    let fork = Fork::decode(&message).map_err(say("no fork"))?;
    let federation = Federation::open(folder).map_err(say("cannot open it"))?;
    let mut writer =
        federation.begin_task(&fork, &format!("task {task}")).map_err(say("no task"))?;
    if end == RunEnd::Begun {
        die();
    }
    writer.extend(0, objects(task * OBJECTS..(task + 1) * OBJECTS)).map_err(say("no objects"))?;
    if end == RunEnd::Written {
        die();
    }
    let receipt = writer.finish().map_err(say("no receipt"))?;
    if end == RunEnd::Finished {
        die();
    }
    into.write_all(&receipt.encode()).map_err(say("no answer"))
}

/// Checks that a snapshot has the objects of at least `acknowledged` complete jobs, those of each task once and in
/// order. Returns the number of jobs.
///
/// # Errors
/// The first violation.
pub fn check(snapshot: &Snapshot, acknowledged: u64) -> std::result::Result<u64, String> {
    let path = format!("{DATABASE}/{CONTAINER}");
    let found = objects_of(snapshot, &path).map_err(say(&path))?;
    let jobs = found.len() as u64 / (TASKS * OBJECTS);
    let expected = (0..jobs * TASKS * OBJECTS).map(|number| Some(object(number, 0)));
    if !expected.eq(found) {
        return Err(format!("{path}: not the contents after {jobs} jobs"));
    }
    if jobs < acknowledged {
        return Err(format!("{path}: {acknowledged} jobs were acknowledged, {jobs} are there"));
    }
    Ok(jobs)
}

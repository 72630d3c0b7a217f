//! Runs workloads on federations, recorded or with faults.
//!
//! | arguments | action |
//! |---|---|
//! | `record NAME FOLDER TRACE` | runs a workload in `FOLDER/fed` and records its operations on files |
//! | `copy NAME FOLDER TRACE` | runs a script elsewhere, and records the operations of a copy that follows into `FOLDER/fed` |
//! | `fail NAME KIND FOLDER LIMIT SEED` | runs a workload repeatedly, each time with a fault at another operation |
//! | `write FOLDER WRITER COUNT` | is one writer of the soak; prints the number of each commit |
//! | `jobs FOLDER COUNT SEED` | runs jobs with tasks in processes of their own; prints the number of jobs after each commit |
//! | `task FOLDER TASK END` | is one run of a task of a job: reads its fork, writes its receipt, or dies before |
//! | `history FOLDER LEVEL PROCESS COUNT` | is one process of a history; prints its transactions |
//! | `simulate SEED ...` | is a process of a simulation, as the header of `simulated` says |

mod fault_runs;
mod interposer;
mod simulated;

use std::path::Path;
use std::process::ExitCode;

use femtobarn::Federation;
use femtobarn_faults::copies;
use femtobarn_faults::history::recorder::Surroundings;
use femtobarn_faults::history::{IsolationLevel, ObservedTransaction, recorder};
use femtobarn_faults::jobs;
use femtobarn_faults::script::{Runner, Script};
use femtobarn_faults::soak;
use femtobarn_faults::verify::acknowledgement;
use femtobarn_faults::workloads::named;

use crate::interposer::OperationRecord;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["record", name, folder, trace] => record(name, Path::new(folder), Path::new(trace)),
        ["copy", name, folder, trace] => copy(name, Path::new(folder), Path::new(trace)),
        ["fail", name, kind, folder, limit, seed] => {
            fault_runs::run_all(name, kind, Path::new(folder), limit, seed)
        }
        ["write", folder, writer, count] => write(Path::new(folder), writer, count),
        ["jobs", folder, count, seed] => run_jobs(Path::new(folder), count, seed),
        ["task", folder, task, end] => run_task(Path::new(folder), task, end),
        ["simulate", seed, words @ ..] => simulated::run(seed, words),
        ["history", folder, level, process, count] => {
            history(Path::new(folder), level, process, count)
        }
        _ => Err("unknown arguments; the header of main.rs lists them".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn record(name: &str, folder: &Path, trace: &Path) -> Result<(), String> {
    let workload = named(name)?;
    interposer::start(folder, OperationRecord::trace(trace), None);
    let federation = folder.join("fed");
    let mut runner = Runner::create(&federation).map_err(|error| error.to_string())?;
    interposer::acknowledge("created");
    for step in 0..workload.steps() {
        let csn = workload.run(&mut runner, step).map_err(|error| error.to_string())?;
        interposer::acknowledge(&acknowledgement(csn));
    }
    drop(runner);
    interposer::stop();
    Ok(())
}

fn copy(name: &str, folder: &Path, trace: &Path) -> Result<(), String> {
    let script = Script::named(name).ok_or_else(|| format!("unknown script {name:?}"))?;
    let leader = tempfile::tempdir().map_err(|error| error.to_string())?;
    interposer::start(folder, OperationRecord::trace(trace), None);
    let leader = leader.path().join("leader");
    copies::run(&script, &leader, &folder.join("fed"), &mut interposer::acknowledge)?;
    interposer::stop();
    Ok(())
}

fn write(folder: &Path, writer: &str, count: &str) -> Result<(), String> {
    let (writer, count) = (number_of(writer)?, number_of(count)?);
    let said = soak::write(folder, writer, count, |number| println!("{number}"));
    said.map_err(|error| error.to_string())
}

fn run_jobs(folder: &Path, count: &str, seed: &str) -> Result<(), String> {
    jobs::run(folder, number_of(count)?, number_of(seed)?, |told| println!("{told}"))
}

fn run_task(folder: &Path, task: &str, end: &str) -> Result<(), String> {
    jobs::run_task(folder, number_of(task)?, end, std::io::stdin(), std::io::stdout())
}

fn number_of(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

/// Threads of one process of a history.
const THREADS: u64 = 2;

fn history(folder: &Path, level: &str, process: &str, count: &str) -> Result<(), String> {
    let (process, count) = (number_of(process)?, number_of(count)?);
    let level =
        if level == "snapshot" { IsolationLevel::Snapshot } else { IsolationLevel::Serializable };
    let federation = Federation::open(folder).map_err(|error| error.to_string())?;
    let run = |thread| {
        let tell = |transaction: ObservedTransaction| println!("{}", transaction.to_line());
        let writer = (process * THREADS + thread + 1, Surroundings::Calm);
        recorder::run(&federation, level, writer, |made| made < count, tell)
    };
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|at| scope.spawn(move || run(at))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
        joined.collect::<Vec<_>>()
    })
    .into_iter()
    .try_for_each(|done| done.map_err(|error| error.to_string()))
}

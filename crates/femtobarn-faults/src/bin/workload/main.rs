//! Runs workloads on federations, recorded or with faults.
//!
//! | arguments | action |
//! |---|---|
//! | `record NAME FOLDER TRACE` | runs a workload in `FOLDER/fed` and records its operations on files |
//! | `copy NAME FOLDER TRACE` | runs a script elsewhere, and records the operations of a copy that follows into `FOLDER/fed` |
//! | `fail NAME KIND FOLDER LIMIT SEED` | runs it repeatedly, each time with a fault at another operation |
//! | `write FOLDER WRITER COUNT` | is one writer of the soak; prints the number of each commit |
//! | `history FOLDER LEVEL PROCESS COUNT` | is one process of a history; prints its transactions |

mod fault_runs;
mod interposer;

use std::path::Path;
use std::process::ExitCode;

use femtobarn::Federation;
use femtobarn_faults::copies;
use femtobarn_faults::history::{IsolationLevel, ObservedTransaction, recorder};
use femtobarn_faults::script::{Runner, Script};
use femtobarn_faults::soak;
use femtobarn_faults::verify::acknowledgement;
use femtobarn_faults::workloads::named;

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
    interposer::start(folder, Some(trace), None);
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
    interposer::start(folder, Some(trace), None);
    let leader = leader.path().join("leader");
    copies::run(&script, &leader, &folder.join("fed"), &mut interposer::acknowledge)?;
    interposer::stop();
    Ok(())
}

fn write(folder: &Path, writer: &str, count: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let said = soak::write(folder, number(writer)?, number(count)?, |number| println!("{number}"));
    said.map_err(|error| error.to_string())
}

/// Threads of one process of a history.
const THREADS: u64 = 2;

fn history(folder: &Path, level: &str, process: &str, count: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let (process, count) = (number(process)?, number(count)?);
    let level =
        if level == "snapshot" { IsolationLevel::Snapshot } else { IsolationLevel::Serializable };
    let federation = Federation::open(folder).map_err(|error| error.to_string())?;
    let run = |thread| {
        let tell = |transaction: ObservedTransaction| println!("{}", transaction.to_line());
        recorder::run(&federation, level, process * THREADS + thread + 1, count, tell)
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

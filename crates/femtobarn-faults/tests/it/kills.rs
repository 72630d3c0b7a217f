//! Eight processes write to one federation and are killed at random moments; jobs and their tasks die at chosen ones.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use femtobarn::{CheckLevel, Federation};
use femtobarn_faults::crash::in_memory;
use femtobarn_faults::jobs;
use femtobarn_faults::random::SplitMix;
use femtobarn_faults::soak::{check, prepare};
use femtobarn_faults::verify::free_garbage;

const SEED: u64 = 8;
const WRITERS: usize = 8;
/// Kills between two checks of the contents.
const KILLS_BETWEEN: u64 = 8;

/// A writer in a process of its own, and the thread that reads its output.
struct Writer {
    child: Child,
    reader: JoinHandle<()>,
}

impl Writer {
    fn start(folder: &Path, number: usize, told: &Arc<AtomicU64>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workload"));
        command.arg("write").arg(folder).args([&number.to_string(), "1000000000"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = told.clone();
        let reader = std::thread::spawn(move || {
            for line in lines {
                // The kill may truncate a line to a smaller number, which is acknowledged as well.
                let Some(number) = line.ok().and_then(|line| line.parse::<u64>().ok()) else {
                    return;
                };
                told.fetch_max(number + 1, Ordering::SeqCst);
            }
        });
        Writer { child, reader }
    }

    /// Kills the process, and reads the rest of its output.
    fn kill(mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "a writer ended by itself");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.join().unwrap();
    }
}

fn check_contents(folder: &Path, told: &[Arc<AtomicU64>], when: u64) {
    let told: Vec<u64> = told.iter().map(|told| told.load(Ordering::SeqCst)).collect();
    let snapshot = Federation::open(folder).unwrap().snapshot(None).unwrap();
    if let Err(error) = check(&snapshot, &told) {
        panic!("seed {SEED}, after {when} kills: {error}");
    }
}

fn kill_writers(kills: u64) {
    let place = in_memory().unwrap();
    let folder = place.path().join("fed");
    prepare(&folder, WRITERS as u64).unwrap();
    let told: Vec<Arc<AtomicU64>> = (0..WRITERS).map(|_| Arc::default()).collect();
    let start = |number: usize| Writer::start(&folder, number, &told[number]);
    let mut writers: Vec<Option<Writer>> = (0..WRITERS).map(|n| Some(start(n))).collect();
    let mut random = SplitMix(SEED);
    for killed in 0..kills {
        std::thread::sleep(Duration::from_millis(5 + random.below(60)));
        let number = random.below(WRITERS as u64) as usize;
        writers[number].take().unwrap().kill();
        writers[number] = Some(start(number));
        if killed % KILLS_BETWEEN == 0 {
            check_contents(&folder, &told, killed);
        }
    }
    writers.into_iter().flatten().for_each(Writer::kill);
    check_contents(&folder, &told, kills);
    let federation = Federation::open(&folder).unwrap();
    let report = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    let total: u64 = told.iter().map(|told| told.load(Ordering::SeqCst)).sum();
    crate::print_progress(&format!(
        "{kills} kills of {WRITERS} writers, {total} transactions acknowledged, seed {SEED}"
    ));
    assert!(total > kills, "only {total} transactions");
}

#[test]
fn acknowledged_commits_survive_killed_writers() {
    kill_writers(60);
}

#[test]
#[ignore = "minutes: some thousand kills"]
fn acknowledged_commits_survive_thousands_of_killed_writers() {
    kill_writers(3000);
}

fn kill_jobs(count: u64) {
    const SIGKILL: i32 = 9;
    let place = in_memory().unwrap();
    let folder = place.path().join("fed");
    jobs::prepare(&folder).unwrap();
    let (mut told, mut deaths) = (0, 0);
    while told < count {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workload"));
        command.arg("jobs").arg(&folder).args([count, SEED + deaths].map(|n| n.to_string()));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        told = said.lines().last().map_or(told, |line| line.parse().unwrap());
        let snapshot = Federation::open(&folder).unwrap().snapshot(None).unwrap();
        let done = jobs::check(&snapshot, told).unwrap();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.signal(), Some(SIGKILL), "after {done} jobs: {error}");
            deaths += 1;
        } else if done >= count {
            break;
        }
    }
    let federation = Federation::open(&folder).unwrap();
    let garbage = federation.vacuum(&Default::default(), &mut |_| true).unwrap().garbage_bytes;
    assert!(garbage > 0, "runs that died leave garbage");
    free_garbage(&federation).unwrap();
    assert_eq!(jobs::check(&federation.snapshot(None).unwrap(), count).unwrap(), count);
    let report = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    crate::print_progress(&format!(
        "{count} jobs, whose processes died {deaths} times, seed {SEED}"
    ));
    assert!(deaths > 0, "no job died");
}

#[test]
fn each_task_counts_once_whichever_processes_die() {
    kill_jobs(10);
}

#[test]
#[ignore = "minutes: some hundred jobs"]
fn each_task_of_hundreds_of_jobs_counts_once() {
    kill_jobs(400);
}

//! Full disks, failing operations and failing syncs at every operation of workloads.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use femtobarn_faults::crash::in_memory;
use femtobarn_faults::fault::{FaultKind, KINDS};
use femtobarn_faults::workloads::names;

const SEED: u64 = 4;
/// The approximate number of faults of each kind per script in the short test.
const STRUCK: u64 = 60;

fn fail_everywhere(limit: u64) {
    let jobs: Vec<(&str, &str)> =
        names().into_iter().flat_map(|name| KINDS.map(|(_, kind)| (name, kind))).collect();
    let (tried, possible) = (AtomicU64::new(0), AtomicU64::new(0));
    let run = |(name, kind): &(&str, &str)| {
        let folder = in_memory().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_workload"));
        // Where all syncs fail, most runs differ little.
        let limit =
            if *kind == FaultKind::FailingSyncs.name() { limit.div_ceil(10) } else { limit };
        let (limit, seed) = (limit.to_string(), SEED.to_string());
        let output =
            command.args(["fail", name, kind]).arg(folder.path()).args([&limit, &seed]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        print!("{said}");
        // The last line is like "tried 64 of 331 Full faults, 64 noticed".
        let words: Vec<&str> = said.split("tried ").nth(1).unwrap_or("").split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        tried.fetch_add(number(0), Ordering::Relaxed);
        possible.fetch_add(number(2), Ordering::Relaxed);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success()).then(|| format!("{name}, {kind}, seed {seed}: {errors}"))
    };
    let half = jobs.len() / 2;
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads = [&jobs[..half], &jobs[half..]]
            .map(|jobs| scope.spawn(|| jobs.iter().filter_map(run).collect::<Vec<_>>()));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let (tried, possible) = (tried.into_inner(), possible.into_inner());
    let workloads = names().len();
    crate::print_progress(&format!(
        "tried {tried} of {possible} faults in {workloads} workloads, seed {SEED}"
    ));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(tried > 0, "no fault was tried");
}

#[test]
fn faults_give_errors_that_name_the_file_and_lose_no_commit() {
    fail_everywhere(STRUCK);
}

#[test]
#[ignore = "minutes: every operation of every workload"]
fn faults_at_every_operation_lose_no_commit() {
    fail_everywhere(u64::MAX);
}

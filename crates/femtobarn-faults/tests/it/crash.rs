//! Loss of power at every write and every sync of recorded workloads.

use std::path::Path;
use std::process::Command;

use femtobarn_faults::copies;
use femtobarn_faults::crash::{Exploration, Verifier, explore, in_memory};
use femtobarn_faults::script::Script;
use femtobarn_faults::trace::FileOperation;
use femtobarn_faults::verify::Acknowledged;
use femtobarn_faults::workloads::{named, names};

const SEED: u64 = 20_261_122;
/// The approximate number of crashes per workload in the short test.
const CRASHES: usize = 800;
/// The same for the workload with ten times as many operations.
const CRASHES_OF_SLOTS: usize = 200;
/// The same for copies that follow.
const CRASHES_OF_COPIES: usize = 400;

fn record(how: &str, script: &str) -> Vec<FileOperation> {
    let folder = in_memory().unwrap();
    let (files, trace) = (folder.path().join("files"), folder.path().join("trace"));
    std::fs::create_dir(&files).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_workload"));
    let output = command.args([how, script]).args([&files, &trace]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    FileOperation::decode_all(&std::fs::read(trace).unwrap()).unwrap()
}

fn crash_everywhere(limit: usize) {
    for name in names() {
        let is_sample_of_slots = name == "slots" && limit != usize::MAX;
        crash_in(name, if is_sample_of_slots { CRASHES_OF_SLOTS } else { limit });
    }
}

fn crash_in(name: &str, limit: usize) {
    let workload = named(name).unwrap();
    let verify = |folder: &Path, acknowledged: &Acknowledged, thorough| {
        workload.verify(folder, acknowledged, thorough)
    };
    crash_with(name, &record("record", name), &verify, limit);
}

fn crash_in_copies(limit: usize) {
    for name in copies::NAMES {
        let script = Script::named(name).unwrap();
        let verify = |folder: &Path, acknowledged: &Acknowledged, thorough| {
            copies::verify(folder, &script, acknowledged, thorough)
        };
        crash_with(&format!("a copy of {name}"), &record("copy", name), &verify, limit);
    }
}

fn crash_with(name: &str, trace: &[FileOperation], verify: Verifier<'_>, limit: usize) {
    let started = std::time::Instant::now();
    let explored = explore(verify, trace, limit, SEED).unwrap();
    let Exploration { operations, possible, tried, failures } = explored;
    crate::print_progress(&format!(
        "{name}: tried {tried} crash states of {possible} crashes at {operations} operations, seed \
         {SEED}, {:.1} s",
        started.elapsed().as_secs_f64()
    ));
    let shown = failures.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{name}: {} states are wrong:\n{shown}", failures.len());
    assert!(tried > limit.min(possible) / 4, "{name}: only {tried} different states");
}

#[test]
fn acknowledged_steps_survive_a_sample_of_crashes() {
    crash_everywhere(CRASHES);
}

#[test]
fn copies_survive_a_sample_of_crashes_and_can_lead() {
    crash_in_copies(CRASHES_OF_COPIES);
}

#[test]
fn a_small_database_is_made_and_dropped_without_a_sync_of_its_file_or_folder() {
    let trace = record("record", "short lives");
    let (mut steps, mut inodes, mut is_written) = (0, vec![], false);
    for operation in &trace {
        match operation {
            FileOperation::Acknowledge { .. } => steps += 1,
            FileOperation::Create { file, path } if path.ends_with("databases/brief.root") => {
                inodes.push(*file);
            }
            FileOperation::Write { file, .. } => is_written |= inodes.contains(file),
            FileOperation::Sync { file } => assert!(!inodes.contains(file), "in step {steps}"),
            FileOperation::SyncFolder { path } => {
                assert!(inodes.is_empty() || !path.ends_with("databases"), "in step {steps}");
            }
            _ => {}
        }
        // The federation was created, and three steps ended, the last of which dropped the database.
        if steps == 4 {
            break;
        }
    }
    assert!(is_written && inodes.len() == 1, "{inodes:?}");
}

#[test]
#[ignore = "minutes: every crash of every workload"]
fn acknowledged_steps_survive_every_crash() {
    crash_everywhere(usize::MAX);
    crash_in_copies(usize::MAX);
}

#[test]
#[ignore = "one workload, which FEMTOBARN_WORKLOAD names"]
fn acknowledged_steps_of_a_chosen_workload_survive_crashes() {
    let Ok(name) = std::env::var("FEMTOBARN_WORKLOAD") else { return };
    crash_in(&name, CRASHES);
}

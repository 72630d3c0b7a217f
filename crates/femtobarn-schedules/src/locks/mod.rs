//! Scenarios of the turn to commit, the sync of the log, and bells, each between processes.

mod file;
mod shared_numbers;
mod target;

#[path = "../../../femtobarn-catalog/src/locks/bells.rs"]
#[expect(dead_code, reason = "bells of locks are rung in no scenario")]
mod bells;
#[path = "../../../femtobarn-catalog/src/locks/commit_turn.rs"]
#[expect(dead_code, reason = "no scenario opens other turns")]
mod commit_turn;
#[path = "../../../femtobarn-catalog/src/locks/log_progress.rs"]
mod log_progress;

use std::path::Path;
use std::sync::Arc;

use commit_turn::CommitTurns;
use log_progress::LogProgress;
use loom::thread;

use crate::sync::Mutex;

/// The newest change that is in the log, and the newest that the disk has.
#[derive(Default)]
struct LogOnDisk {
    written: u64,
    durable: u64,
}

/// Processes commit, one change each: each has its turn alone, and no change is acknowledged before a sync that began behind
/// it has ended. Whoever waits for the sync of another one is woken.
pub fn changes_are_durable_when_they_are_acknowledged(processes: usize, preemptions: usize) {
    crate::explore("changes are durable when they are acknowledged", preemptions, move || {
        let locks = Path::new("locks");
        let log = Arc::new(Mutex::new(LogOnDisk::default()));
        let bells = bells::Bells::open(locks).map(Arc::new).expect("there is memory");
        // A mapped file has its zeros before any process sees it.
        (1..=processes as u64 + 1).for_each(|change| drop(bells.listen_for_change(change)));
        let commit = |log: Arc<Mutex<LogOnDisk>>| {
            let turns = CommitTurns::open(locks).expect("the file opens");
            let progress = LogProgress::open(locks).expect("the file opens");
            move || {
                let turn = turns.wait().expect("the kernel grants the turn");
                let numbers = progress.numbers();
                let change = numbers.written.max(numbers.durable) + 1;
                {
                    let mut log = log.lock();
                    assert_eq!(change, log.written + 1, "two have the turn");
                    log.written = change;
                }
                progress.set_written(change);
                drop(turn);
                let sync = |_| {
                    let begun = log.lock().written;
                    let mut log = log.lock();
                    log.durable = log.durable.max(begun);
                    Ok(())
                };
                progress.make_durable(change, sync).expect("the disk is sound");
                assert!(log.lock().durable >= change, "a change is lost if the power fails now");
            }
        };
        let others: Vec<_> =
            (1..processes).map(|_| thread::spawn(commit(Arc::clone(&log)))).collect();
        commit(log)();
        others.into_iter().for_each(|other| other.join().expect("it has committed"));
    });
}

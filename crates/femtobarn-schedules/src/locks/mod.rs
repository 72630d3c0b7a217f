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
        let others: Vec<_> =
            (1..processes).map(|_| thread::spawn(committer(locks, &log))).collect();
        committer(locks, &log)();
        others.into_iter().for_each(|other| other.join().expect("it has committed"));
    });
}

/// A process reads what another one appends, and reads again: what it has read is durable after it has waited for that,
/// also while the other has the turn, and is between its change in the log and the number of the change.
pub fn what_is_read_is_durable(preemptions: usize) {
    crate::explore("what is read is durable", preemptions, move || {
        let locks = Path::new("locks");
        let log = Arc::new(Mutex::new(LogOnDisk::default()));
        let bells = bells::Bells::open(locks).map(Arc::new).expect("there is memory");
        (1..=2).for_each(|change| drop(bells.listen_for_change(change)));
        let other = thread::spawn(committer(locks, &log));
        let progress = LogProgress::open(locks).expect("the file opens");
        for _ in 0..2 {
            let read = log.lock().written;
            progress.make_read_durable(|_| sync(&log)).expect("the disk is sound");
            assert!(log.lock().durable >= read, "a loss of power undoes what was read");
        }
        other.join().expect("it has committed");
    });
}

/// A process that commits one change.
fn committer(locks: &'static Path, log: &Arc<Mutex<LogOnDisk>>) -> impl FnOnce() + use<> {
    let log = Arc::clone(log);
    let turns = CommitTurns::open(locks).expect("the file opens");
    let progress = LogProgress::open(locks).expect("the file opens");
    move || {
        let turn = turns.wait().expect("the kernel grants the turn");
        let numbers = progress.numbers();
        let change = numbers.written.max(numbers.durable).max(numbers.appending) + 1;
        progress.set_appending(change);
        {
            let mut log = log.lock();
            assert_eq!(change, log.written + 1, "two have the turn");
            log.written = change;
        }
        progress.set_written(change);
        drop(turn);
        progress.make_durable(change, |_| sync(&log)).expect("the disk is sound");
        assert!(log.lock().durable >= change, "a change is lost if the power fails now");
    }
}

/// Makes everything durable that is in the log when it begins.
fn sync(log: &Mutex<LogOnDisk>) -> crate::error::Result<()> {
    let begun = log.lock().written;
    let mut log = log.lock();
    log.durable = log.durable.max(begun);
    Ok(())
}

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
#[expect(dead_code, reason = "no scenario withdraws a change, or reads without the right to write")]
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

/// The last step of a committer that is killed in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KilledAfter {
    Announcing,
    Appending,
    Recording,
}

/// Processes commit, one change each: each has its turn alone, and no change is acknowledged before a sync that began behind
/// it has ended. Whoever waits for the sync of another one is woken.
pub fn changes_are_durable_when_they_are_acknowledged(processes: usize, preemptions: usize) {
    crate::explore("changes are durable when they are acknowledged", preemptions, move || {
        let log = begin(processes as u64 + 1);
        let others: Vec<_> = (1..processes)
            .map(|_| {
                let process = Process::open(&log);
                thread::spawn(move || process.commit())
            })
            .collect();
        Process::open(&log).commit();
        others.into_iter().for_each(|other| other.join().expect("it has committed"));
    });
}

/// A process reads what others append, and reads again: what it has read is durable after it has waited for that, also
/// while a committer is between its change in the log and the number of the change, or was killed there.
pub fn what_is_read_is_durable(preemptions: usize) {
    use KilledAfter::{Announcing, Appending, Recording};
    for killed_after in [None, Some(Announcing), Some(Appending), Some(Recording)] {
        let killed = killed_after.map(|step| format!(", a committer is killed after {step:?}"));
        let what = format!("what is read is durable{}", killed.unwrap_or_default());
        // Without a kill there are fewer steps.
        let preemptions = preemptions + usize::from(killed_after.is_none());
        crate::explore(&what, preemptions, move || {
            let log = begin(3);
            let (killed, next, reader) =
                (Process::open(&log), Process::open(&log), Process::open(&log));
            let other = thread::spawn(move || {
                if killed_after.is_none() {
                    return next.commit();
                }
                // A committer whose predecessor was killed may wait until its time-out, so the next one does not wait.
                killed.append(killed_after);
                next.append(None);
            });
            for _ in 0..2 {
                reader.read();
            }
            other.join().expect("it has committed");
        });
    }
}

/// A log of a host on which changes get numbers below `end`.
fn begin(end: u64) -> Arc<Mutex<LogOnDisk>> {
    let bells = bells::Bells::open(Path::new(LOCKS)).map(Arc::new).expect("there is memory");
    // A mapped file has its zeros before any process sees it.
    (1..=end).for_each(|change| drop(bells.listen_for_change(change)));
    Arc::default()
}

const LOCKS: &str = "locks";

/// A process that commits or reads.
struct Process {
    turns: CommitTurns,
    progress: LogProgress,
    log: Arc<Mutex<LogOnDisk>>,
}

impl Process {
    fn open(log: &Arc<Mutex<LogOnDisk>>) -> Self {
        let turns = CommitTurns::open(Path::new(LOCKS)).expect("the file opens");
        let progress = LogProgress::open(Path::new(LOCKS)).expect("the file opens");
        Process { turns, progress, log: Arc::clone(log) }
    }

    /// Appends a change in the turn to commit, and returns its number.
    fn append(&self, killed_after: Option<KilledAfter>) -> u64 {
        let _turn = self.turns.wait().expect("the kernel grants the turn");
        self.progress.record_lost_change();
        let change = self.progress.announce_change();
        if killed_after == Some(KilledAfter::Announcing) {
            return change;
        }
        {
            let mut log = self.log.lock();
            assert!(change > log.written, "two have the turn");
            log.written = change;
        }
        if killed_after != Some(KilledAfter::Appending) {
            self.progress.record_change(change);
        }
        change
    }

    fn commit(&self) {
        let change = self.append(None);
        self.progress.make_durable(change, |_| self.sync()).expect("the disk is sound");
        assert!(self.log.lock().durable >= change, "a change is lost if the power fails now");
    }

    fn read(&self) {
        let read = self.log.lock().written;
        if self.progress.numbers().is_appending() {
            self.progress.look_for_lost_change(&self.turns).expect("the kernel answers");
        }
        self.progress.make_read_durable(|_| self.sync()).expect("the disk is sound");
        assert!(self.log.lock().durable >= read, "a loss of power undoes what was read");
    }

    /// Makes everything durable that is in the log when it begins.
    fn sync(&self) -> crate::error::Result<()> {
        let begun = self.log.lock().written;
        let mut log = self.log.lock();
        log.durable = log.durable.max(begun);
        Ok(())
    }
}

//! Histories of concurrent transactions, checked for snapshot isolation and for serialisability; and the
//! checker, checked with histories that are wrong.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use femtobarn::Federation;
use femtobarn_faults::crash::in_memory;
use femtobarn_faults::history::{Anomaly, Level, Operation, Outcome, Transaction, check, recorder};

const PROCESSES: u64 = 3;

/// A committed transaction, from a text such as `r0:1,2 a0:3`. All of a history are concurrent.
fn committed(csn: u64, operations: &str) -> Transaction {
    Transaction::from_line(&format!("0 100 {csn} {operations}")).unwrap()
}

fn last(lists: &[&[u64]]) -> BTreeMap<u64, Vec<u64>> {
    (0..).zip(lists.iter().map(|list| list.to_vec())).collect()
}

fn is_cycle(checked: Result<(), Anomaly>) -> bool {
    matches!(checked, Err(Anomaly::Cycle(_)))
}

#[test]
fn a_line_is_read_back() {
    let operations = vec![Operation::Read(3, vec![]), Operation::Append(3, 7)];
    for outcome in [Outcome::Committed(4), Outcome::Aborted] {
        let transaction = Transaction { time: 5..6, outcome, operations: operations.clone() };
        assert_eq!(Transaction::from_line(&transaction.to_line()).unwrap(), transaction);
    }
}

#[test]
fn what_is_right_is_accepted() {
    let history = [
        committed(1, "r0: a0:1 r0:1"),
        committed(2, "r0:1 a1:2"),
        committed(3, "r1:2 r0:1 a0:3 a0:4"),
        committed(4, "r0:1,3,4 r1:2 a1:5"),
    ];
    let last = last(&[&[1, 3, 4], &[2, 5]]);
    for level in [Level::Snapshot, Level::Serializable] {
        assert_eq!(check(&history, &last, level), Ok(()));
    }
}

#[test]
fn write_skew_is_snapshot_isolated_and_not_serialisable() {
    let history = [committed(1, "r0: r1: a0:1"), committed(2, "r0: r1: a1:2")];
    let last = last(&[&[1], &[2]]);
    assert_eq!(check(&history, &last, Level::Snapshot), Ok(()));
    assert!(is_cycle(check(&history, &last, Level::Serializable)));
}

#[test]
fn a_lost_update_is_rejected() {
    // Both read the empty list, and both wrote.
    let history = [committed(1, "r0: a0:1"), committed(2, "r0: a0:2")];
    assert!(is_cycle(check(&history, &last(&[&[1, 2]]), Level::Snapshot)));
    let checked = check(&history, &last(&[&[2]]), Level::Snapshot);
    assert!(matches!(checked, Err(Anomaly::Lost(_))), "{checked:?}");
}

#[test]
fn reading_two_snapshots_is_rejected() {
    // The second saw the first's write to one register and not to the other.
    let history = [committed(1, "a0:1 a1:2"), committed(2, "r0:1 r1: a2:3")];
    assert!(is_cycle(check(&history, &last(&[&[1], &[2], &[3]]), Level::Snapshot)));
}

#[test]
fn writes_in_opposite_orders_are_rejected() {
    let history = [committed(1, "a0:1 a1:2"), committed(1, "a0:3 a1:4")];
    assert!(is_cycle(check(&history, &last(&[&[1, 3], &[4, 2]]), Level::Snapshot)));
    // With sequence numbers the same is found at once.
    let history = [committed(1, "a0:1 a1:2"), committed(2, "a0:3 a1:4")];
    let checked = check(&history, &last(&[&[1, 3], &[4, 2]]), Level::Snapshot);
    assert!(matches!(checked, Err(Anomaly::Order(_))), "{checked:?}");
}

#[test]
fn writes_seen_in_a_circle_are_rejected() {
    let history = [committed(1, "a0:1 r1:2"), committed(2, "a1:2 r0:1")];
    assert!(is_cycle(check(&history, &last(&[&[1], &[2]]), Level::Snapshot)));
}

#[test]
fn dirty_reads_are_rejected() {
    let mut history = [committed(1, "a0:1"), committed(2, "r0:1 a1:2")];
    history[0].outcome = Outcome::Aborted;
    let checked = check(&history, &last(&[&[], &[2]]), Level::Snapshot);
    assert!(matches!(checked, Err(Anomaly::Dirty(_))), "{checked:?}");
    // In the middle of a transaction that appended twice.
    let history = [committed(1, "a0:1 a0:2"), committed(2, "r0:1 a1:3")];
    let checked = check(&history, &last(&[&[1, 2], &[3]]), Level::Snapshot);
    assert!(matches!(checked, Err(Anomaly::Dirty(_))), "{checked:?}");
}

#[test]
fn not_seeing_ones_own_writes_is_rejected() {
    let history = [committed(1, "r0: a0:1 r0:")];
    let checked = check(&history, &last(&[&[1]]), Level::Snapshot);
    assert!(matches!(checked, Err(Anomaly::Inconsistent(_))), "{checked:?}");
}

#[test]
fn reading_the_past_is_rejected() {
    let mut history = [committed(1, "r0: a0:1"), committed(2, "r0: a1:2")];
    assert_eq!(check(&history, &last(&[&[1], &[2]]), Level::Snapshot), Ok(()));
    history[0].time = 0..10;
    history[1].time = 20..30;
    assert!(is_cycle(check(&history, &last(&[&[1], &[2]]), Level::Snapshot)));
}

/// Three processes with two threads each.
fn record(level: Level, count: u64) {
    let place = in_memory().unwrap();
    let folder = place.path().join("fed");
    recorder::prepare(&folder).unwrap();
    let start = |process: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workload"));
        let level = if level == Level::Snapshot { "snapshot" } else { "serializable" };
        command.arg("history").arg(&folder).args([level, &process.to_string(), &count.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..PROCESSES).map(start).collect();
    let mut history = vec![];
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        history.extend(text.lines().map(|line| Transaction::from_line(line).unwrap()));
    }
    let last = recorder::lists(&Federation::open(&folder).unwrap()).unwrap();
    let is_committed = |each: &&Transaction| each.outcome != Outcome::Aborted;
    let committed = history.iter().filter(is_committed).count();
    crate::tell(&format!("{level:?}: {} transactions, {committed} committed", history.len()));
    if let Err(anomaly) = check(&history, &last, level) {
        if let Anomaly::Cycle(cycle) = &anomaly {
            cycle.iter().for_each(|at| println!("{at}: {}", history[*at].to_line()));
        }
        panic!("{level:?}: {anomaly:?}");
    }
    assert!(committed > history.len() / 10, "only {committed} committed");
}

#[test]
fn concurrent_transactions_are_snapshot_isolated() {
    record(Level::Snapshot, 60);
}

#[test]
fn concurrent_transactions_are_serialisable_when_asked() {
    record(Level::Serializable, 60);
}

#[test]
#[ignore = "minutes: long histories"]
fn many_concurrent_transactions_are_isolated() {
    record(Level::Snapshot, 800);
    record(Level::Serializable, 800);
}

//! Histories of concurrent transactions, checked for snapshot isolation and for serialisability; and the
//! checker, checked with histories that are wrong.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use femtobarn::Federation;
use femtobarn_faults::crash::in_memory;
use femtobarn_faults::history::{
    Anomaly, IsolationLevel, ObservedTransaction, RegisterOperation, TransactionOutcome, check,
    recorder,
};

const PROCESSES: u64 = 3;

/// A committed transaction, from a text such as `r0:1,2 a0:3`. All transactions of a history are concurrent.
fn committed(csn: u64, operations: &str) -> ObservedTransaction {
    ObservedTransaction::from_line(&format!("0 100 {csn} {operations}")).unwrap()
}

fn last(lists: &[&[u64]]) -> BTreeMap<u64, Vec<u64>> {
    (0..).zip(lists.iter().map(|list| list.to_vec())).collect()
}

fn is_cycle(checked: Result<(), Anomaly>) -> bool {
    matches!(checked, Err(Anomaly::Cycle(_)))
}

#[test]
fn a_line_round_trips() {
    let operations = vec![RegisterOperation::Read(3, vec![]), RegisterOperation::Append(3, 7)];
    for outcome in [TransactionOutcome::Committed(4), TransactionOutcome::Aborted] {
        let transaction =
            ObservedTransaction { time: 5..6, outcome, operations: operations.clone() };
        assert_eq!(ObservedTransaction::from_line(&transaction.to_line()).unwrap(), transaction);
    }
}

#[test]
fn a_serialisable_history_is_accepted() {
    let history = [
        committed(1, "r0: a0:1 r0:1"),
        committed(2, "r0:1 a1:2"),
        committed(3, "r1:2 r0:1 a0:3 a0:4"),
        committed(4, "r0:1,3,4 r1:2 a1:5"),
    ];
    let last = last(&[&[1, 3, 4], &[2, 5]]);
    for level in [IsolationLevel::Snapshot, IsolationLevel::Serializable] {
        assert_eq!(check(&history, &last, level), Ok(()));
    }
}

#[test]
fn write_skew_is_snapshot_isolated_and_not_serialisable() {
    let history = [committed(1, "r0: r1: a0:1"), committed(2, "r0: r1: a1:2")];
    let last = last(&[&[1], &[2]]);
    assert_eq!(check(&history, &last, IsolationLevel::Snapshot), Ok(()));
    assert!(is_cycle(check(&history, &last, IsolationLevel::Serializable)));
}

#[test]
fn a_lost_update_is_rejected() {
    // Both read the empty list, and both wrote.
    let history = [committed(1, "r0: a0:1"), committed(2, "r0: a0:2")];
    assert!(is_cycle(check(&history, &last(&[&[1, 2]]), IsolationLevel::Snapshot)));
    let checked = check(&history, &last(&[&[2]]), IsolationLevel::Snapshot);
    assert!(matches!(checked, Err(Anomaly::Lost(_))), "{checked:?}");
}

#[test]
fn reading_two_snapshots_is_rejected() {
    // The second saw the first's write to one register and not to the other.
    let history = [committed(1, "a0:1 a1:2"), committed(2, "r0:1 r1: a2:3")];
    assert!(is_cycle(check(&history, &last(&[&[1], &[2], &[3]]), IsolationLevel::Snapshot)));
}

#[test]
fn writes_in_opposite_orders_are_rejected() {
    let history = [committed(1, "a0:1 a1:2"), committed(1, "a0:3 a1:4")];
    assert!(is_cycle(check(&history, &last(&[&[1, 3], &[4, 2]]), IsolationLevel::Snapshot)));
    // With sequence numbers the same is found at once.
    let history = [committed(1, "a0:1 a1:2"), committed(2, "a0:3 a1:4")];
    let checked = check(&history, &last(&[&[1, 3], &[4, 2]]), IsolationLevel::Snapshot);
    assert!(matches!(checked, Err(Anomaly::Order(_))), "{checked:?}");
}

#[test]
fn writes_seen_in_a_circle_are_rejected() {
    let history = [committed(1, "a0:1 r1:2"), committed(2, "a1:2 r0:1")];
    assert!(is_cycle(check(&history, &last(&[&[1], &[2]]), IsolationLevel::Snapshot)));
}

#[test]
fn dirty_reads_are_rejected() {
    let mut history = [committed(1, "a0:1"), committed(2, "r0:1 a1:2")];
    history[0].outcome = TransactionOutcome::Aborted;
    let checked = check(&history, &last(&[&[], &[2]]), IsolationLevel::Snapshot);
    assert!(matches!(checked, Err(Anomaly::Dirty(_))), "{checked:?}");
    // In the middle of a transaction that appended twice.
    let history = [committed(1, "a0:1 a0:2"), committed(2, "r0:1 a1:3")];
    let checked = check(&history, &last(&[&[1, 2], &[3]]), IsolationLevel::Snapshot);
    assert!(matches!(checked, Err(Anomaly::Dirty(_))), "{checked:?}");
}

#[test]
fn a_read_without_the_transactions_own_write_is_rejected() {
    let history = [committed(1, "r0: a0:1 r0:")];
    let checked = check(&history, &last(&[&[1]]), IsolationLevel::Snapshot);
    assert!(matches!(checked, Err(Anomaly::Inconsistent(_))), "{checked:?}");
}

#[test]
fn a_stale_read_is_rejected() {
    let mut history = [committed(1, "r0: a0:1"), committed(2, "r0: a1:2")];
    assert_eq!(check(&history, &last(&[&[1], &[2]]), IsolationLevel::Snapshot), Ok(()));
    history[0].time = 0..10;
    history[1].time = 20..30;
    assert!(is_cycle(check(&history, &last(&[&[1], &[2]]), IsolationLevel::Snapshot)));
}

/// Three processes with two threads each.
fn record(level: IsolationLevel, count: u64) {
    let place = in_memory().unwrap();
    let folder = place.path().join("fed");
    recorder::prepare(&folder).unwrap();
    let start = |process: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workload"));
        let level = if level == IsolationLevel::Snapshot { "snapshot" } else { "serializable" };
        command.arg("history").arg(&folder).args([level, &process.to_string(), &count.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..PROCESSES).map(start).collect();
    let mut history = vec![];
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        history.extend(text.lines().map(|line| ObservedTransaction::from_line(line).unwrap()));
    }
    let last = recorder::lists(&Federation::open(&folder).unwrap()).unwrap();
    let is_committed = |each: &&ObservedTransaction| each.outcome != TransactionOutcome::Aborted;
    let committed = history.iter().filter(is_committed).count();
    crate::print_progress(&format!(
        "{level:?}: {} transactions, {committed} committed",
        history.len()
    ));
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
    record(IsolationLevel::Snapshot, 60);
}

#[test]
fn concurrent_transactions_are_serialisable_at_that_level() {
    record(IsolationLevel::Serializable, 60);
}

#[test]
#[ignore = "minutes: long histories"]
fn many_concurrent_transactions_are_isolated() {
    record(IsolationLevel::Snapshot, 800);
    record(IsolationLevel::Serializable, 800);
}

//! Records of concurrent transactions and of their reads.
//!
//! Transactions work on *registers*, each a list of numbers. Appending a number reads the list and writes it back
//! with the number at its end, so the final list has the order of all writes of the register, and a list that was
//! read shows the writes that its reader saw. Every number is appended once in a history.
//!
//! [`recorder`] makes a history, [`settle`] determines the outcomes of transactions whose answers were lost, and
//! [`check`] judges the history.

mod checker;
pub mod recorder;

use std::collections::BTreeMap;

pub use checker::{Anomaly, check};

/// The isolation that a history is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Each transaction reads one snapshot, and of two that write the same register the first wins.
    Snapshot,
    /// As if transactions ran one after the other.
    Serializable,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTransaction {
    /// Begin and end, on a clock that all transactions share.
    pub time: std::ops::Range<u64>,
    /// The outcome.
    pub outcome: TransactionOutcome,
    /// The operations, in order.
    pub operations: Vec<RegisterOperation>,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// Committed, with this sequence number.
    Committed(u64),
    /// Aborted.
    Aborted,
    /// The answer to its commit was lost.
    Unknown,
}

/// An operation on a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterOperation {
    /// Read this list from a register.
    Read(u64, Vec<u64>),
    /// Appended a number to a register.
    Append(u64, u64),
}

/// Settles unknown outcomes by the commits of the federation, by their messages: each transaction is named by
/// [`ObservedTransaction::message`]. One that was committed ended no earlier than the history.
pub fn settle(history: &mut [ObservedTransaction], commits: &BTreeMap<String, u64>) {
    for transaction in history {
        if transaction.outcome == TransactionOutcome::Unknown {
            let csn = transaction.message().and_then(|message| commits.get(&message));
            transaction.outcome =
                csn.map_or(TransactionOutcome::Aborted, |csn| TransactionOutcome::Committed(*csn));
            transaction.time.end = u64::MAX;
        }
    }
}

impl ObservedTransaction {
    /// The message of its commit, which names it: the first number that it appended. None if it appended none.
    pub fn message(&self) -> Option<String> {
        self.operations.iter().find_map(|operation| match operation {
            RegisterOperation::Append(_, number) => Some(number.to_string()),
            RegisterOperation::Read(..) => None,
        })
    }

    /// The transaction as a line of text.
    pub fn to_line(&self) -> String {
        let outcome = match self.outcome {
            TransactionOutcome::Committed(csn) => csn.to_string(),
            TransactionOutcome::Aborted => "-".to_owned(),
            TransactionOutcome::Unknown => "?".to_owned(),
        };
        let operation = |operation: &RegisterOperation| match operation {
            RegisterOperation::Read(register, list) => {
                let list: Vec<String> = list.iter().map(u64::to_string).collect();
                format!(" r{register}:{}", list.join(","))
            }
            RegisterOperation::Append(register, number) => format!(" a{register}:{number}"),
        };
        let operations: String = self.operations.iter().map(operation).collect();
        format!("{} {} {outcome}{operations}", self.time.start, self.time.end)
    }

    /// Parses a line of [`Self::to_line`]; none if it is invalid.
    pub fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let start = words.next()?.parse().ok()?;
        let end = words.next()?.parse().ok()?;
        let outcome = match words.next()? {
            "-" => TransactionOutcome::Aborted,
            "?" => TransactionOutcome::Unknown,
            csn => TransactionOutcome::Committed(csn.parse().ok()?),
        };
        let operation = |word: &str| {
            let (register, numbers) = word.get(1..)?.split_once(':')?;
            let register = register.parse().ok()?;
            let mut list = numbers.split(',').filter(|number| !number.is_empty());
            match word.as_bytes()[0] {
                b'a' => Some(RegisterOperation::Append(register, list.next()?.parse().ok()?)),
                b'r' => {
                    let list = list.map(|number| number.parse().ok()).collect::<Option<_>>()?;
                    Some(RegisterOperation::Read(register, list))
                }
                _ => None,
            }
        };
        let operations = words.map(operation).collect::<Option<_>>()?;
        Some(ObservedTransaction { time: start..end, outcome, operations })
    }
}

//! A record of concurrent transactions, and what each of them saw.
//!
//! Transactions work on *registers*, each of which is a list of numbers. Appending a number reads the
//! list and writes it back with the number at its end, so that the last list tells the order in which
//! the register was written, and a list that was read tells which of these writes the reader saw. Every
//! number is appended once in a history.

mod checker;
pub mod recorder;

pub use checker::{Anomaly, check};

/// How strictly transactions are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Each reads one snapshot, and the first of two that write the same wins.
    Snapshot,
    /// As if one came after the other.
    Serializable,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// When it began and when it was over, on one clock for all.
    pub time: std::ops::Range<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in order.
    pub operations: Vec<Operation>,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It happened, with this commit.
    Committed(u64),
    /// It did not happen.
    Aborted,
}

/// One thing that a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Saw a register's list.
    Read(u64, Vec<u64>),
    /// Appended a number to a register.
    Append(u64, u64),
}

impl Transaction {
    /// The line that says all this.
    pub fn to_line(&self) -> String {
        let outcome = match self.outcome {
            Outcome::Committed(csn) => csn.to_string(),
            Outcome::Aborted => "-".to_owned(),
        };
        let operation = |operation: &Operation| match operation {
            Operation::Read(register, list) => {
                let list: Vec<String> = list.iter().map(u64::to_string).collect();
                format!(" r{register}:{}", list.join(","))
            }
            Operation::Append(register, number) => format!(" a{register}:{number}"),
        };
        let operations: String = self.operations.iter().map(operation).collect();
        format!("{} {} {outcome}{operations}", self.time.start, self.time.end)
    }

    /// Reads such a line; none if it is none.
    pub fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let start = words.next()?.parse().ok()?;
        let end = words.next()?.parse().ok()?;
        let outcome = match words.next()? {
            "-" => Outcome::Aborted,
            csn => Outcome::Committed(csn.parse().ok()?),
        };
        let operation = |word: &str| {
            let (register, numbers) = word.get(1..)?.split_once(':')?;
            let register = register.parse().ok()?;
            let mut list = numbers.split(',').filter(|number| !number.is_empty());
            match word.as_bytes()[0] {
                b'a' => Some(Operation::Append(register, list.next()?.parse().ok()?)),
                b'r' => {
                    let list = list.map(|number| number.parse().ok()).collect::<Option<_>>()?;
                    Some(Operation::Read(register, list))
                }
                _ => None,
            }
        };
        let operations = words.map(operation).collect::<Option<_>>()?;
        Some(Transaction { time: start..end, outcome, operations })
    }
}

//! Checks whether a history is possible under snapshot isolation, or under serialisability.
//!
//! The numbers of a register stand in the order of its writes (*ww*). A transaction that read a list saw its writes
//! (*wr*) and precedes the write of the number after it (*rw*). By Adya's definitions, and the theorem of Fekete
//! et al. on cycles, committed transactions are
//!
//! * serialisable if and only if these edges form no cycle;
//! * snapshot isolated only if every cycle has two consecutive *rw* edges.
//!
//! A transaction that began after another ended also follows it, so that stale reads are found. Commits have
//! sequence numbers, which every *ww* edge must follow.

use std::collections::{BTreeMap, BTreeSet};

use super::{IsolationLevel, ObservedTransaction, RegisterOperation, TransactionOutcome};

/// A violation of isolation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// A list was read that no committed transaction left: an aborted, intermediate or invented one.
    Dirty(String),
    /// A transaction did not see its own reads or writes again.
    Inconsistent(String),
    /// A committed write is missing.
    Lost(String),
    /// Two lists of a register contradict each other.
    Order(String),
    /// A cycle of transactions, each of which precedes the next.
    Cycle(Vec<usize>),
}

/// Edges of the graph of transactions.
#[derive(Default)]
struct Graph {
    /// *ww*, *wr* and time.
    dependencies: BTreeMap<usize, BTreeSet<usize>>,
    /// *rw*.
    antidependencies: BTreeMap<usize, BTreeSet<usize>>,
}

/// Checks a history against the final lists of the registers.
///
/// # Errors
/// The first anomaly.
pub fn check(
    history: &[ObservedTransaction],
    last: &BTreeMap<u64, Vec<u64>>,
    level: IsolationLevel,
) -> Result<(), Anomaly> {
    let writers = writers(history, last)?;
    history.iter().try_for_each(check_itself)?;
    let mut graph = Graph::default();
    for (register, list) in last {
        let of = |number: &u64| writers[&(*register, *number)];
        for pair in list.windows(2) {
            graph.depend(of(&pair[0]), of(&pair[1]));
        }
        for pair in list.windows(2).map(|pair| (of(&pair[0]), of(&pair[1]))) {
            if csn(&history[pair.0]) > csn(&history[pair.1]) {
                let text = format!("register {register}: commits are not in the order of writes");
                return Err(Anomaly::Order(text));
            }
        }
    }
    for (reader, transaction) in history.iter().enumerate() {
        if csn(transaction).is_none() {
            continue;
        }
        for (register, seen) in first_reads(transaction) {
            let list = last.get(&register).map_or(&[][..], Vec::as_slice);
            check_read(history, &writers, register, seen, list)?;
            if let Some(number) = seen.last() {
                graph.depend(writers[&(register, *number)], reader);
            }
            if let Some(number) = list.get(seen.len()) {
                graph.anti_depend(reader, writers[&(register, *number)]);
            }
        }
    }
    graph.add_time(history);
    graph.check(history.len(), level)
}

fn csn(transaction: &ObservedTransaction) -> Option<u64> {
    match transaction.outcome {
        TransactionOutcome::Committed(csn) => Some(csn),
        TransactionOutcome::Aborted | TransactionOutcome::Unknown => None,
    }
}

/// The transaction that appended each number. The final lists must have the numbers of all committed ones and no
/// others.
fn writers(
    history: &[ObservedTransaction],
    last: &BTreeMap<u64, Vec<u64>>,
) -> Result<BTreeMap<(u64, u64), usize>, Anomaly> {
    let mut writers = BTreeMap::new();
    for (at, transaction) in history.iter().enumerate() {
        for operation in &transaction.operations {
            if let RegisterOperation::Append(register, number) = operation {
                writers.insert((*register, *number), at);
            }
        }
    }
    let mut there = BTreeSet::new();
    for (register, list) in last {
        for number in list {
            let writer = writers.get(&(*register, *number));
            if writer.is_none_or(|writer| csn(&history[*writer]).is_none()) {
                let text = format!(
                    "register {register} ends with {number}, which no transaction committed"
                );
                return Err(Anomaly::Dirty(text));
            }
            if !there.insert((*register, *number)) {
                return Err(Anomaly::Order(format!("register {register} has {number} twice")));
            }
        }
    }
    for ((register, number), writer) in &writers {
        if csn(&history[*writer]).is_some() && !there.contains(&(*register, *number)) {
            let text = format!("register {register} has lost {number} of transaction {writer}");
            return Err(Anomaly::Lost(text));
        }
    }
    Ok(writers)
}

/// Checks that a transaction sees each register as first read, plus its own appends.
fn check_itself(transaction: &ObservedTransaction) -> Result<(), Anomaly> {
    let mut lists: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for operation in &transaction.operations {
        match operation {
            RegisterOperation::Read(register, list) => {
                let known = lists.entry(*register).or_insert_with(|| list.clone());
                if known != list {
                    let text = format!("register {register} was {known:?} and then {list:?}");
                    return Err(Anomaly::Inconsistent(text));
                }
            }
            RegisterOperation::Append(register, number) => {
                lists.entry(*register).and_modify(|list| list.push(*number));
            }
        }
    }
    Ok(())
}

/// The first read of each register that the transaction had not written to before.
fn first_reads(transaction: &ObservedTransaction) -> Vec<(u64, &[u64])> {
    let mut touched = BTreeSet::new();
    let mut reads = vec![];
    for operation in &transaction.operations {
        match operation {
            RegisterOperation::Read(register, list) if touched.insert(*register) => {
                reads.push((*register, list.as_slice()));
            }
            RegisterOperation::Append(register, _) => drop(touched.insert(*register)),
            RegisterOperation::Read(..) => {}
        }
    }
    reads
}

/// Checks that a list that was read is a prefix of the final one, and ends with the last number of its writer.
fn check_read(
    history: &[ObservedTransaction],
    writers: &BTreeMap<(u64, u64), usize>,
    register: u64,
    seen: &[u64],
    last: &[u64],
) -> Result<(), Anomaly> {
    let stray = seen.iter().find(|number| {
        let writer = writers.get(&(register, **number));
        writer.is_none_or(|writer| csn(&history[*writer]).is_none())
    });
    if let Some(number) = stray {
        let text =
            format!("register {register}: {number} was read, which no transaction committed");
        return Err(Anomaly::Dirty(text));
    }
    if !last.starts_with(seen) {
        let text = format!("register {register}: {seen:?} was read, and it ends as {last:?}");
        return Err(Anomaly::Order(text));
    }
    let writer = |number: Option<&u64>| number.and_then(|n| writers.get(&(register, *n)));
    let (before, after) = (writer(seen.last()), writer(last.get(seen.len())));
    if before.is_some() && before == after {
        Err(Anomaly::Dirty(format!("register {register}: read in the middle of a commit")))
    } else {
        Ok(())
    }
}

impl Graph {
    fn depend(&mut self, first: usize, then: usize) {
        if first != then {
            self.dependencies.entry(first).or_default().insert(then);
        }
    }

    fn anti_depend(&mut self, first: usize, then: usize) {
        if first != then {
            self.antidependencies.entry(first).or_default().insert(then);
        }
    }

    /// Adds an edge from each transaction to those that began after its end.
    fn add_time(&mut self, history: &[ObservedTransaction]) {
        let committed = |at: &usize| csn(&history[*at]).is_some();
        for first in (0..history.len()).filter(committed) {
            for then in (0..history.len()).filter(committed) {
                if history[first].time.end < history[then].time.start {
                    self.depend(first, then);
                }
            }
        }
    }

    fn check(&self, count: usize, level: IsolationLevel) -> Result<(), Anomaly> {
        let next = |at: usize| {
            let direct = self.dependencies.get(&at).into_iter().flatten().copied();
            let mut all: BTreeSet<usize> = direct.collect();
            match level {
                IsolationLevel::Serializable => all.extend(self.anti(at)),
                // A step is a dependency and at most one antidependency after it, so a cycle of steps never has
                // two consecutive antidependencies.
                IsolationLevel::Snapshot => {
                    let through: Vec<usize> = all.iter().flat_map(|at| self.anti(*at)).collect();
                    all.extend(through);
                }
            }
            all
        };
        let edges: Vec<BTreeSet<usize>> = (0..count).map(next).collect();
        cycle(&edges).map_or(Ok(()), |cycle| Err(Anomaly::Cycle(cycle)))
    }

    fn anti(&self, at: usize) -> impl Iterator<Item = usize> {
        self.antidependencies.get(&at).into_iter().flatten().copied()
    }
}

/// Finds a cycle by a depth-first search without recursion.
fn cycle(edges: &[BTreeSet<usize>]) -> Option<Vec<usize>> {
    let mut is_done = vec![false; edges.len()];
    let mut is_open = vec![false; edges.len()];
    for root in 0..edges.len() {
        let mut path = vec![(root, edges[root].iter())];
        if is_done[root] {
            continue;
        }
        is_open[root] = true;
        while let Some((at, rest)) = path.last_mut() {
            match rest.next() {
                Some(next) if is_open[*next] => {
                    let nodes = path.iter().map(|(at, _)| *at);
                    return Some(nodes.skip_while(|at| at != next).collect());
                }
                Some(next) if is_done[*next] => {}
                Some(next) => {
                    is_open[*next] = true;
                    path.push((*next, edges[*next].iter()));
                }
                None => {
                    is_done[*at] = true;
                    is_open[*at] = false;
                    path.pop();
                }
            }
        }
    }
    None
}

//! Whether a history can have come about under snapshot isolation, or serially.
//!
//! Numbers of a register stand in the order of its writes (*ww*); who read a list saw the writes in it
//! (*wr*) and came before the write of the number after it (*rw*). By Adya's definitions, and the theorem
//! of Fekete and others on cycles, committed transactions are
//!
//! * serialisable if and only if these edges make no cycle;
//! * snapshot isolated only if every cycle has two *rw* edges in a row.
//!
//! Time counts, too: who began when another was over comes after it, so that reading the past is found.
//! Commits also have sequence numbers, which every *ww* edge must follow.

use std::collections::{BTreeMap, BTreeSet};

use super::{Level, Operation, Outcome, Transaction};

/// What is wrong with a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// Something was read that no committed transaction left: aborted, in the middle, or from nowhere.
    Dirty(String),
    /// A transaction did not see what it had seen or written itself.
    Inconsistent(String),
    /// What a committed transaction wrote is not there.
    Lost(String),
    /// Two lists of a register contradict each other.
    Order(String),
    /// Transactions that come each before the next and before themselves.
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

/// Checks a history against the lists that the registers have at its end.
///
/// # Errors
/// The first anomaly that is found.
pub fn check(
    history: &[Transaction],
    last: &BTreeMap<u64, Vec<u64>>,
    level: Level,
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

fn csn(transaction: &Transaction) -> Option<u64> {
    match transaction.outcome {
        Outcome::Committed(csn) => Some(csn),
        Outcome::Aborted => None,
    }
}

/// Which transaction appended each number; all of committed ones, and no others, must be there.
fn writers(
    history: &[Transaction],
    last: &BTreeMap<u64, Vec<u64>>,
) -> Result<BTreeMap<(u64, u64), usize>, Anomaly> {
    let mut writers = BTreeMap::new();
    for (at, transaction) in history.iter().enumerate() {
        for operation in &transaction.operations {
            if let Operation::Append(register, number) = operation {
                writers.insert((*register, *number), at);
            }
        }
    }
    let mut there = BTreeSet::new();
    for (register, list) in last {
        for number in list {
            let writer = writers.get(&(*register, *number));
            if writer.is_none_or(|writer| csn(&history[*writer]).is_none()) {
                let text =
                    format!("register {register} ends with {number}, which nobody committed");
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

/// Within a transaction a register is what it was when first read, and what was appended since.
fn check_itself(transaction: &Transaction) -> Result<(), Anomaly> {
    let mut lists: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for operation in &transaction.operations {
        match operation {
            Operation::Read(register, list) => {
                let known = lists.entry(*register).or_insert_with(|| list.clone());
                if known != list {
                    let text = format!("register {register} was {known:?} and then {list:?}");
                    return Err(Anomaly::Inconsistent(text));
                }
            }
            Operation::Append(register, number) => {
                lists.entry(*register).and_modify(|list| list.push(*number));
            }
        }
    }
    Ok(())
}

/// What a transaction read of each register before it wrote to it.
fn first_reads(transaction: &Transaction) -> Vec<(u64, &[u64])> {
    let mut touched = BTreeSet::new();
    let mut reads = vec![];
    for operation in &transaction.operations {
        match operation {
            Operation::Read(register, list) if touched.insert(*register) => {
                reads.push((*register, list.as_slice()));
            }
            Operation::Append(register, _) => drop(touched.insert(*register)),
            Operation::Read(..) => {}
        }
    }
    reads
}

/// A list that was read is the first part of the last one, and ends with a writer's last number.
fn check_read(
    history: &[Transaction],
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
        let text = format!("register {register}: {number} was read, which nobody committed");
        return Err(Anomaly::Dirty(text));
    }
    if !last.starts_with(seen) {
        let text = format!("register {register}: {seen:?} was read, and it ends as {last:?}");
        return Err(Anomaly::Order(text));
    }
    let writer = |number: Option<&u64>| number.and_then(|n| writers.get(&(register, *n)));
    let (before, after) = (writer(seen.last()), writer(last.get(seen.len())));
    match before.is_some() && before == after {
        true => Err(Anomaly::Dirty(format!("register {register}: read in the middle of a commit"))),
        false => Ok(()),
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

    /// Who began after another was over comes after it.
    fn add_time(&mut self, history: &[Transaction]) {
        let committed = |at: &usize| csn(&history[*at]).is_some();
        for first in (0..history.len()).filter(committed) {
            for then in (0..history.len()).filter(committed) {
                if history[first].time.end < history[then].time.start {
                    self.depend(first, then);
                }
            }
        }
    }

    fn check(&self, count: usize, level: Level) -> Result<(), Anomaly> {
        let next = |at: usize| {
            let direct = self.dependencies.get(&at).into_iter().flatten().copied();
            let mut all: BTreeSet<usize> = direct.collect();
            match level {
                Level::Serializable => all.extend(self.anti(at)),
                // A dependency and at most one antidependency after it are one step, so that a cycle
                // of steps is one without two antidependencies in a row.
                Level::Snapshot => {
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

/// A cycle, if there is one: a search in depth, without recursion.
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

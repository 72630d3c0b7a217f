//! The transactions of a federation, and their commit numbers.
//!
//! A record states the version of each container that its transaction continued, and thereby the commit
//! number of the version before. A version that no record continues is numbered after the newest commit that
//! its writer saw. Numbers of tagged commits are known.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use femtobarn_catalog::Csn;
use uuid::Uuid;

use super::scanned_file::ScannedFile;
use crate::storage::scan::FoundRecord;
use crate::transaction::ContainerKey;

/// The transactions of a federation, in the order of their commits.
pub(super) struct History<'a> {
    pub transactions: Vec<RecordedTransaction<'a>>,
}

/// A transaction that was committed, or may have been.
pub(super) struct RecordedTransaction<'a> {
    pub csn: Csn,
    pub id: Uuid,
    /// Its records, each with the index of its file.
    pub parts: Vec<(usize, &'a FoundRecord)>,
}

impl<'a> History<'a> {
    /// `known` has the numbers of some commits, by their transactions.
    pub(super) fn of(
        files: &'a [ScannedFile],
        federation: Uuid,
        known: &HashMap<Uuid, Csn>,
    ) -> Self {
        let mut transactions = prepared(files, federation);
        let dropped = superseded(&transactions);
        transactions.retain(|it| !dropped.contains(&it.id));
        number(&mut transactions, known);
        transactions.sort_by_key(|it| it.csn);
        History { transactions }
    }
}

impl RecordedTransaction<'_> {
    /// The order of preparation: the head that the writer saw, the time and, to break ties, the offset.
    fn order(&self) -> (Csn, i64, u64) {
        let orders = self
            .parts
            .iter()
            .map(|(_, found)| (found.record.after, found.record.time_us, found.range.offset));
        orders.max().unwrap_or_default()
    }

    /// The versions that it made, each with the version it continues.
    fn versions(&self) -> impl Iterator<Item = (ContainerKey, Option<Csn>)> {
        let parts = self.parts.iter().map(|(_, found)| &found.record);
        let made = parts.filter(|record| record.end.is_none());
        made.flat_map(|record| {
            let key = |id| ContainerKey { database: record.number, container: id };
            record.containers.iter().map(move |it| (key(it.id), it.base))
        })
    }
}

/// The transactions whose records are complete, in the order of preparation. A record in a deleted database
/// is not missed: the database would exist had the transaction not been committed.
fn prepared(files: &[ScannedFile], federation: Uuid) -> Vec<RecordedTransaction<'_>> {
    let mut parts: HashMap<Uuid, Vec<(usize, &FoundRecord)>> = HashMap::new();
    for (number, file) in files.iter().enumerate() {
        for found in file.found.iter().filter(|it| it.record.federation == federation) {
            let parts = parts.entry(found.record.transaction).or_default();
            // A repair of a file's front leaves a copy of a record; the later one counts.
            match parts.iter_mut().find(|(file, _)| *file == number) {
                Some(part) => part.1 = found,
                None => parts.push((number, found)),
            }
        }
    }
    let databases: HashSet<Uuid> =
        files.iter().flat_map(|file| &file.found).map(|found| found.record.database).collect();
    let is_whole = |parts: &[(usize, &FoundRecord)]| {
        let has = |uuid: &Uuid| parts.iter().any(|(_, found)| found.record.database == *uuid);
        let touched = &parts[0].1.record.databases;
        touched.iter().all(|uuid| has(uuid) || !databases.contains(uuid))
    };
    let mut transactions: Vec<RecordedTransaction<'_>> = parts
        .into_iter()
        .filter(|(_, parts)| is_whole(parts))
        .map(|(id, parts)| RecordedTransaction { csn: Csn::ZERO, id, parts })
        .collect();
    transactions.sort_by_key(RecordedTransaction::order);
    transactions
}

/// Transactions that continued the same version as a later one. A writer reads the version to continue under
/// the container's lock, so the earlier ones were never committed.
fn superseded(transactions: &[RecordedTransaction<'_>]) -> HashSet<Uuid> {
    let mut latest: HashMap<(ContainerKey, Option<Csn>), Uuid> = HashMap::new();
    let mut dropped = HashSet::new();
    for transaction in transactions {
        for version in transaction.versions() {
            dropped.extend(latest.insert(version, transaction.id));
        }
    }
    dropped
}

/// Assigns the commit numbers.
fn number(transactions: &mut [RecordedTransaction<'_>], known: &HashMap<Uuid, Csn>) {
    let mut chains: BTreeMap<ContainerKey, BTreeMap<Option<Csn>, usize>> = BTreeMap::new();
    for (position, transaction) in transactions.iter().enumerate() {
        for (key, base) in transaction.versions() {
            chains.entry(key).or_default().insert(base, position);
        }
    }
    for chain in chains.values() {
        let before = chain.values();
        let bases = chain.keys().skip(1).copied().flatten();
        for (&position, base) in before.zip(bases) {
            transactions[position].csn = base;
        }
    }
    let mut taken: BTreeSet<Csn> = transactions.iter().map(|it| it.csn).collect();
    for transaction in transactions.iter_mut().filter(|it| it.csn == Csn::ZERO) {
        if let Some(csn) = known.get(&transaction.id).filter(|csn| !taken.contains(csn)) {
            transaction.csn = *csn;
        }
    }
    taken.extend(known.values());
    // The rest, in the order of preparation.
    let mut last = Csn::ZERO;
    for transaction in transactions.iter_mut().filter(|it| it.csn == Csn::ZERO) {
        let bases = transaction.versions().filter_map(|(_, base)| base);
        let after = bases.max().unwrap_or_default().max(transaction.order().0).max(last);
        let free = (after.0 + 1..).map(Csn).find(|csn| !taken.contains(csn));
        last = free.unwrap_or(Csn::MAX);
        transaction.csn = last;
        taken.insert(last);
    }
}

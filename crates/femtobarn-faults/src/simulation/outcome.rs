//! The checks of a federation and of its copy after a history.
//!
//! 1. The history of the federation is one of snapshot isolation; every acknowledged commit is in it, once, in the order of their
//!    numbers, by which their times are in order, too.
//! 2. A copy has the first commits of its leader, and each snapshot that was read there is one of the leader.
//! 3. A promotion loses no acknowledged commit, unless it was forced and left the leader behind. Then it loses the last
//!    commits of that leader, which still has them, as another history of snapshot isolation.
//! 4. One of the two takes changes. The other one refuses them, and names the one that does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use femtobarn::{
    CheckLevel, CommitRow, Csn, Error, ErrorKind, Federation, Result as EngineResult,
    TransactionOptions,
};

use super::clock::are_in_order;
use super::plan::{FOLLOWER, LEADER, SITES};
use super::site::PrintedPromotion;
use super::url_of;
use crate::history::{ObservedTransaction, RegisterOperation, TransactionOutcome, recorder};

/// A federation at the end of a history.
struct FinalState {
    federation: Federation,
    /// The oldest first.
    commits: Vec<CommitRow>,
}

/// The fate of a copy.
pub(super) struct CopyFate {
    pub(super) is_promoted: bool,
    /// Whether the promotion was forced.
    pub(super) is_forced: bool,
    /// The promotion, if it could print that.
    pub(super) promotion: Option<PrintedPromotion>,
}

impl CopyFate {
    /// Whether the promotion may have left the leader behind.
    fn may_lose(&self) -> bool {
        self.is_forced && self.promotion.is_none_or(|promotion| promotion.left_behind)
    }
}

/// The results of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FinalCounts {
    /// The number of committed transactions in the history that continues.
    pub(super) commits: u64,
    /// The number of commits that only a leader that was left behind has.
    pub(super) left_behind: u64,
    /// The number of snapshots that were read at the copy.
    pub(super) readings: u64,
}

/// Checks a federation without a copy.
///
/// # Errors
/// A text that describes the violation.
pub(super) fn check_alone(
    folder: &Path,
    history: Vec<ObservedTransaction>,
) -> Result<FinalCounts, String> {
    let state = FinalState::open(folder)?;
    let commits = recorder::judge(&state.federation, history)?;
    state.check_sound()?;
    Ok(FinalCounts { commits, left_behind: 0, readings: 0 })
}

/// Checks a federation and its copy. `readings` are snapshots that were read at the copy, in their order.
///
/// # Errors
/// A text that describes the violation.
pub(super) fn check_copied(
    folders: &[PathBuf; 2],
    fate: &CopyFate,
    history: Vec<ObservedTransaction>,
    readings: &[ObservedTransaction],
) -> Result<FinalCounts, String> {
    let [leader, copy] =
        [FinalState::open(&folders[LEADER])?, FinalState::open(&folders[FOLLOWER])?];
    let pairs = leader.commits.iter().zip(&copy.commits);
    let common = pairs.take_while(|(there, here)| there == here).count();
    check_branches(&leader, &copy, common, fate)?;
    let going_on = if fate.is_promoted { &copy } else { &leader };
    let lost: BTreeSet<&str> =
        if fate.is_promoted { leader.messages_after(common) } else { BTreeSet::new() };
    let has_all = if fate.is_promoted { vec![going_on] } else { vec![going_on, &copy] };
    for state in has_all {
        state.check_acknowledged(&history, &lost)?;
    }
    let words = going_on.words(&history);
    let readings = going_on.check_readings(&words, readings)?;
    let behind = if fate.is_promoted { &leader } else { &copy };
    if lost.is_empty() {
        let lists = behind.lists()?;
        if lists != going_on.lists_until(behind.head(), &words)? {
            return Err(format!(
                "commit {} has other registers in a copy: {lists:?}",
                behind.head()
            ));
        }
    } else {
        recorder::judge(&behind.federation, behind.of_it(&history))?;
    }
    let commits = recorder::judge(&going_on.federation, going_on.of_it(&history))?;
    check_roles(&leader, &copy, fate.is_promoted)?;
    leader.check_sound()?;
    copy.check_sound()?;
    Ok(FinalCounts { commits, left_behind: lost.len() as u64, readings })
}

/// Checks which commits only one of the two has, beside so many common ones.
fn check_branches(
    leader: &FinalState,
    copy: &FinalState,
    common: usize,
    fate: &CopyFate,
) -> Result<(), String> {
    let common_csn = common.checked_sub(1).map_or(0, |last| leader.commits[last].csn.0);
    if !fate.is_promoted && common < copy.commits.len() {
        return Err(format!(
            "the copy has commit {}, and its leader the same commits to {common_csn} only",
            copy.head()
        ));
    }
    if fate.is_promoted && !fate.may_lose() && common < leader.commits.len() {
        return Err(format!(
            "a promotion that left no leader behind has lost commits {} to {}",
            common_csn + 1,
            leader.head()
        ));
    }
    let promoted_at = fate.promotion.map(|promotion| promotion.head);
    if let Some(head) = promoted_at.filter(|head| *head > common_csn) {
        return Err(format!(
            "the copy was promoted at commit {head}, and has the same commits to {common_csn} only"
        ));
    }
    let twice: Vec<_> =
        leader.messages_after(common).intersection(&copy.messages_after(common)).copied().collect();
    if twice.is_empty() { Ok(()) } else { Err(format!("both leaders committed {twice:?}")) }
}

/// Checks that one of the two takes a change, if that is the copy, and that the other one names it.
fn check_roles(leader: &FinalState, copy: &FinalState, is_promoted: bool) -> Result<(), String> {
    let (refusing, leads) = if is_promoted { (leader, FOLLOWER) } else { (copy, LEADER) };
    let url = url_of(SITES[leads]);
    match refusing.change() {
        Err(error) if error.kind() == ErrorKind::Denied && error.to_string().contains(&url) => {}
        other => return Err(format!("a change was not refused by naming {url}: {other:?}")),
    }
    if is_promoted {
        copy.change().map_err(|error| format!("the promoted copy takes no change: {error}"))?;
    }
    Ok(())
}

impl FinalState {
    fn open(folder: &Path) -> Result<Self, String> {
        let say = |error: Error| format!("{}: {error}", folder.display());
        let federation = Federation::open(folder).map_err(say)?;
        let mut commits = federation.history(u64::MAX >> 1).map_err(say)?;
        commits.reverse();
        Ok(FinalState { federation, commits })
    }

    /// Checks that all bytes are sound, and the times in order.
    fn check_sound(&self) -> Result<(), String> {
        let times = self.commits.iter().rev().map(|commit| (commit.csn.0, commit.time_us));
        if !are_in_order(&times.collect::<Vec<_>>()) {
            return Err("commits have times in another order than their numbers".to_owned());
        }
        let report = self.federation.check(CheckLevel::Full, &mut |_| true);
        let report = report.map_err(|error| error.to_string())?;
        if report.is_sound() {
            Ok(())
        } else {
            Err(format!("the federation is damaged: {:?}", report.problems))
        }
    }

    /// The messages of the commits after the first ones.
    fn messages_after(&self, count: usize) -> BTreeSet<&str> {
        self.commits[count..].iter().map(|commit| commit.message.as_str()).collect()
    }

    fn numbers(&self) -> BTreeMap<&str, u64> {
        self.commits.iter().map(|commit| (commit.message.as_str(), commit.csn.0)).collect()
    }

    /// Checks that every acknowledged commit is here under its number, but for those that may be lost.
    fn check_acknowledged(
        &self,
        history: &[ObservedTransaction],
        lost: &BTreeSet<&str>,
    ) -> Result<(), String> {
        let numbers = self.numbers();
        for transaction in history {
            let TransactionOutcome::Committed(csn) = transaction.outcome else { continue };
            let message = transaction.message().unwrap_or_default();
            if numbers.get(&*message) != Some(&csn) && !lost.contains(&*message) {
                return Err(format!("commit {csn}, {message:?}, was acknowledged and is lost"));
            }
        }
        Ok(())
    }

    /// The history as this federation has it: a commit to the other one alone is none.
    fn of_it(&self, history: &[ObservedTransaction]) -> Vec<ObservedTransaction> {
        let numbers = self.numbers();
        let of_it = |transaction: &ObservedTransaction| {
            let mut transaction = transaction.clone();
            if matches!(transaction.outcome, TransactionOutcome::Committed(_))
                && !transaction.message().is_some_and(|it| numbers.contains_key(&*it))
            {
                transaction.outcome = TransactionOutcome::Aborted;
            }
            transaction
        };
        history.iter().map(of_it).collect()
    }

    /// The newest commit.
    fn head(&self) -> u64 {
        self.commits.last().map_or(0, |commit| commit.csn.0)
    }

    fn lists(&self) -> Result<BTreeMap<u64, Vec<u64>>, String> {
        recorder::lists(&self.federation).map_err(|error| error.to_string())
    }

    /// The commits that appended numbers to registers.
    fn words(&self, history: &[ObservedTransaction]) -> BTreeMap<u64, u64> {
        let numbers = self.numbers();
        let mut words = BTreeMap::new();
        for transaction in history {
            let csn = transaction.message().and_then(|message| numbers.get(&*message));
            for operation in &transaction.operations {
                if let (RegisterOperation::Append(_, word), Some(csn)) = (operation, csn) {
                    words.insert(*word, *csn);
                }
            }
        }
        words
    }

    /// The list of each register as of a commit; `words` are the commits of numbers. Vacuum may have given up the snapshot.
    fn lists_until(
        &self,
        csn: u64,
        words: &BTreeMap<u64, u64>,
    ) -> Result<BTreeMap<u64, Vec<u64>>, String> {
        let mut lists = self.lists()?;
        for list in lists.values_mut() {
            list.retain(|word| words.get(word).is_some_and(|commit| *commit <= csn));
        }
        Ok(lists)
    }

    /// Checks that snapshots which were read are those of the same commits here, and that none is older than the one before.
    /// Returns their number.
    fn check_readings(
        &self,
        words: &BTreeMap<u64, u64>,
        readings: &[ObservedTransaction],
    ) -> Result<u64, String> {
        let (mut before, mut count) = (0, 0);
        for reading in readings {
            let TransactionOutcome::Committed(csn) = reading.outcome else { continue };
            if csn < before {
                return Err(format!("snapshot {csn} was read at the copy after {before}"));
            }
            (before, count) = (csn, count + 1);
            let lists = self.lists_until(csn, words)?.into_iter();
            let expected = lists.map(|(register, list)| RegisterOperation::Read(register, list));
            if !expected.eq(reading.operations.iter().cloned()) {
                return Err(format!("snapshot {csn} is not that of the leader: {reading:?}"));
            }
        }
        Ok(count)
    }

    /// Makes a database.
    fn change(&self) -> EngineResult<Csn> {
        let mut transaction = self.federation.transaction(TransactionOptions::default())?;
        transaction.create_database("afterwards")?;
        transaction.commit()
    }
}

//! Histories of a server and its clients in a simulation, each from a seed. Other seeds:
//! `FEMTOBARN_SIMULATE=17 cargo test -p femtobarn-faults --test it simulation::simulated`, or `=1000-1999`.
//! Each call of a thread goes into the file that `FEMTOBARN_SIMULATION_LOG` names, with the seed at the end of its name.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use femtobarn_faults::crash::in_memory;
use femtobarn_faults::simulation::are_addresses_kept;
use femtobarn_faults::simulation::plan::{Cast, ClientActivity};
use femtobarn_faults::simulation::story::{StorySummary, tell};

/// Has the seeds to try, in place of those of each test.
const SEEDS: &str = "FEMTOBARN_SIMULATE";

/// Has the path of a log of all calls.
const LOG: &str = "FEMTOBARN_SIMULATION_LOG";

/// A seed of many faults.
const FAULTY: u64 = 12;

fn told(seed: u64, cast: Cast) -> StorySummary {
    let place = in_memory().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_workload"));
    let log = std::env::var(LOG).map(|path| format!("{path}{seed}"));
    match tell((seed, cast), program, place.path(), log.as_ref().ok().map(Path::new)) {
        Ok(told) => told,
        Err(error) => panic!("{cast:?}, seed {seed}: {error}; again: {SEEDS}={seed}"),
    }
}

fn seeds(usual: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let Ok(text) = std::env::var(SEEDS) else { return usual.into_iter().collect() };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    (first.parse().unwrap()..=last.parse().unwrap()).collect()
}

/// Runs the histories of all seeds. Returns the last one. The usual ones must contain what the checks are about.
fn tell_all(cast: Cast, usual: Vec<u64>) -> StorySummary {
    let seeds = seeds(usual.clone());
    let is_usual = seeds == usual;
    let (count, first) = (seeds.len(), seeds[0]);
    if !are_addresses_kept() {
        crate::print_progress(
            "the kernel refuses to keep addresses: a seed may have another history in each run",
        );
    }
    let (mut all, mut traces) = (StorySummary::default(), BTreeSet::new());
    let mut last = StorySummary::default();
    for seed in seeds {
        let told = told(seed, cast);
        assert!(traces.insert(told.trace), "seed {seed} has the history of another one");
        all.commits += told.commits;
        all.left_behind += told.left_behind;
        all.promotions += told.promotions;
        all.readings += told.readings;
        all.vacuums += told.vacuums;
        all.faults += told.faults;
        all.steps += told.steps;
        all.milliseconds += told.milliseconds;
        for (strike, count) in &told.strikes {
            *all.strikes.entry(*strike).or_default() += count;
        }
        last = told;
    }
    crate::print_progress(&format!(
        "{cast:?}: {count} simulated histories from seed {first}: {} faults, {} commits, {} left behind, {} promotions, {} \
         readings, {} vacuums, {} steps, {} s of simulated time",
        all.faults,
        all.commits,
        all.left_behind,
        all.promotions,
        all.readings,
        all.vacuums,
        all.steps,
        all.milliseconds / 1000
    ));
    let activities = [ClientActivity::Committing, ClientActivity::Locking, ClientActivity::Other];
    for fault in all.strikes.keys().map(|(fault, _)| *fault).collect::<BTreeSet<_>>() {
        let [committing, locking, other] = activities
            .map(|activity| all.strikes.get(&(fault, activity)).copied().unwrap_or_default());
        crate::print_progress(&format!(
            "{fault}: {committing} times during a commit, {locking} during a lock, {other} else"
        ));
    }
    if is_usual {
        all.strikes.clear();
        let (wanted, is_followed) = (count as u64, cast == Cast::Followed);
        assert!(all.commits + all.left_behind >= 3 * wanted, "few commits: {all:?}");
        assert!(!is_followed || all.promotions >= wanted / 2, "few promotions: {all:?}");
        assert!(!is_followed || all.left_behind > 0, "nothing was left behind: {all:?}");
        assert!(!is_followed || all.readings >= 4 * wanted, "few readings: {all:?}");
        assert!(!is_followed || all.vacuums >= wanted / 2, "few vacuums: {all:?}");
    }
    last
}

#[test]
fn simulated_histories_are_snapshot_isolated_and_lose_no_commit() {
    // Every tenth loses a connection between a write's acknowledgement and its sync, which was told as a closed federation.
    tell_all(Cast::Alone, (1..=20).collect());
}

#[test]
#[ignore = "minutes: hundreds of histories"]
fn hundreds_of_simulated_histories_are_snapshot_isolated_and_lose_no_commit() {
    tell_all(Cast::Alone, (1000..=1299).collect());
}

#[test]
fn a_copy_is_its_leaders_past_and_a_promotion_loses_what_was_only_at_a_leader_that_was_left_behind()
{
    // 15: a reader's snapshot is given up while its server is away; the error was a container without a version.
    // 18: a promotion by force leaves seven commits behind.
    // 67: the leader's disk fails while it yields to a successor, after which its log did not say that it must be restarted.
    let usual = vec![15, 18, 67];
    let last = tell_all(Cast::Followed, usual.clone());
    let again = *seeds(usual).last().unwrap();
    assert_eq!(last, told(again, Cast::Followed));
}

/// The leader answered, but could not write that it was succeeded, since its disk had failed: it was never left behind.
#[test]
fn a_leader_that_can_commit_nothing_does_not_prevent_a_promotion() {
    let told = told(1047, Cast::Followed);
    assert_eq!(told.promotions, 1, "{told:?}");
}

#[test]
#[ignore = "minutes: hundreds of histories"]
fn hundreds_of_histories_with_a_copy_keep_what_is_promised() {
    tell_all(Cast::Followed, (1000..=1299).collect());
}

#[test]
fn the_same_seed_makes_the_same_history() {
    let [once, again] = [FAULTY, FAULTY].map(|seed| told(seed, Cast::Alone));
    assert_eq!(once, again);
    assert!(once.faults > 3, "{once:?}");
}

/// A program has copies of the descriptors of the thread that starts it until it runs. Copies of a simulated connection
/// delayed its end.
#[test]
fn programs_that_other_threads_start_do_not_change_a_history() {
    let is_over = AtomicBool::new(false);
    let start_programs = || {
        while !is_over.load(Ordering::Relaxed) {
            let ended = Command::new("/bin/true").status().unwrap();
            assert!(ended.success(), "{ended:?}");
        }
    };
    let beside = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(start_programs);
        }
        let beside = catch_unwind(|| told(FAULTY, Cast::Alone));
        is_over.store(true, Ordering::Relaxed);
        beside
    });
    assert_eq!(beside.unwrap(), told(FAULTY, Cast::Alone));
}

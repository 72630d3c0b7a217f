//! Each model is explored exhaustively: its invariants hold, its milestones are reached, and without any one of its
//! guards an invariant is violated.

mod homes;
mod leases;
mod moves;
mod publishing;
mod residence;
mod succession;

use std::collections::BTreeSet;
use std::fmt::Debug;

use femtobarn_models::explorer::{Counterexample, Model, explore};

/// Limit of the states of a model.
const STATES_MAX: usize = 2_000_000;

/// Explores a model in which every invariant has to hold and every expected milestone has to be reached.
fn holds<M: Model + Debug>(model: &M, expected: &[&'static str]) {
    let explored = explore(model, STATES_MAX);
    if let Some(found) = explored.counterexample {
        panic!("{model:?}: {found}");
    }
    println!("{model:?}: {} states, {} steps deep", explored.states, explored.depth);
    let missing: BTreeSet<_> =
        expected.iter().filter(|it| !explored.reached.contains(*it)).collect();
    assert!(missing.is_empty(), "{model:?} never reaches {missing:?}, only {:?}", explored.reached);
}

/// Explores a model that has to violate an invariant, and returns the counterexample.
fn is_violated<M: Model + Debug>(model: &M) -> Counterexample<M> {
    let explored = explore(model, STATES_MAX);
    let states = explored.states;
    let Some(found) = explored.counterexample else { panic!("{model:?} holds in {states} states") };
    println!("{model:?}: violated in {} steps, after {states} states", found.steps.len());
    found
}

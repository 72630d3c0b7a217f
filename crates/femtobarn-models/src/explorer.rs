//! The explorer: visits every state of a model, in the order of its distance from the initial state.
//!
//! 1. Each state is visited once; states are compared by value, not by a hash.
//! 2. No counterexample is shorter than the one that is found.

use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Debug, Display};
use std::hash::Hash;
use std::rc::Rc;

/// A protocol as states and steps between them. Loss and delay of a message need no step of their own: a message that
/// is under way may arrive after any other step, or never.
pub trait Model {
    /// The knowledge of all participants, their disks and the network, and the history that an invariant compares it
    /// with.
    type State: Clone + Eq + Hash + Debug;
    /// A step between two states.
    type Transition: Copy + Debug;

    /// The initial state.
    fn beginning(&self) -> Self::State;

    /// Adds all steps that are possible in a state, each with the state after it.
    fn steps(&self, state: &Self::State, add: &mut dyn FnMut(Self::Transition, Self::State));

    /// The invariant that a state violates, if any.
    fn violated(&self, state: &Self::State) -> Option<&'static str>;

    /// Notes the milestones that a state reaches; a test lists those that have to be reachable.
    fn reached(&self, state: &Self::State, note: &mut dyn FnMut(&'static str));
}

/// The result of an exploration.
#[derive(Debug)]
pub struct Explored<M: Model> {
    /// The number of states; up to the first that violates an invariant.
    pub states: usize,
    /// Steps from the beginning to the farthest state.
    pub depth: usize,
    /// All milestones that were reached.
    pub reached: BTreeSet<&'static str>,
    /// The first state that violates an invariant, and the steps to it.
    pub counterexample: Option<Counterexample<M>>,
}

/// A path to a state that violates an invariant.
#[derive(Debug)]
pub struct Counterexample<M: Model> {
    /// The invariant.
    pub invariant: &'static str,
    /// The steps from the initial state.
    pub steps: Vec<M::Transition>,
    /// The state.
    pub state: M::State,
}

/// A visited state: its value, the number of its predecessor, the step between the two, and its distance from the
/// initial state.
struct KnownState<M: Model> {
    state: Rc<M::State>,
    before: usize,
    step: Option<M::Transition>,
    depth: usize,
}

/// Visits all states of a model, or those up to the first that violates an invariant.
///
/// # Panics
/// If there are more than `most`: a model has to be small enough to be explored in each test.
pub fn explore<M: Model>(model: &M, most: usize) -> Explored<M> {
    let first = Rc::new(model.beginning());
    let mut numbers = HashMap::from([(Rc::clone(&first), 0)]);
    let mut known = vec![KnownState::<M> { state: first, before: 0, step: None, depth: 0 }];
    let mut reached = BTreeSet::new();
    let mut next = 0;
    while let Some(KnownState { state, depth, .. }) = known.get(next) {
        let (state, depth) = (Rc::clone(state), *depth);
        model.reached(&state, &mut |what| {
            reached.insert(what);
        });
        if let Some(invariant) = model.violated(&state) {
            let steps = steps_to(&known, next);
            let found = Counterexample { invariant, steps, state: (*state).clone() };
            return Explored { states: next + 1, depth, reached, counterexample: Some(found) };
        }
        model.steps(&state, &mut |step, after| {
            if numbers.contains_key(&after) {
                return;
            }
            let after = Rc::new(after);
            numbers.insert(Rc::clone(&after), known.len());
            known.push(KnownState {
                state: after,
                before: next,
                step: Some(step),
                depth: depth + 1,
            });
        });
        assert!(known.len() <= most, "a model with more than {most} states");
        next += 1;
    }
    let depth = known.last().map_or(0, |last| last.depth);
    Explored { states: known.len(), depth, reached, counterexample: None }
}

/// The steps from the initial state to a state.
fn steps_to<M: Model>(known: &[KnownState<M>], mut number: usize) -> Vec<M::Transition> {
    let mut steps = vec![];
    while let Some(step) = known[number].step {
        steps.push(step);
        number = known[number].before;
    }
    steps.reverse();
    steps
}

impl<M: Model> Display for Counterexample<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "violated: {}", self.invariant)?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:4} {step:?}", number + 1)?;
        }
        write!(f, "{:#?}", self.state)
    }
}

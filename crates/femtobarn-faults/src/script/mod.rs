//! Workloads, step by step, and the contents that a federation must have after each step.
//!
//! **Invariant:** a name always stands for the same steps, so the process that runs a script and the one that
//! verifies its federation need not communicate.
//!
//! Each row may use the rows below it:
//!
//! | module | contents |
//! |---|---|
//! | `scenarios` | the scripts |
//! | `runner`, `model` | a script's steps on a federation, and on a model in memory |
//! | `tasks` | tasks of a fork, some of which run several times |
//! | `items`, `step` | the objects; steps and changes |

mod items;
mod model;
mod runner;
mod scenarios;
mod step;
mod tasks;

pub use items::{class, evolved_class, object, objects, update, updated_fields};
pub use model::{ExpectedContainer, ExpectedContents, ExpectedDatabase};
pub use runner::{Runner, small_pages};
pub use scenarios::{NAMES, Script};
pub use step::{ScriptChange, ScriptStep, split};

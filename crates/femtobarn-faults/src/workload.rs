//! Workloads whose steps are run one by one, and the check of a federation after each of them.

use std::path::Path;

use femtobarn::{Csn, Federation, Result};

use crate::script::{Runner, Script};
use crate::verify::{self, Acknowledged, contents};

/// A workload.
pub trait Workload: Sync {
    /// The number of its steps.
    fn steps(&self) -> usize;

    /// Runs a step, and returns its commit if that is known.
    ///
    /// # Errors
    /// The errors of the engine.
    fn run(&self, runner: &mut Runner, step: usize) -> Result<Option<Csn>>;

    /// Whether a federation has the contents that this many steps produce.
    ///
    /// # Errors
    /// A text if it cannot be read.
    fn is_after(&self, federation: &Federation, steps: usize) -> std::result::Result<bool, String>;

    /// Verifies the federation in a folder after a fault, and changes it thereby.
    ///
    /// # Errors
    /// The first violation.
    fn verify(
        &self,
        folder: &Path,
        acknowledged: &Acknowledged,
        thorough: bool,
    ) -> std::result::Result<(), String>;
}

impl Workload for Script {
    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn run(&self, runner: &mut Runner, step: usize) -> Result<Option<Csn>> {
        runner.run(&self.steps[step])
    }

    fn is_after(&self, federation: &Federation, steps: usize) -> std::result::Result<bool, String> {
        let found = contents(&federation.snapshot(None).map_err(|error| error.to_string())?)?;
        Ok(found == self.contents_after(steps))
    }

    fn verify(
        &self,
        folder: &Path,
        acknowledged: &Acknowledged,
        thorough: bool,
    ) -> std::result::Result<(), String> {
        verify::verify(folder, self, acknowledged, thorough)
    }
}

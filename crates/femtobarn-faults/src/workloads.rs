//! All workloads, by name.

use crate::conditions::{self, ConditionsWorkload};
use crate::script::{NAMES, Script};
use crate::workload::Workload;

/// The names of all workloads.
pub fn names() -> Vec<&'static str> {
    NAMES.into_iter().chain([conditions::NAME]).collect()
}

/// The workload of a name.
///
/// # Errors
/// A text if there is none, or if it fails without any fault.
pub fn named(name: &str) -> Result<Box<dyn Workload>, String> {
    if name == conditions::NAME {
        return Ok(Box::new(ConditionsWorkload::new()?));
    }
    match Script::named(name) {
        Some(script) => Ok(Box::new(script)),
        None => Err(format!("unknown workload {name:?}")),
    }
}

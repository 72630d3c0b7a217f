//! The extension module `femtobarn._femtobarn`: the engine's API as Python classes.
//!
//! The facade in `python/femtobarn` is what users see; this module is private to it. It holds as
//! little as it can: handles on engine objects, the way of arrays in and out, and the conversion of
//! single objects.
//!
//! Invariants:
//! 1. Nothing that may wait for a disk or a lock runs with the interpreter locked.
//! 2. Array data is never copied here, but for what an object has in a field if that is little: what
//!    goes out are `Buffer`s over the engine's bytes, what comes in are borrowed Python buffers that
//!    keep their owners alive.
//! 3. An engine error becomes the Python exception of the same kind.

mod baskets;
mod buffer;
mod columns;
mod containers;
mod durations;
mod error;
mod export;
mod federation;
mod handles;
mod maintenance;
mod oid;
mod page_budget;
mod progress;
mod read;
mod rows;
mod server;
mod transaction;
mod upkeep;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
mod _femtobarn {
    #[pymodule_export]
    use super::baskets::read_branches;
    #[pymodule_export]
    use super::buffer::Buffer;
    #[pymodule_export]
    use super::export::ExportHandle;
    #[pymodule_export]
    use super::federation::{FederationHandle, restore};
    #[pymodule_export]
    use super::handles::count_fork;
    #[pymodule_export]
    use super::maintenance::{compact, rebuild_catalogue, tidy, vacuum};
    #[pymodule_export]
    use super::oid::{Oid, oid_records};
    #[pymodule_export]
    use super::read::object::Object;
    #[pymodule_export]
    use super::read::snapshot::SnapshotHandle;
    #[pymodule_export]
    use super::read::view::ViewHandle;
    #[pymodule_export]
    use super::server::{ServerHandle, default_config, start_log};
    #[pymodule_export]
    use super::transaction::{SavepointHandle, TransactionHandle, WriterHandle};
    #[pymodule_export]
    use super::upkeep::{UpkeepHandle, identify};
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

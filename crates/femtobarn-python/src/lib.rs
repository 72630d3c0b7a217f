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
mod error;
mod export;
mod federation;
mod held;
mod lookup;
mod object;
mod object_column;
mod oid;
mod progress;
mod rows;
mod rows_link;
mod rows_number;
mod rows_variant;
mod serving;
mod session;
mod shape;
mod snapshot;
mod tidying;
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
    use super::federation::FederationHandle;
    #[pymodule_export]
    use super::object::Object;
    #[pymodule_export]
    use super::oid::{Oid, oid_records};
    #[pymodule_export]
    use super::serving::{ServerHandle, default_config, start_log};
    #[pymodule_export]
    use super::session::count_fork;
    #[pymodule_export]
    use super::snapshot::{SnapshotHandle, ViewHandle};
    #[pymodule_export]
    use super::tidying::{compact, rebuild_catalogue, tidy, vacuum};
    #[pymodule_export]
    use super::transaction::{SavepointHandle, TransactionHandle, WriterHandle};
    #[pymodule_export]
    use super::upkeep::{UpkeepHandle, identify, restore};
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

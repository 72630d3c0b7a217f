//! The extension module `femtobarn._femtobarn`: the engine's API as Python classes.
//!
//! Private to the package `femtobarn`, which is the public API. It has handles on engine objects, the
//! conversion of arrays, and the conversion of single objects.
//!
//! 1. The interpreter is never locked while code here waits for a disk, a server or a lock.
//! 2. Array data are not copied: results are buffers (`buffer`) over the engine's bytes, arguments
//!    are borrowed Python buffers that keep their owners alive. Small values of single objects are the
//!    exception.
//! 3. The module has the functions of the C API, which work on the same engine: see `femtobarn_c`.
//! 4. An engine error becomes the Python exception of the same kind.

mod baskets;
mod buffer;
mod columns;
mod conditions;
mod containers;
mod csn;
mod durations;
mod error;
mod export;
mod federation;
mod handles;
mod maintenance;
mod numpy_arrays;
mod oid;
mod open_transaction;
mod page_budget;
mod progress;
mod read;
mod replication;
mod rows;
mod server;
mod servers;
mod storage;
mod tasks;
mod text;
mod transaction;
mod upkeep;

use femtobarn_c as _;
use pyo3::prelude::*;

/// The extension module.
#[pymodule]
mod _femtobarn {
    #[pymodule_export]
    use super::baskets::read_branches;
    #[pymodule_export]
    use super::buffer::Buffer;
    #[pymodule_export]
    use super::conditions::{
        JobHandle, SeriesHandle, change_global_tag, global_tag_history, global_tags, open_branch,
        open_job, payload_definition, series_definition,
    };
    #[pymodule_export]
    use super::export::ExportHandle;
    #[pymodule_export]
    use super::federation::{FederationHandle, bearer_token, restore};
    #[pymodule_export]
    use super::handles::count_fork;
    #[pymodule_export]
    use super::maintenance::{compact, packed_fields, rebuild_catalogue, tidy, vacuum};
    #[pymodule_export]
    use super::oid::{PyOid, oid_records};
    #[pymodule_export]
    use super::read::object::Object;
    #[pymodule_export]
    use super::read::snapshot::SnapshotHandle;
    #[pymodule_export]
    use super::read::view::{ViewHandle, note_declaration};
    #[pymodule_export]
    use super::replication::{FollowerHandle, inform_former_leader, promote};
    #[pymodule_export]
    use super::server::{ServerHandle, default_config, start_log};
    #[pymodule_export]
    use super::servers::{drain_server, home_of, move_database, site_servers};
    #[pymodule_export]
    use super::storage::{
        apply_storage_rules, discard_copy, evict, migrate, pin_file, residences, stage, unpin_file,
    };
    #[pymodule_export]
    use super::tasks::{TaskHandle, read_receipt};
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

//! The C API of Femtobarn. The header `femtobarn.h`, in the folder `include` of the Python package, declares and documents it.
//!
//! 1. A function that can fail returns a status. The text of the error is kept for the thread until its next failure.
//! 2. No panic leaves a function: it becomes `FB_INTERNAL`.
//! 3. Every pointer is compared with NULL before it is used. A result is NULL, or a structure without a release function,
//!    unless the function succeeded.
//! 4. Handles are used only in the process that made them: a forked child gets `FB_CLOSED`, and frees nothing.
//! 5. All handles may be used by several threads at once. Arrays keep the bytes that they show, so they outlive handles.
//!
//! The extension module of the Python package has these functions, too, so that a process has one engine: two copies of
//! SQLite in a process would release each other's locks.
//!
//! | module | contents |
//! |---|---|
//! | `federation` | open and create federations, snapshots, names |
//! | `view` | containers in snapshots: schema, columns, rows, streams |
//! | `transaction` | appending, deleting, committing |
//! | `form` | the form of a class's objects |
//! | `condition` | comparisons of fields with constants, which exclude clusters before anything is read |
//! | `arrow` | Arrow's C data interface from arrays and to arrays |
//! | `owned`, `argument`, `status` | handles, arguments, results |

mod argument;
mod arrow;
mod condition;
mod federation;
mod form;
mod owned;
mod status;
#[cfg(test)]
mod tests;
mod transaction;
mod view;

pub use arrow::abi::{ArrowArray, ArrowArrayStream, ArrowSchema};
pub use condition::{CCondition, CConstant};
pub use federation::{
    CFederation, CNames, COptions, CSnapshot, fb_create, fb_federation_free, fb_names_count,
    fb_names_free, fb_names_get, fb_open, fb_snapshot_at, fb_snapshot_containers, fb_snapshot_csn,
    fb_snapshot_databases, fb_snapshot_free, fb_snapshot_newest, fb_snapshot_tagged,
};
pub use status::{fb_last_error, fb_status_name, fb_version};
pub use transaction::{
    CTransaction, fb_transaction_append, fb_transaction_begin, fb_transaction_commit,
    fb_transaction_create, fb_transaction_delete, fb_transaction_free,
};
pub use view::{
    CView, fb_view_clusters, fb_view_definition, fb_view_entries, fb_view_free, fb_view_objects,
    fb_view_open, fb_view_read, fb_view_rows, fb_view_schema, fb_view_stream, view_for_c,
};

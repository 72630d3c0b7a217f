//! Writing RNTuples: [`Writer`] (in `file`) makes a file with one, [`Appender`] writes versions into any sink.
//!
//! From below: `column` fills pages, `row` fills columns from Rust values with `renumbering`, `cluster`
//! holds the columns of the cluster under construction, `groups` the clusters of a version. `appender`
//! joins these. `replace` changes values of existing entries, by `edit` in a cluster, `pages` in a column
//! and `splice`. `part` appends clusters that other writers wrote.
//!
//! **Invariant:** nothing that an earlier footer refers to is written again, so earlier versions stay
//! readable.

mod appender;
mod cluster;
mod column;
mod edit;
#[cfg(not(target_family = "wasm"))]
mod file;
mod groups;
mod pages;
mod part;
mod renumbering;
mod replace;
mod row;
mod splice;

pub use appender::{AppendedVersion, Appender, AppenderSavepoint, WriteOptions};
pub(crate) use cluster::{ClusterWriter, RATIO_MAX};
#[cfg(not(target_family = "wasm"))]
pub use file::Writer;
pub use part::WrittenPart;
pub use renumbering::Renumbering;
pub use row::{Cell, RowWriter};

/// The name of the writing program in headers.
pub(crate) const WRITER: &str = concat!("rntuple ", env!("CARGO_PKG_VERSION"));

//! Shows a container in a browser: a worker of the page `/catalogue` runs this crate as WebAssembly, so that the server
//! only sends ranges of a complete ROOT file and decodes nothing.
//!
//! | module | contents |
//! |---|---|
//! | `exports` | the functions that the worker calls, and the one that it offers; only in WebAssembly |
//! | `container` | [`Container`]: objects as JSON, and the numbers of a field |
//! | `numbers` | [`Numbers`]: the numbers of a field at any depth, object by object |
//! | `json` | values as JSON for people: long lists are cut |
//! | `fetched_file` | [`FetchedFile`]: a file on a server, of which a function fetches many ranges at once |
//!
//! Objects that were deleted are left out: a complete file marks them in the field [`rntuple::DELETED_FIELD`].

mod container;
#[cfg(target_family = "wasm")]
mod exports;
mod fetched_file;
mod json;
mod numbers;

pub use container::Container;
pub use fetched_file::FetchedFile;
pub use numbers::Numbers;

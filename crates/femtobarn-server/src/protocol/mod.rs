//! The protocol layer: translates bytes on connections to calls of the logical layer.
//!
//! | module | contents |
//! |---|---|
//! | `listener`, `client_waits`, `lingering` | accepts connections and distinguishes protocols; how long one of HTTP waits for its client; how connections end |
//! | `workers`, `time_slice`, `buffers` | the threads that serve connections, and how they share cores; pooled memory for data in transit |
//! | `xroot` | `root://` |
//! | `rpc` | the catalogue service over gRPC |
//! | `http` | the status page, metrics, and files over HTTP |
//! | `answer_counting` | counts requests and errors of `rpc` and `http` |
//!
//! The protocols do not use each other.

pub mod answer_counting;
pub mod buffers;
mod client_waits;
pub mod http;
mod lingering;
pub mod listener;
pub mod rpc;
mod time_slice;
pub mod workers;
pub mod xroot;

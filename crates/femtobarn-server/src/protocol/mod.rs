//! The protocol layer: bytes on connections, as requests to the logical layer.

pub mod buffers;
pub mod http;
pub mod listener;
pub mod rpc;
pub mod workers;
pub mod xroot;

//! The protocol layer: bytes on connections, as requests to the logical layer.

pub mod http;
pub mod listen;

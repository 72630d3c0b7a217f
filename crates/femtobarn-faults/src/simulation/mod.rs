//! Simulations: the real server and real clients run as processes, and a seed determines everything around them. Their
//! threads run one at a time; the order of the threads, the clocks and the network follow from the seed, so the same
//! seed gives the same history.
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | the messages between threads and the simulation |
//! | `network` | connections, with delays and blocked directions |
//! | [`hosts`] | the hosts, with their clocks (`clock`) and disks (`host_disk`) |
//! | [`world`] | processes, threads and the simulated time |
//! | [`plan`] | the faults of a seed |
//! | `isolation` | what a history must not depend on |
//! | `site` | a server's machine, and its operator |
//! | `ended` | the output and the disks that a history leaves, and their checks |
//! | `outcome` | the checks of the federation and of its copy after a history |
//! | [`story`] | the history of a seed: clients, faults, and the checks afterwards |
//!
//! Every process runs the program `workload`. It replaces the functions of the C library by which a program waits,
//! reads a clock, draws random numbers, changes files or uses the network. So the engine and the server run unchanged.
//!
//! Invariants:
//! 1. At most one simulated thread runs at any moment; all other threads wait for their turn.
//! 2. The simulated time advances when a thread sends a call. If no thread can run, it advances to the next moment at
//!    which a thread can.
//! 3. A history depends only on the seed and on the program, not on this machine's clock or its other processes.

mod clock;
mod ended;
mod host_disk;
pub mod hosts;
mod isolation;
pub mod message;
mod network;
mod outcome;
pub mod plan;
mod site;
pub mod story;
pub mod world;

pub use isolation::are_addresses_kept;

use std::net::Ipv4Addr;

/// The port of simulated servers.
pub const PORT: u16 = 1094;
/// A promoted server prints this when its former leader knows of it, or has never been left behind.
pub const TOLD: &str = "told";
/// A server prints this after each vacuum.
pub const VACUUMED: &str = "vacuumed";
/// A promotion prints this word and the newest commit, and then the URL of the former leader if that was left behind.
pub const PROMOTED: &str = "promoted";
/// The beginning of the lines in which a reader reports that a snapshot was given up.
pub const GIVEN_UP: &str = "given up: ";

/// The URL of the federation at a simulated server.
pub fn url_of(host: Ipv4Addr) -> String {
    format!("root://{host}:{PORT}//fed")
}

//! Simulations: the real server and real clients as processes of their own, whose threads run one at a time, in an order, by a
//! clock and over a network that follow from a seed. The same seed makes the same history.
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | what threads and the simulation say to each other |
//! | `network` | connections, and what happens to them |
//! | [`hosts`] | what each host has: its clocks (`clock`) and its disk (`host_disk`) |
//! | [`world`] | processes, threads and the time |
//! | [`plan`] | the faults of a seed |
//! | [`story`] | the history of a seed: clients, faults, and the checks afterwards |
//!
//! The program `workload` is each process. It hides the functions of the C library by which a program waits, reads the clock,
//! draws random numbers, changes files or uses the network, so neither the engine nor the server knows of the simulation.
//!
//! Invariants:
//! 1. At most one simulated thread runs at any moment; all others wait for their turn.
//! 2. The time goes on when a thread calls, and when none can run: then to the next moment at which one can.
//! 3. What happens depends on the seed and on what the threads do. Neither this machine's clock nor its other processes matter.

mod clock;
mod host_disk;
pub mod hosts;
pub mod message;
mod network;
pub mod plan;
pub mod story;
pub mod world;

/// The port of simulated servers.
pub const PORT: u16 = 1094;

//! Simulations: the real server and real clients as processes of their own, whose threads run one at a time, in an order, by a
//! clock and over a network that follow from a seed. The same seed makes the same history.
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | what threads and the simulation say to each other |
//! | `network` | connections, and what happens to them |
//! | [`world`] | processes, threads and the time |
//! | [`story`] | the history of a seed: clients, faults, and the checks afterwards |
//!
//! The program `simulated` is each process. It hides the functions of the C library by which a program waits, reads the clock,
//! draws random numbers or uses the network, so neither the engine nor the server knows of the simulation.
//!
//! Invariants:
//! 1. At most one simulated thread runs at any moment; all others wait for their turn.
//! 2. The time goes on when a thread calls, and when none can run: then to the next moment at which one can.
//! 3. What happens depends on the seed and on what the threads do. Neither this machine's clock nor its other processes matter.

pub mod message;
mod network;
pub mod story;
pub mod world;

/// The port of simulated servers.
pub const PORT: u16 = 1094;

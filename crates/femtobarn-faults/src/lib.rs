//! Tests that Femtobarn keeps acknowledged commits through crashes, kills, failing disks and concurrency. Users need
//! nothing of this crate.
//!
//! # Map
//!
//! | module | contents |
//! |---|---|
//! | [`crash`] | enumerates and checks the states in which a crash may leave a disk |
//! | [`verify`] | checks a recovered federation against the acknowledgements |
//! | [`disk`] | a simulated disk that knows which changes are durable |
//! | [`soak`] | writers that are killed, and the check of their commits |
//! | [`jobs`] | transactions whose tasks run in processes that are killed, and the check of their commits |
//! | [`history`] | records concurrent transactions and checks their isolation |
//! | [`conditions`] | a workload on conditions and global tags, and the expected answers after each step |
//! | [`copies`] | scripts whose federation is followed by a copy |
//! | [`script`] | workloads, and the contents that they must produce |
//! | [`workload`], [`workloads`] | the trait of all workloads; all workloads by name |
//! | [`trace`] | the operations of a workload on its files |
//! | [`simulation`] | a server and its clients in simulated time and over a simulated network, by a seed |
//! | [`fault`], [`random`] | faults of a disk; pseudo-random numbers |
//!
//! The program `workload` runs a script and intercepts its own calls to the kernel, to record every operation or
//! to make one fail. The program `simulated` is a process of a simulation.

pub mod conditions;
pub mod copies;
pub mod crash;
pub mod disk;
pub mod fault;
pub mod history;
pub mod jobs;
pub mod random;
pub mod script;
pub mod simulation;
pub mod soak;
pub mod trace;
pub mod verify;
pub mod workload;
pub mod workloads;

//! Proof that Femtobarn keeps what it acknowledged: tests only, nothing for users.
//!
//! # Map
//!
//! | module | noun |
//! |---|---|
//! | [`script`] | what a workload does, step by step, and the same done to a model in memory |
//! | [`trace`] | what a workload did to its files, operation by operation |
//! | [`disk`] | a disk in memory that knows what is durable and what would be lost with the power |
//! | [`crash`] | all the states in which a crash may leave that disk |
//! | [`verify`] | whether a federation that was found is one that was acknowledged |
//! | [`fault`] | faults of a disk |
//! | [`soak`] | writers that are killed, and what must be there of them |
//! | [`history`] | concurrent transactions, and whether they were kept apart |
//! | [`random`] | numbers that look random |
//!
//! The program `workload` runs a script while it stands between itself and the kernel, so that it can
//! record every operation or make one fail.

pub mod crash;
pub mod disk;
pub mod fault;
pub mod history;
pub mod random;
pub mod script;
pub mod soak;
pub mod trace;
pub mod verify;

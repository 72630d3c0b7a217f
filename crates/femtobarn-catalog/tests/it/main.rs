//! The catalogue, tested at its seam: one module for each behaviour.

#![allow(clippy::unwrap_used)] // Tests may, but clippy knows only the functions marked as such.

mod browsing;
mod child;
mod commits;
mod contention;
mod crash;
mod damage;
mod federation;
mod folders;
mod followed;
mod forks;
mod known_rows;
mod locks;
mod logged_writes;
mod lookups;
mod model;
mod moves;
mod names;
mod on_postgres;
mod postgres;
mod postgres_faults;
mod restoring;
mod retention;
mod servers;
mod sharing;
mod standby;
mod storm;
mod syncs;
mod vacuum;

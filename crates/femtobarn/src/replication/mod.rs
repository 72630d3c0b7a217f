//! Copies of a federation that follow it: at every moment a complete, older state of it.
//!
//! A [`Follower`] asks the *leader*, a server of the federation, for the rows of new commits, copies the bytes of files
//! that they refer to, and then publishes the rows in the catalogue of its own folder. Any process may read that
//! folder.
//!
//! | module | contents |
//! |---|---|
//! | `leader` | requests to the leader: rows, bytes of files, pins |
//! | `lock` | one process follows into a folder |
//! | `copied` | the bytes of one file that are here, and copying the rest |
//! | `in_stores` | files that the leader's stores have, and that are not on the disk here |
//! | `superseded` | versions, databases and space that the leader has given up |
//! | `options` | [`FollowOptions`], and [`Step`], the result of a step |
//! | `follower` | [`Follower`]: one step after another |
//! | `promotion` | [`promote`]: a follower becomes the leader |
//!
//! Invariants:
//! 1. Bytes are durable here before rows that refer to them are published, and the leader keeps the snapshot meanwhile.
//! 2. Bytes that a version here refers to are not overwritten while that version is in the catalogue, or a reader has
//!    it pinned. The leader keeps what readers have pinned here as long as the two are connected.
//! 3. A complete file is put into its place as a whole: readers of its path find all of it or nothing.
//! 4. A follower that was interrupted at any point continues from its head: bytes beyond it are copied again.
//! 5. One process follows into a folder. A federation has one leader in each generation; a promotion begins a new one,
//!    and the leader of an earlier one is refused.
//!
//! May import `storage` and what is below it.

mod copied;
mod follower;
mod in_stores;
mod leader;
mod lock;
mod options;
mod promotion;
mod superseded;

pub use follower::Follower;
pub use options::{FollowOptions, Step};
pub use promotion::{Promotion, forget_former_leader, inform_former_leader, promote};

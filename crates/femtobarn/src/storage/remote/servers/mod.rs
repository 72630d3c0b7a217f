//! A federation that is read from several servers, each of which has a copy of it.
//!
//! `choice` picks a server by its load; `member` is one of them; `pins` has the snapshots that they pin; `group` sends a
//! request to one after the other until it is answered, where `no_answer` tells which errors are none. `catalogue` and
//! `files` are the federation on top of it. `admission` opens a group, and admits a server again that failed.
//!
//! 1. While one server that has reached a commit answers, no read as of that commit fails.
//! 2. What is read as of a pinned snapshot comes from servers where its commit is the same transaction.

mod admission;
mod catalogue;
mod choice;
mod files;
mod group;
mod member;
mod no_answer;
mod pins;

pub(crate) use admission::open;
pub(crate) use catalogue::CopiedCatalogue;
pub(crate) use files::FileCopies;
pub(crate) use group::ServerGroup;

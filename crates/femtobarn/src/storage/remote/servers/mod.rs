//! A federation that is read from several servers, each of which has a copy of it.
//!
//! `choice` picks a server by its load; `member` is one of them; `pins` has the snapshots that they pin; `group` sends
//! a request to one server after the other until one answers, where `no_answer` classifies errors. `catalogue` and
//! `files` are the federation on top of it. `admission` opens a group, and readmits a server that failed.
//!
//! 1. While one server that has reached a commit answers, no read as of that commit fails.
//! 2. Reads as of a pinned snapshot go to servers where its commit is the same transaction.

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

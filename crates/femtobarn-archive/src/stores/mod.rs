//! Stores, which keep whole files under names.
//!
//! `store` is the trait with the guarantees of every store; `folder`, `s3`, `xrootd` and `commands` are its kinds;
//! `command_answers` decodes the
//! answers of commands; `files` copies bytes between files and computes their checksums; `tasks` runs asynchronous requests.

mod command_answers;
mod commands;
mod files;
mod folder;
mod s3;
mod store;
mod tasks;
mod xrootd;

pub use command_answers::CommandAnswer;
pub use commands::{CommandStore, SiteCommands};
pub(crate) use files::{checksum, remove_if_there};
pub use folder::FolderStore;
pub use s3::{S3Settings, S3Store};
pub use store::{ByteWatch, ObjectRange, Store, StoredState};
pub(crate) use tasks::CLEAN_TIME;
pub use xrootd::{XrootdSettings, XrootdStore};

//! The client's interface for threads: calls block, and no runtime is needed.
//!
//! A thread that waits for an answer reads it from the socket itself, so a call costs one write and one
//! read on the calling thread.

use bytes::Bytes;

use super::call_mode::{CallMode, block_on};
use super::error::Result;
use super::options::Options;
use super::sink::ReadPiece;
use super::url::Url;
use crate::codes::QueryCode;
use crate::flags::{
    DirlistOptions, FattrOptions, LocateOptions, MkdirOptions, Mode, OpenOptions, PrepareMore,
    PrepareOptions,
};
use crate::location::Location;
use crate::request::AttributeAction;
use crate::response::query::ChecksumAnswer;
use crate::response::{
    AttributeList, AttributeOutcomes, DirectoryList, LocatedServer, SpaceLine, StatLine,
};

/// A server, and the servers that it redirects to. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client(super::Client);

/// An open file, which threads may use concurrently.
#[derive(Debug)]
pub struct File(super::File);

macro_rules! blocking {
    ($inner:ident: $(fn $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {$(
        #[doc = concat!("See [`", stringify!($inner), "::", stringify!($name), "`](super::",
            stringify!($inner), "::", stringify!($name), ").")]
        ///
        /// # Errors
        #[doc = concat!("Those of [`", stringify!($inner), "::", stringify!($name), "`](super::",
            stringify!($inner), "::", stringify!($name), ").")]
        pub fn $name(&self, $($argument: $kind),*) -> Result<$answer> {
            block_on(self.0.$name($($argument),*))
        }
    )+};
}

impl Client {
    /// Connects to the server of a URL.
    ///
    /// # Errors
    /// The errors of [`Client::connect`](super::Client::connect).
    pub fn connect(url: &Url, options: Options) -> Result<Self> {
        block_on(super::Client::connect_as(CallMode::Thread, url, options)).map(Client)
    }

    /// The URL of [`Client::connect`].
    pub fn url(&self) -> &Url {
        self.0.url()
    }

    /// Opens a file.
    ///
    /// # Errors
    /// The errors of [`Client::open`](super::Client::open).
    pub fn open(&self, location: &Location, options: OpenOptions) -> Result<File> {
        block_on(self.0.open(location, options)).map(File)
    }

    /// See [`Client::query`](super::Client::query).
    ///
    /// # Errors
    /// The errors of [`Client::query`](super::Client::query).
    pub fn query(&self, kind: QueryCode, argument: impl Into<Bytes>) -> Result<Bytes> {
        block_on(self.0.query(kind, argument))
    }

    blocking! { Client:
        fn ping() -> ();
        fn stat(location: &Location) -> StatLine;
        fn space(location: &Location) -> SpaceLine;
        fn dirlist(location: &Location, options: DirlistOptions) -> DirectoryList;
        fn mkdir(location: &Location, options: MkdirOptions, mode: Mode) -> ();
        fn rm(location: &Location) -> ();
        fn rmdir(location: &Location) -> ();
        fn mv(from: &Location, to: &Location) -> ();
        fn chmod(location: &Location, mode: Mode) -> ();
        fn truncate(location: &Location, size: u64) -> ();
        fn locate(location: &Location, options: LocateOptions) -> Vec<LocatedServer>;
        fn checksum(location: &Location) -> ChecksumAnswer;
        fn prepare(
            locations: &[Location],
            options: PrepareOptions,
            more: PrepareMore,
            priority: u8
        ) -> Bytes;
        fn attributes(
            location: &Location,
            action: AttributeAction,
            options: FattrOptions
        ) -> AttributeOutcomes;
        fn attribute_list(location: &Location, with_values: bool) -> AttributeList;
    }
}

impl File {
    /// The file's path and opaque information.
    pub fn location(&self) -> &Location {
        self.0.location()
    }

    /// See [`File::is_broken`](super::File::is_broken).
    pub fn is_broken(&self) -> bool {
        self.0.is_broken()
    }

    /// See [`File::is_on_this_machine`](super::File::is_on_this_machine).
    pub fn is_on_this_machine(&self) -> bool {
        self.0.is_on_this_machine()
    }

    /// Closes the file. Dropping it closes it too, but discards errors.
    ///
    /// # Errors
    /// The errors of [`File::close`](super::File::close).
    pub fn close(self) -> Result<()> {
        block_on(self.0.close())
    }

    blocking! { File:
        fn stat() -> StatLine;
        fn query(argument: Bytes) -> Bytes;
        fn read_at(offset: u64, buffer: &mut [u8]) -> usize;
        fn read_checked(offset: u64, buffer: &mut [u8]) -> usize;
        fn read_many(pieces: &mut [ReadPiece<'_>]) -> ();
        fn write_at(offset: u64, bytes: &[u8]) -> ();
        fn write_later(offset: u64, bytes: &[u8]) -> ();
        fn write_checked(offset: u64, bytes: &[u8]) -> ();
        fn settle() -> ();
        fn sync() -> ();
        fn truncate(size: u64) -> ();
    }
}

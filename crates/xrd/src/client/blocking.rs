//! The same for threads: calls block.
//!
//! No runtime is needed. Whoever waits for an answer reads it from the socket, so that a call is one
//! write and one read of its own thread.

use bytes::Bytes;

use super::error::Result;
use super::options::Options;
use super::sink::Piece;
use super::url::Url;
use super::waiting::{Waiter, block_on};
use crate::codes::QueryCode;
use crate::fattr::{AttributeAction, AttributeList, AttributeOutcomes};
use crate::flags::{
    DirlistOptions, FattrOptions, LocateOptions, MkdirOptions, Mode, OpenOptions, PrepareMore,
    PrepareOptions,
};
use crate::location::Location;
use crate::response::query::ChecksumAnswer;
use crate::response::{DirectoryList, Place, SpaceLine, StatLine};

/// A server, and those that it redirects to. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client(super::Client);

/// An open file. Threads may use it at once.
#[derive(Debug)]
pub struct File(super::File);

macro_rules! blocking {
    ($inner:ident: $(fn $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {$(
        #[doc = concat!("See [`", stringify!($inner), "::", stringify!($name), "`](super::",
            stringify!($inner), "::", stringify!($name), ").")]
        ///
        /// # Errors
        /// As there.
        pub fn $name(&self, $($argument: $kind),*) -> Result<$answer> {
            block_on(self.0.$name($($argument),*))
        }
    )+};
}

impl Client {
    /// Connects to the server of a URL.
    ///
    /// # Errors
    /// As [`Client::connect`](super::Client::connect).
    pub fn connect(url: &Url, options: Options) -> Result<Self> {
        block_on(super::Client::connect_as(Waiter::Thread, url, options)).map(Client)
    }

    /// What it connected to.
    pub fn url(&self) -> &Url {
        self.0.url()
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`Client::open`](super::Client::open).
    pub fn open(&self, location: &Location, options: OpenOptions) -> Result<File> {
        block_on(self.0.open(location, options)).map(File)
    }

    /// See [`Client::query`](super::Client::query).
    ///
    /// # Errors
    /// As there.
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
        fn locate(location: &Location, options: LocateOptions) -> Vec<Place>;
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

    /// Closes the file; one that is dropped is closed, too, but its errors are not told.
    ///
    /// # Errors
    /// As [`File::close`](super::File::close).
    pub fn close(self) -> Result<()> {
        block_on(self.0.close())
    }

    blocking! { File:
        fn stat() -> StatLine;
        fn read_at(offset: u64, buffer: &mut [u8]) -> usize;
        fn read_checked(offset: u64, buffer: &mut [u8]) -> usize;
        fn read_many(pieces: &mut [Piece<'_>]) -> ();
        fn write_at(offset: u64, bytes: &[u8]) -> ();
        fn write_later(offset: u64, bytes: &[u8]) -> ();
        fn write_checked(offset: u64, bytes: &[u8]) -> ();
        fn settle() -> ();
        fn sync() -> ();
        fn truncate(size: u64) -> ();
    }
}

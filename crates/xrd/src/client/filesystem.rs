//! Calls about paths. Each is one request, sent to the server of the client's URL or one that it redirects to.

use bytes::Bytes;

use super::error::Result;
use super::{Client, ClientError};
use crate::codes::QueryCode;
use crate::flags::{
    DirlistOptions, FattrOptions, LocateOptions, MkdirOptions, Mode, PrepareMore, PrepareOptions,
    StatOptions, StatWants,
};
use crate::ids::FileHandle;
use crate::location::Location;
use crate::request::{
    AttributeAction, Chmod, Dirlist, Fattr, FileRef, Locate, Mkdir, Mv, Ping, Prepare, Query,
    Request, Rm, Rmdir, Stat, Truncate,
};
use crate::response::query::ChecksumAnswer;
use crate::response::{
    Answer, AttributeList, AttributeOutcomes, DirectoryList, LocatedServer, SpaceLine, StatLine,
    decode_locate_answer,
};

impl Client {
    /// Checks that the server answers.
    ///
    /// # Errors
    /// The errors of [`Client::stat`].
    pub async fn ping(&self) -> Result<()> {
        let retry = self.retry(&self.inner.url.location);
        self.call(retry, |_| Ping.into()).await.map(drop)
    }

    /// Metadata of a file or directory.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the server refuses the request, for example because the path does not exist;
    /// [`ClientError::Unreachable`] or [`ClientError::TimedOut`] if it does not answer;
    /// [`ClientError::Protocol`] if the answer is malformed.
    pub async fn stat(&self, location: &Location) -> Result<StatLine> {
        let (options, wants) = (StatOptions::default(), StatWants::default());
        let request = |at| Stat { options, wants, target: FileRef::Location(at) }.into();
        self.call_decoded(location, request).await
    }

    /// The space of the file system that holds the path.
    ///
    /// # Errors
    /// The errors of [`Client::stat`].
    pub async fn space(&self, location: &Location) -> Result<SpaceLine> {
        let (options, wants) = (StatOptions::FILE_SYSTEM, StatWants::default());
        let request = |at| Stat { options, wants, target: FileRef::Location(at) }.into();
        self.call_decoded(location, request).await
    }

    /// Lists a directory.
    ///
    /// # Errors
    /// The errors of [`Client::stat`].
    pub async fn dirlist(
        &self,
        location: &Location,
        options: DirlistOptions,
    ) -> Result<DirectoryList> {
        self.call_decoded(location, |location| Dirlist { options, location }.into()).await
    }

    /// Creates a directory, and with [`MkdirOptions::MAKE_PATH`] its missing parents.
    ///
    /// # Errors
    /// The errors of [`Client::rm`].
    pub async fn mkdir(
        &self,
        location: &Location,
        options: MkdirOptions,
        mode: Mode,
    ) -> Result<()> {
        let request = |location| Mkdir { options, mode, location }.into();
        if options.contains(MkdirOptions::MAKE_PATH) {
            self.call(self.retry(location), request).await.map(drop)
        } else {
            self.call_once(location, request).await
        }
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if the connection was lost and the server may have executed the request; and those
    /// of [`Client::stat`].
    pub async fn rm(&self, location: &Location) -> Result<()> {
        self.call_once(location, |location| Rm { location }.into()).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The errors of [`Client::rm`].
    pub async fn rmdir(&self, location: &Location) -> Result<()> {
        self.call_once(location, |location| Rmdir { location }.into()).await
    }

    /// Renames a file or directory.
    ///
    /// # Errors
    /// The errors of [`Client::rm`].
    pub async fn mv(&self, from: &Location, to: &Location) -> Result<()> {
        self.call_once(from, |from| Mv { from, to: to.clone() }.into()).await
    }

    /// Changes the permissions of a file or directory.
    ///
    /// # Errors
    /// The errors of [`Client::stat`].
    pub async fn chmod(&self, location: &Location, mode: Mode) -> Result<()> {
        self.call(self.retry(location), |location| Chmod { mode, location }.into()).await.map(drop)
    }

    /// Sets a file's size.
    ///
    /// # Errors
    /// The errors of [`Client::rm`].
    pub async fn truncate(&self, location: &Location, size: u64) -> Result<()> {
        self.call_once(location, |at| Truncate { target: FileRef::Location(at), size }.into()).await
    }

    /// Locates the servers that have a file.
    ///
    /// # Errors
    /// The errors of [`Client::stat`].
    pub async fn locate(
        &self,
        location: &Location,
        options: LocateOptions,
    ) -> Result<Vec<LocatedServer>> {
        let request = |location| Locate { options, location }.into();
        let (_, body) = self.call(self.retry(location), request).await?;
        decode_locate_answer(&body).map_err(|error| self.protocol_error(location, error))
    }

    /// Sends a query and returns its raw answer; [`query`](crate::response::query) decodes the specified ones.
    ///
    /// # Errors
    /// The errors of [`Client::stat`].
    pub async fn query(&self, kind: QueryCode, argument: impl Into<Bytes>) -> Result<Bytes> {
        let (handle, argument) = (FileHandle::default(), argument.into());
        let retry = self.retry(&self.inner.url.location);
        let request = |_| Query { kind, handle, argument: argument.clone() }.into();
        Ok(self.call(retry, request).await?.1)
    }

    /// A file's checksum, by the algorithm that the location's `cks.type` names, or by the server's default.
    ///
    /// # Errors
    /// The errors of [`Client::stat`].
    pub async fn checksum(&self, location: &Location) -> Result<ChecksumAnswer> {
        let (kind, handle) = (QueryCode::CHECKSUM, FileHandle::default());
        let request = |at: Location| {
            let argument = Bytes::copy_from_slice(at.as_bytes());
            Query { kind, handle, argument }.into()
        };
        self.call_decoded(location, request).await
    }

    /// Stages files from mass storage, or performs another action of the options. Returns the request's id.
    ///
    /// # Errors
    /// The errors of [`Client::stat`].
    pub async fn prepare(
        &self,
        locations: &[Location],
        options: PrepareOptions,
        more: PrepareMore,
        priority: u8,
    ) -> Result<Bytes> {
        let retry = self.retry(locations.first().unwrap_or(&self.inner.url.location));
        let request = |_| {
            let locations = locations.to_vec();
            Prepare { options, priority, port: 0, more, locations }.into()
        };
        Ok(self.call(retry, request).await?.1)
    }

    /// Reads, sets or removes attributes of a file. The outcomes hold the errors of single attributes.
    ///
    /// # Errors
    /// The errors of [`Client::stat`].
    pub async fn attributes(
        &self,
        location: &Location,
        action: AttributeAction,
        options: FattrOptions,
    ) -> Result<AttributeOutcomes> {
        let request =
            |at| Fattr { target: FileRef::Location(at), options, action: action.clone() }.into();
        self.call_decoded(location, request).await
    }

    /// The names of a file's attributes, and their values if `with_values` is set.
    ///
    /// # Errors
    /// The errors of [`Client::stat`].
    pub async fn attribute_list(
        &self,
        location: &Location,
        with_values: bool,
    ) -> Result<AttributeList> {
        let options = if with_values { FattrOptions::VALUES } else { FattrOptions::default() };
        let action = AttributeAction::List;
        let request =
            |at| Fattr { target: FileRef::Location(at), options, action: action.clone() }.into();
        let (_, body) = self.call(self.retry(location), request).await?;
        AttributeList::decode(&body, with_values)
            .map_err(|error| self.protocol_error(location, error))
    }

    /// Sends a request that may be repeated, and decodes its answer.
    async fn call_decoded<A: Answer>(
        &self,
        location: &Location,
        request: impl Fn(Location) -> Request,
    ) -> Result<A> {
        let (_, body) = self.call(self.retry(location), request).await?;
        A::decode(&body).map_err(|error| self.protocol_error(location, error))
    }

    /// Sends a request that must not be executed twice.
    async fn call_once(
        &self,
        location: &Location,
        request: impl Fn(Location) -> Request,
    ) -> Result<()> {
        self.call(self.retry(location).without_repeat(), request).await.map(drop)
    }

    fn protocol_error(&self, location: &Location, error: crate::Error) -> ClientError {
        self.retry(location).client_error(error.into())
    }
}

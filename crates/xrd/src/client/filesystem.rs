//! Calls about names.

use bytes::Bytes;

use super::error::Result;
use super::{Client, ClientError};
use crate::codes::QueryCode;
use crate::fattr::{AttributeAction, AttributeList, AttributeOutcomes, Fattr};
use crate::flags::{
    DirlistOptions, FattrOptions, LocateOptions, MkdirOptions, Mode, PrepareMore, PrepareOptions,
    StatOptions, StatWants,
};
use crate::ids::FileHandle;
use crate::location::Location;
use crate::request::{
    Chmod, Dirlist, Locate, Mkdir, Mv, Ping, Prepare, Query, Request, Rm, Rmdir, Stat, Target,
    Truncate,
};
use crate::response::query::ChecksumAnswer;
use crate::response::{Answer, DirectoryList, Place, SpaceLine, StatLine, decode_places};

/// Every call fails with [`ClientError`] where the server refuses it, cannot be reached or answers
/// what cannot be understood.
impl Client {
    /// Asks whether the server is there.
    ///
    /// # Errors
    /// See above.
    pub async fn ping(&self) -> Result<()> {
        let attempt = self.attempt(&self.shared.url.location);
        self.ask(attempt, |_| Ping.into()).await.map(drop)
    }

    /// What a file or folder is.
    ///
    /// # Errors
    /// See above.
    pub async fn stat(&self, location: &Location) -> Result<StatLine> {
        let (options, wants) = (StatOptions::default(), StatWants::default());
        let request = |at| Stat { options, wants, target: Target::Location(at) }.into();
        self.answer(location, request).await
    }

    /// What space there is.
    ///
    /// # Errors
    /// See above.
    pub async fn space(&self, location: &Location) -> Result<SpaceLine> {
        let (options, wants) = (StatOptions::FILE_SYSTEM, StatWants::default());
        let request = |at| Stat { options, wants, target: Target::Location(at) }.into();
        self.answer(location, request).await
    }

    /// What is in a folder.
    ///
    /// # Errors
    /// See above.
    pub async fn dirlist(
        &self,
        location: &Location,
        options: DirlistOptions,
    ) -> Result<DirectoryList> {
        self.answer(location, |location| Dirlist { options, location }.into()).await
    }

    /// Makes a folder, and with [`MkdirOptions::MAKE_PATH`] those above it.
    ///
    /// # Errors
    /// See above.
    pub async fn mkdir(
        &self,
        location: &Location,
        options: MkdirOptions,
        mode: Mode,
    ) -> Result<()> {
        let request = |location| Mkdir { options, mode, location }.into();
        match options.contains(MkdirOptions::MAKE_PATH) {
            true => self.ask(self.attempt(location), request).await.map(drop),
            false => self.change(location, request).await,
        }
    }

    /// Removes a file.
    ///
    /// # Errors
    /// See above.
    pub async fn rm(&self, location: &Location) -> Result<()> {
        self.change(location, |location| Rm { location }.into()).await
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// See above.
    pub async fn rmdir(&self, location: &Location) -> Result<()> {
        self.change(location, |location| Rmdir { location }.into()).await
    }

    /// Gives a file or folder another name.
    ///
    /// # Errors
    /// See above.
    pub async fn mv(&self, from: &Location, to: &Location) -> Result<()> {
        self.change(from, |from| Mv { from, to: to.clone() }.into()).await
    }

    /// Changes who may do what with a file.
    ///
    /// # Errors
    /// See above.
    pub async fn chmod(&self, location: &Location, mode: Mode) -> Result<()> {
        self.ask(self.attempt(location), |location| Chmod { mode, location }.into()).await.map(drop)
    }

    /// Cuts or lengthens a file.
    ///
    /// # Errors
    /// See above.
    pub async fn truncate(&self, location: &Location, size: u64) -> Result<()> {
        self.change(location, |at| Truncate { target: Target::Location(at), size }.into()).await
    }

    /// Where a file is.
    ///
    /// # Errors
    /// See above.
    pub async fn locate(&self, location: &Location, options: LocateOptions) -> Result<Vec<Place>> {
        let request = |location| Locate { options, location }.into();
        let (_, body) = self.ask(self.attempt(location), request).await?;
        decode_places(&body).map_err(|error| self.not_understood(location, error))
    }

    /// Asks for information whose form the server chooses; see
    /// [`query`](crate::response::query) for those with a form.
    ///
    /// # Errors
    /// See above.
    pub async fn query(&self, kind: QueryCode, argument: impl Into<Bytes>) -> Result<Bytes> {
        let (handle, argument) = (FileHandle::default(), argument.into());
        let attempt = self.attempt(&self.shared.url.location);
        let request = |_| Query { kind, handle, argument: argument.clone() }.into();
        Ok(self.ask(attempt, request).await?.1)
    }

    /// A file's checksum, of the kind that its `cks.type` names or the server likes best.
    ///
    /// # Errors
    /// See above.
    pub async fn checksum(&self, location: &Location) -> Result<ChecksumAnswer> {
        let (kind, handle) = (QueryCode::CHECKSUM, FileHandle::default());
        let request = |at: Location| {
            let argument = Bytes::copy_from_slice(at.as_bytes());
            Query { kind, handle, argument }.into()
        };
        self.answer(location, request).await
    }

    /// Stages files from mass storage, or does what else the options say; the answer names the
    /// request.
    ///
    /// # Errors
    /// See above.
    pub async fn prepare(
        &self,
        locations: &[Location],
        options: PrepareOptions,
        more: PrepareMore,
        priority: u8,
    ) -> Result<Bytes> {
        let attempt = self.attempt(locations.first().unwrap_or(&self.shared.url.location));
        let request = |_| {
            let locations = locations.to_vec();
            Prepare { options, priority, port: 0, more, locations }.into()
        };
        Ok(self.ask(attempt, request).await?.1)
    }

    /// Reads, sets or removes attributes of a file.
    ///
    /// # Errors
    /// See above; what became of each attribute is in the outcomes.
    pub async fn attributes(
        &self,
        location: &Location,
        action: AttributeAction,
        options: FattrOptions,
    ) -> Result<AttributeOutcomes> {
        let request =
            |at| Fattr { target: Target::Location(at), options, action: action.clone() }.into();
        self.answer(location, request).await
    }

    /// The names of a file's attributes, with their values if they are wanted.
    ///
    /// # Errors
    /// See above.
    pub async fn attribute_list(
        &self,
        location: &Location,
        with_values: bool,
    ) -> Result<AttributeList> {
        let options = if with_values { FattrOptions::VALUES } else { FattrOptions::default() };
        let action = AttributeAction::List;
        let request =
            |at| Fattr { target: Target::Location(at), options, action: action.clone() }.into();
        let (_, body) = self.ask(self.attempt(location), request).await?;
        AttributeList::decode(&body, with_values)
            .map_err(|error| self.not_understood(location, error))
    }

    /// Asks for what does not change anything.
    async fn answer<A: Answer>(
        &self,
        location: &Location,
        request: impl Fn(Location) -> Request,
    ) -> Result<A> {
        let (_, body) = self.ask(self.attempt(location), request).await?;
        A::decode(&body).map_err(|error| self.not_understood(location, error))
    }

    /// Asks for what must not be done twice.
    async fn change(
        &self,
        location: &Location,
        request: impl Fn(Location) -> Request,
    ) -> Result<()> {
        self.ask(self.attempt(location).once(), request).await.map(drop)
    }

    fn not_understood(&self, location: &Location, error: crate::Error) -> ClientError {
        self.attempt(location).error(error.into())
    }
}

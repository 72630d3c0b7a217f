//! Requests about paths: stat, statx, dirlist, locate, mkdir, mv, rm, rmdir, chmod, truncate, query, prepare.

use bytes::Bytes;

use super::body::{Body, FileRef};
use super::header::REQUEST_HEADER_BYTES;
use crate::codes::{QueryCode, RequestCode};
use crate::error::{Error, Result};
use crate::flags::{
    DirlistOptions, LocateOptions, MkdirOptions, Mode, PrepareMore, PrepareOptions, StatOptions,
    StatWants,
};
use crate::ids::FileHandle;
use crate::limits::LOCATIONS_MAX;
use crate::location::{Location, locations_of};
use crate::wire::{Reader, Writer, without_end};

/// Gets the metadata of a file or, with [`StatOptions::FILE_SYSTEM`], the space of its file system. Section 3,
/// kXR_stat.
///
/// Answer: [`crate::response::StatLine`] or [`crate::response::SpaceLine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Options.
    pub options: StatOptions,
    /// Additional fields (5.2.0).
    pub wants: StatWants,
    /// The file.
    pub target: FileRef,
}

impl Body for Stat {
    const CODE: RequestCode = RequestCode::STAT;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let options = StatOptions(parameters.u8()?);
        parameters.take(7)?;
        let wants = StatWants(parameters.u32()?);
        let target = FileRef::decode("stat", FileHandle(parameters.array()?), body)?;
        Ok(Stat { options, wants, target })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.u8(self.options.0).zeros(7).u32(self.wants.0).raw(&self.target.handle().0);
        self.target.encode(body);
    }
}

/// Changes a file's size. Section 3, kXR_truncate.
///
/// Answer: empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// The file.
    pub target: FileRef,
    /// The new size in bytes.
    pub size: u64,
}

impl Body for Truncate {
    const CODE: RequestCode = RequestCode::TRUNCATE;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let handle = FileHandle(parameters.array()?);
        let size = parameters.offset()?;
        Ok(Truncate { target: FileRef::decode("truncate", handle, body)?, size })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.raw(&self.target.handle().0).offset(self.size);
        self.target.encode(body);
    }
}

/// Gets the metadata of many files, one byte each. Section 3, kXR_statx.
///
/// Answer: a byte for each location, with the lower [`crate::flags::StatFlags`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statx {
    /// The files, at most [`LOCATIONS_MAX`].
    pub locations: Vec<Location>,
}

impl Body for Statx {
    const CODE: RequestCode = RequestCode::STAT_X;

    fn decode(_parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        Ok(Statx { locations: locations_of("statx", body)? })
    }

    fn encode(&self, _parameters: &mut Writer, body: &mut Writer) {
        encode_lines(&self.locations, body);
    }
}

fn encode_lines(locations: &[Location], body: &mut Writer) {
    if locations.len() > LOCATIONS_MAX {
        body.fail(Error::too_many_items("list of paths", locations.len(), LOCATIONS_MAX));
    }
    for (index, location) in locations.iter().enumerate() {
        if location.as_bytes().contains(&b'\n') {
            body.fail(Error::invalid("a path in a list must not have a line feed"));
        }
        let separator: &[u8] = if index > 0 { b"\n" } else { b"" };
        body.raw(separator).raw(location.as_bytes());
    }
}

/// Lists a directory. Section 3, kXR_dirlist.
///
/// Answer: [`crate::response::DirectoryEntry`] for each entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirlist {
    /// Options.
    pub options: DirlistOptions,
    /// The directory; its opaque information may name the kind of checksum as `cks.type`.
    pub location: Location,
}

impl Body for Dirlist {
    const CODE: RequestCode = RequestCode::DIRLIST;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        parameters.take(15)?;
        let options = DirlistOptions(parameters.u8()?);
        Ok(Dirlist { options, location: Location::of_body("dirlist", body)? })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.zeros(15).u8(self.options.0);
        body.raw(self.location.as_bytes());
    }
}

/// Locates a file. Section 3, kXR_locate.
///
/// Answer: [`crate::response::LocatedServer`]s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locate {
    /// Options.
    pub options: LocateOptions,
    /// The file; `*` asks for all servers, `*/path` for those that may have the path.
    pub location: Location,
}

impl Body for Locate {
    const CODE: RequestCode = RequestCode::LOCATE;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let options = LocateOptions(parameters.u16()?);
        Ok(Locate { options, location: Location::of_body("locate", body)? })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.u16(self.options.0);
        body.raw(self.location.as_bytes());
    }
}

/// Creates a directory. Section 3, kXR_mkdir.
///
/// Answer: empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mkdir {
    /// Options.
    pub options: MkdirOptions,
    /// Permissions.
    pub mode: Mode,
    /// The directory.
    pub location: Location,
}

impl Body for Mkdir {
    const CODE: RequestCode = RequestCode::MKDIR;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let options = MkdirOptions(parameters.u8()?);
        parameters.take(13)?;
        let mode = Mode(parameters.u16()?);
        Ok(Mkdir { options, mode, location: Location::of_body("mkdir", body)? })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.u8(self.options.0).zeros(13).u16(self.mode.0);
        body.raw(self.location.as_bytes());
    }
}

/// Changes a file's permissions. Section 3, kXR_chmod.
///
/// Answer: empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chmod {
    /// Permissions.
    pub mode: Mode,
    /// The file.
    pub location: Location,
}

impl Body for Chmod {
    const CODE: RequestCode = RequestCode::CHMOD;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        parameters.take(14)?;
        let mode = Mode(parameters.u16()?);
        Ok(Chmod { mode, location: Location::of_body("chmod", body)? })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.zeros(14).u16(self.mode.0);
        body.raw(self.location.as_bytes());
    }
}

macro_rules! location_requests {
    ($($(#[$doc:meta])* $name:ident = $code:ident $what:literal,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            /// The path.
            pub location: Location,
        }

        impl Body for $name {
            const CODE: RequestCode = RequestCode::$code;

            fn decode(_parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
                Ok($name { location: Location::of_body($what, body)? })
            }

            fn encode(&self, _parameters: &mut Writer, body: &mut Writer) {
                body.raw(self.location.as_bytes());
            }
        }
    )+};
}

location_requests! {
    /// Removes a file. Section 3, kXR_rm.
    ///
    /// Answer: empty.
    Rm = RM "rm",
    /// Removes an empty directory. Section 3, kXR_rmdir.
    ///
    /// Answer: empty.
    Rmdir = RMDIR "rmdir",
}

/// Renames a file or a directory. Section 3, kXR_mv.
///
/// The body has both paths, separated by one space. The parameters state the length of the first one, which may
/// thus have spaces; old clients leave it out, and the first space separates the paths.
///
/// Answer: empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mv {
    /// The old path.
    pub from: Location,
    /// The new path.
    pub to: Location,
}

impl Body for Mv {
    const CODE: RequestCode = RequestCode::MV;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        parameters.take(14)?;
        let text = without_end(body);
        let end = match parameters.u16()? {
            0 => text.iter().position(|&byte| byte == b' ').unwrap_or(text.len()),
            stated => usize::from(stated),
        };
        if text.get(end) != Some(&b' ') {
            let reason = "no space between the old path and the new one";
            return Err(Error::malformed("mv", REQUEST_HEADER_BYTES + end.min(text.len()), reason));
        }
        let from = Location::part("mv", body, &text[..end])?;
        Ok(Mv { from, to: Location::part("mv", body, &text[end + 1..])? })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        let from = self.from.as_bytes();
        // The number is signed on the wire.
        match i16::try_from(from.len()) {
            Ok(length) => _ = parameters.zeros(14).u16(length.unsigned_abs()),
            Err(_) => parameters.fail(Error::too_many_bytes("path", from.len(), i16::MAX as usize)),
        }
        body.raw(from).raw(b" ").raw(self.to.as_bytes());
    }
}

/// Queries information. Section 3, kXR_query.
///
/// Answer: a text; [`crate::response::query`] decodes the specified ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The kind of information.
    pub kind: QueryCode,
    /// The open file, for kinds that need one.
    pub handle: FileHandle,
    /// A location, names separated by spaces or line feeds, or nothing, depending on the kind.
    pub argument: Bytes,
}

impl Query {
    /// The argument as a location, for kinds that have one.
    ///
    /// # Errors
    /// [`Error::Malformed`] if it is empty or holds a zero byte, [`Error::TooLong`].
    pub fn location(&self) -> Result<Location> {
        Location::of_body("query", &self.argument)
    }

    /// The argument's words, for [`QueryCode::CONFIG`].
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        let separators = |byte: &u8| matches!(byte, b' ' | b'\n' | 0);
        self.argument.split(separators).filter(|word| !word.is_empty())
    }
}

impl Body for Query {
    const CODE: RequestCode = RequestCode::QUERY;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let kind = QueryCode(parameters.u16()?);
        parameters.take(2)?;
        Ok(Query { kind, handle: FileHandle(parameters.array()?), argument: body.clone() })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.u16(self.kind.0).zeros(2).raw(&self.handle.0);
        body.raw(&self.argument);
    }
}

/// Stages files from mass storage, cancels staging, or marks files as no longer needed.
/// Section 3, kXR_prepare.
///
/// Answer to [`PrepareOptions::STAGE`]: the request's id, a text, for cancelling and querying it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare {
    /// Options.
    pub options: PrepareOptions,
    /// From 0, the least urgent, to 3.
    pub priority: u8,
    /// The port for notifications, or 0.
    pub port: u16,
    /// More options.
    pub more: PrepareMore,
    /// The files, at most [`LOCATIONS_MAX`]; to cancel, the request's id is the first one.
    pub locations: Vec<Location>,
}

impl Body for Prepare {
    const CODE: RequestCode = RequestCode::PREPARE;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        Ok(Prepare {
            options: PrepareOptions(parameters.u8()?),
            priority: parameters.u8()?,
            port: parameters.u16()?,
            more: PrepareMore(parameters.u16()?),
            locations: locations_of("prepare", body)?,
        })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.u8(self.options.0).u8(self.priority).u16(self.port).u16(self.more.0);
        encode_lines(&self.locations, body);
    }
}

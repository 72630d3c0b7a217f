//! What clients ask: every request as a type of its own, decoded and encoded side by side.
//!
//! ```text
//! 0        2        4                    20         24
//! | stream | code   | parameters[16]     | length   | body[length] ..
//! ```
//!
//! 1. Names are the protocol's, so that its reference can be read beside them.
//! 2. What is reserved is written as zeros and ignored when read.
//! 3. The data of write, pgwrite, writev and of a write in a checkpoint are no part of the request:
//!    they follow it, [`Request::data_bytes`] of them. In writev and checkpoints they are not even
//!    counted by the header's length.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3.

mod checkpoint;
mod file;
mod names;
mod session;
mod writing;

use bytes::Bytes;

use crate::codes::RequestCode;
use crate::error::{Error, Result};
use crate::fattr::Fattr;
use crate::ids::{FileHandle, PathId, StreamId};
use crate::limits::request_body_bytes_max;
use crate::location::Location;
use crate::wire::{Reader, Writer};

pub use checkpoint::{CheckpointWrite, Chkpoint};
pub(crate) use checkpoint::{inner_header, is_execute};
pub use file::{CloneRanges, Close, Open, PgRead, Read, ReadArguments, ReadV, Sync};
pub use names::{
    Chmod, Dirlist, Locate, Mkdir, Mv, Prepare, Query, Rm, Rmdir, Stat, Statx, Truncate,
};
pub use session::{Auth, Bind, Capability, Endsess, Login, Ping, Protocol, Set, Sigver};
pub(crate) use writing::data_behind;
pub use writing::{PgWrite, Write, WriteV};

/// Bytes of a request's header.
pub const REQUEST_HEADER_BYTES: usize = 24;

const PARAMETER_BYTES: usize = 16;

/// What every request starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Names the request in its responses.
    pub stream: StreamId,
    /// What is asked for.
    pub code: RequestCode,
    /// What the code makes of them.
    pub parameters: [u8; PARAMETER_BYTES],
    /// Bytes of the body; at most 2^31 - 1.
    pub length: u32,
}

impl RequestHeader {
    /// The header from its bytes.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the length is negative: what follows cannot be told apart, so the
    /// connection is lost.
    pub fn decode(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<Self> {
        let mut reader = Reader::new("request header", bytes, 0);
        let stream = StreamId(reader.array()?);
        let code = RequestCode(reader.u16()?);
        Ok(RequestHeader { stream, code, parameters: reader.array()?, length: reader.length()? })
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        bytes[..2].copy_from_slice(&self.stream.0);
        bytes[2..4].copy_from_slice(&self.code.0.to_be_bytes());
        bytes[4..20].copy_from_slice(&self.parameters);
        bytes[20..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// How one kind of request lies in parameters and body.
pub(crate) trait Body: Sized {
    const CODE: RequestCode;

    /// `parameters` are the header's 16 bytes and its length; `body` is what was gathered.
    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self>;

    fn encode(&self, parameters: &mut Writer, body: &mut Writer);

    /// What the header tells as length; the body's, but for writes.
    fn length(&self, body: usize) -> usize {
        body
    }

    /// Bytes of data that follow the request.
    fn data_bytes(&self) -> u64 {
        0
    }
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Any request.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Request {
            $($(#[$doc])* $name($name),)+
        }

        $(impl From<$name> for Request {
            fn from(request: $name) -> Request {
                Request::$name(request)
            }
        })+

        impl Request {
            /// What is asked for.
            pub fn code(&self) -> RequestCode {
                match self {
                    $(Request::$name(_) => <$name as Body>::CODE,)+
                }
            }

            /// Bytes of data that follow the request and are no part of it.
            pub fn data_bytes(&self) -> u64 {
                match self {
                    $(Request::$name(request) => request.data_bytes(),)+
                }
            }

            fn encode_parts(&self, parameters: &mut Writer, body: &mut Writer) -> usize {
                match self {
                    $(Request::$name(request) => {
                        request.encode(parameters, body);
                        request.length(body.len())
                    })+
                }
            }

            /// The request from its header and what belongs to its body (all of it, but for data
            /// that follow).
            ///
            /// # Errors
            /// [`Error::Malformed`] if the parts do not fit each other or the code is unknown,
            /// [`Error::TooLong`] if a list or text is.
            pub fn decode(header: &RequestHeader, body: &Bytes) -> Result<Request> {
                let bytes = header.encode();
                let parameters = &mut Reader::new(what(header.code), &bytes[4..], 4);
                let request = match header.code {
                    $(<$name as Body>::CODE => $name::decode(parameters, body)?.into(),)+
                    other => {
                        let reason = format!("there is no request {}", other.0);
                        return Err(Error::malformed("request header", 2, reason));
                    }
                };
                checkpoint::check_stream(header, body)?;
                Ok(request)
            }
        }
    };
}

requests! {
    /// kXR_auth.
    Auth,
    /// kXR_bind.
    Bind,
    /// kXR_chkpoint.
    Chkpoint,
    /// kXR_chmod.
    Chmod,
    /// kXR_clone (5.2.0).
    CloneRanges,
    /// kXR_close.
    Close,
    /// kXR_dirlist.
    Dirlist,
    /// kXR_endsess.
    Endsess,
    /// kXR_fattr.
    Fattr,
    /// kXR_locate.
    Locate,
    /// kXR_login.
    Login,
    /// kXR_mkdir.
    Mkdir,
    /// kXR_mv.
    Mv,
    /// kXR_open.
    Open,
    /// kXR_pgread.
    PgRead,
    /// kXR_pgwrite.
    PgWrite,
    /// kXR_ping.
    Ping,
    /// kXR_prepare.
    Prepare,
    /// kXR_protocol.
    Protocol,
    /// kXR_query.
    Query,
    /// kXR_read.
    Read,
    /// kXR_readv.
    ReadV,
    /// kXR_rm.
    Rm,
    /// kXR_rmdir.
    Rmdir,
    /// kXR_set.
    Set,
    /// kXR_sigver.
    Sigver,
    /// kXR_stat.
    Stat,
    /// kXR_statx.
    Statx,
    /// kXR_sync.
    Sync,
    /// kXR_truncate.
    Truncate,
    /// kXR_write.
    Write,
    /// kXR_writev.
    WriteV,
}

impl Request {
    /// The bound stream on which the data of a write come, and how many bytes; none where they follow the
    /// request.
    pub fn data_elsewhere(&self) -> Option<(PathId, u32)> {
        let (path, length) = match self {
            Request::Write(write)
            | Request::Chkpoint(Chkpoint::Execute(CheckpointWrite::Write(write))) => {
                (write.path, write.length)
            }
            Request::PgWrite(write)
            | Request::Chkpoint(Chkpoint::Execute(CheckpointWrite::PgWrite(write))) => {
                (write.path, write.length)
            }
            _ => return None,
        };
        (!path.is_here()).then_some((path, length))
    }

    /// Appends the request's bytes to `out`; the caller sends [`Request::data_bytes`] of data
    /// behind them.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::TooLong`] for what the protocol cannot express; `out` is then
    /// as it was.
    pub fn encode(&self, stream: StreamId, out: &mut Vec<u8>) -> Result<()> {
        let (mut parameters, mut body) = (Writer::default(), Writer::default());
        let length = self.encode_parts(&mut parameters, &mut body);
        let parameters = padded(&parameters.finish()?);
        let mut body = body.finish()?;
        let (limit, code) = (request_body_bytes_max(self.code()), self.code());
        if body.len() > limit {
            return Err(Error::too_many_bytes("request body", body.len(), limit));
        }
        let length = u32::try_from(length).expect("bodies and data are shorter than 2^31");
        checkpoint::set_stream(self, stream, &mut body);
        let header = RequestHeader { stream, code, parameters, length };
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(&body);
        Ok(())
    }
}

/// Parameters with the reserved bytes behind them.
fn padded(parameters: &[u8]) -> [u8; PARAMETER_BYTES] {
    let mut all = [0; PARAMETER_BYTES];
    all[..parameters.len()].copy_from_slice(parameters);
    all
}

/// A file that is open, or one by name: stat, truncate and fattr take either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An open file.
    Handle(FileHandle),
    /// A file by name.
    Location(Location),
}

impl Target {
    /// The handle where the body is empty.
    fn decode(what: &'static str, handle: FileHandle, body: &Bytes) -> Result<Target> {
        match body.is_empty() {
            true => Ok(Target::Handle(handle)),
            false => Location::of_body(what, body).map(Target::Location),
        }
    }

    pub(crate) fn handle(&self) -> FileHandle {
        match self {
            Target::Handle(handle) => *handle,
            Target::Location(_) => FileHandle::default(),
        }
    }

    fn encode(&self, body: &mut Writer) {
        if let Target::Location(location) = self {
            body.raw(location.as_bytes());
        }
    }
}

/// Refuses a body where none is expected.
fn no_body(what: &'static str, body: &Bytes) -> Result<()> {
    Reader::new(what, body, REQUEST_HEADER_BYTES).end()
}

/// What errors call a request.
fn what(code: RequestCode) -> &'static str {
    code.name().unwrap_or("request")
}

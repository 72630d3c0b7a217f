//! Requests: each a type of its own, with its decoder beside its encoder.
//!
//! ```text
//! 0        2        4                    20         24
//! | stream | code   | parameters[16]     | length   | body[length] ..
//! ```
//!
//! 1. Names are the protocol's, so that its reference can be read beside them.
//! 2. Reserved bytes are written as zeros and ignored when read.
//! 3. The data of write, pgwrite, writev and of writes in a checkpoint are not part of the request: they follow it,
//!    [`Request::data_bytes`] of them. The header's length does not count those of writev and checkpoints.
//!
//! `body` and `header` are shared; `file`, `paths`, `session`, `write`, `fattr` and, above them, `checkpoint` hold the
//! requests. Source: "The XRootD Protocol" 5.1.1, section 3.

pub(crate) mod body;
mod checkpoint;
mod fattr;
mod file;
mod header;
mod paths;
mod session;
mod write;

use bytes::Bytes;

use crate::codes::RequestCode;
use crate::error::{Error, Result};
use crate::ids::{PathId, StreamId};
use crate::limits::request_body_bytes_max;
use crate::wire::{Reader, Writer};

pub use body::FileRef;
use body::{Body, padded};
pub use checkpoint::{CheckpointWrite, Chkpoint};
pub(crate) use checkpoint::{inner_header, is_execute};
pub use fattr::{AttributeAction, Fattr};
pub use file::{CloneRanges, Close, Open, PgRead, Read, ReadArguments, ReadV, Sync};
pub use header::{REQUEST_HEADER_BYTES, RequestHeader};
pub use paths::{
    Chmod, Dirlist, Locate, Mkdir, Mv, Prepare, Query, Rm, Rmdir, Stat, Statx, Truncate,
};
pub use session::{Auth, Bind, Capability, Endsess, Login, Ping, Protocol, Set, Sigver};
pub(crate) use write::data_behind;
pub use write::{PgWrite, Write, WriteV};

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
            /// The request's code.
            pub fn code(&self) -> RequestCode {
                match self {
                    $(Request::$name(_) => <$name as Body>::CODE,)+
                }
            }

            /// Bytes of data that follow the request.
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

            /// Decodes a request from its header and body, without data.
            ///
            /// # Errors
            /// [`Error::Malformed`] if the code is unknown or the body does not match it;
            /// [`Error::TooLong`] if a list or text is too long.
            pub fn decode(header: &RequestHeader, body: &Bytes) -> Result<Request> {
                let bytes = header.encode();
                let parameters = &mut Reader::new(what(header.code), &bytes[4..], 4);
                let request = match header.code {
                    $(<$name as Body>::CODE => $name::decode(parameters, body)?.into(),)+
                    other => {
                        let reason = format!("unknown request {}", other.0);
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
    /// The bound stream that the data of a write arrive on, and their length; `None` if they follow the request.
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

    /// Appends the encoded request to `out`. The caller sends [`Request::data_bytes`] bytes of data behind it.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::TooLong`] if the protocol cannot express the request; `out` is then unchanged.
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

/// The name of a request in errors.
fn what(code: RequestCode) -> &'static str {
    code.name().unwrap_or("request")
}

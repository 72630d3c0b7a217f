//! Checkpoints: changes of an open file that can be rolled back until they are committed.
//!
//! ```text
//! begin, commit, query, rollback   handle[4] zero[11] opcode      no body
//! execute                          zero[15] 4, length 24          the header of another request
//!                                                                 [its list, if it is a writev]
//!                                                                 its data
//! ```
//!
//! 1. The inner request is a truncate by handle, a write, a pgwrite or a writev, and repeats the outer stream.
//! 2. The outer length counts the inner header alone.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_chkpoint.

use bytes::Bytes;

use super::body::{Body, FileRef, no_body, padded};
use super::{PgWrite, REQUEST_HEADER_BYTES, Request, RequestHeader, Truncate, Write, WriteV};
use crate::codes::RequestCode;
use crate::error::{Error, Result};
use crate::ids::{FileHandle, StreamId};
use crate::wire::{Reader, Writer};

const BEGIN: u8 = 0;
const COMMIT: u8 = 1;
const QUERY: u8 = 2;
const ROLLBACK: u8 = 3;
const EXECUTE: u8 = 4;

/// Begins, ends or changes a file in a checkpoint. Section 3, kXR_chkpoint.
///
/// Answer: empty, but [`crate::response::CheckpointAnswer`] to `Query`, and that of the inner
/// request to `Execute`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chkpoint {
    /// Begins a checkpoint of this file.
    Begin(FileHandle),
    /// Keeps the changes.
    Commit(FileHandle),
    /// Gets the checkpoint's limit and use, in bytes.
    Query(FileHandle),
    /// Rolls the changes back.
    Rollback(FileHandle),
    /// Changes the file.
    Execute(CheckpointWrite),
}

/// A change that a checkpoint can roll back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointWrite {
    /// Truncate an open file.
    Truncate {
        /// The file.
        handle: FileHandle,
        /// The new size in bytes.
        size: u64,
    },
    /// Write a piece.
    Write(Write),
    /// Write a piece with checksums.
    PgWrite(PgWrite),
    /// Write many pieces.
    WriteV(WriteV),
}

impl Body for Chkpoint {
    const CODE: RequestCode = RequestCode::CHKPOINT;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let handle = FileHandle(parameters.array()?);
        parameters.take(11)?;
        let simple = match parameters.clone().u8()? {
            BEGIN => Chkpoint::Begin(handle),
            COMMIT => Chkpoint::Commit(handle),
            QUERY => Chkpoint::Query(handle),
            ROLLBACK => Chkpoint::Rollback(handle),
            EXECUTE => return CheckpointWrite::decode(body).map(Chkpoint::Execute),
            other => return Err(parameters.malformed(format!("unknown action {other}"))),
        };
        no_body("chkpoint", body).map(|()| simple)
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        let (handle, opcode) = match self {
            Chkpoint::Begin(handle) => (*handle, BEGIN),
            Chkpoint::Commit(handle) => (*handle, COMMIT),
            Chkpoint::Query(handle) => (*handle, QUERY),
            Chkpoint::Rollback(handle) => (*handle, ROLLBACK),
            Chkpoint::Execute(change) => {
                change.encode(body);
                (FileHandle::default(), EXECUTE)
            }
        };
        parameters.raw(&handle.0).zeros(11).u8(opcode);
    }

    fn length(&self, body: usize) -> usize {
        body.min(REQUEST_HEADER_BYTES)
    }

    fn data_bytes(&self) -> u64 {
        match self {
            Chkpoint::Execute(change) => change.data_bytes(),
            _ => 0,
        }
    }
}

impl CheckpointWrite {
    fn data_bytes(&self) -> u64 {
        match self {
            CheckpointWrite::Truncate { .. } => 0,
            CheckpointWrite::Write(write) => write.data_bytes(),
            CheckpointWrite::PgWrite(write) => write.data_bytes(),
            CheckpointWrite::WriteV(write) => write.data_bytes(),
        }
    }

    fn decode(body: &Bytes) -> Result<Self> {
        let inner = inner_header(body)?;
        let list = body.slice(REQUEST_HEADER_BYTES..);
        let by_name = inner.code == RequestCode::TRUNCATE && inner.length > 0;
        let bytes = inner.encode();
        let parameters = &mut Reader::new("chkpoint", &bytes[4..], REQUEST_HEADER_BYTES + 4);
        match inner.code {
            RequestCode::WRITE => Write::decode(parameters, &list).map(CheckpointWrite::Write),
            RequestCode::PG_WRITE => {
                PgWrite::decode(parameters, &list).map(CheckpointWrite::PgWrite)
            }
            RequestCode::WRITE_V => WriteV::decode(parameters, &list).map(CheckpointWrite::WriteV),
            RequestCode::TRUNCATE if !by_name => {
                let Truncate { target, size } = Truncate::decode(parameters, &list)?;
                Ok(CheckpointWrite::Truncate { handle: target.handle(), size })
            }
            other => {
                let reason = format!("a checkpoint cannot execute a {other} request");
                Err(Error::malformed("chkpoint", REQUEST_HEADER_BYTES + 2, reason))
            }
        }
    }

    fn encode(&self, body: &mut Writer) {
        let (mut parameters, mut list) = (Writer::default(), Writer::default());
        let (code, length) = match self {
            CheckpointWrite::Truncate { handle, size } => {
                let truncate = Truncate { target: FileRef::Handle(*handle), size: *size };
                encode_inner(&truncate, &mut parameters, &mut list)
            }
            CheckpointWrite::Write(write) => encode_inner(write, &mut parameters, &mut list),
            CheckpointWrite::PgWrite(write) => encode_inner(write, &mut parameters, &mut list),
            CheckpointWrite::WriteV(write) => encode_inner(write, &mut parameters, &mut list),
        };
        match (parameters.finish(), list.finish()) {
            (Ok(parameters), Ok(list)) => {
                body.zeros(2).u16(code.0).raw(&padded(&parameters)).u32(length).raw(&list);
            }
            (Err(error), _) | (_, Err(error)) => body.fail(error),
        }
    }
}

fn encode_inner<B: Body>(
    request: &B,
    parameters: &mut Writer,
    list: &mut Writer,
) -> (RequestCode, u32) {
    request.encode(parameters, list);
    (B::CODE, request.length(list.len()) as u32)
}

/// Whether a request is a change in a checkpoint, which has an inner header.
pub(crate) fn is_execute(header: &RequestHeader) -> bool {
    header.code == RequestCode::CHKPOINT && header.parameters[15] == EXECUTE
}

/// The header in the body of a change.
pub(crate) fn inner_header(body: &[u8]) -> Result<RequestHeader> {
    Reader::new("chkpoint", body, REQUEST_HEADER_BYTES)
        .array()
        .and_then(|bytes| RequestHeader::decode(&bytes))
}

/// Rejects a change whose inner stream differs from the outer one, or whose outer length is not that of the inner
/// header.
pub(crate) fn check_stream(header: &RequestHeader, body: &[u8]) -> Result<()> {
    if !is_execute(header) {
        return Ok(());
    }
    if inner_header(body)?.stream != header.stream {
        let reason = "the inner stream differs from the outer one";
        return Err(Error::malformed("chkpoint", REQUEST_HEADER_BYTES, reason));
    }
    if header.length as usize != REQUEST_HEADER_BYTES {
        let reason =
            format!("the length must be 24, that of an inner header, not {}", header.length);
        return Err(Error::malformed("chkpoint", REQUEST_HEADER_BYTES - 4, reason));
    }
    Ok(())
}

/// Writes the stream into the inner header of a change.
pub(crate) fn set_stream(request: &Request, stream: StreamId, body: &mut [u8]) {
    if let Request::Chkpoint(Chkpoint::Execute(_)) = request {
        body[..2].copy_from_slice(&stream.0);
    }
}

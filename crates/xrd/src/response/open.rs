//! Answers to open and to the query of a checkpoint.
//!
//! ```text
//! open        handle[4]  [page size i32  kind[4]  [stat line]]
//! checkpoint  most u32  used u32
//! ```
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3: kXR_open, kXR_chkpoint.

use bytes::Bytes;

use super::{Answer, RESPONSE_HEADER_BYTES, StatLine};
use crate::error::Result;
use crate::ids::FileHandle;
use crate::wire::{Reader, Writer};

/// An open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAnswer {
    /// The handle, valid in its session.
    pub handle: FileHandle,
    /// The compression, if the client requested it or the stat line.
    pub compression: Option<FileCompression>,
    /// The metadata, if the client requested them; the answer then has a compression, too.
    pub stat: Option<StatLine>,
}

/// The compression of a file; all zeros if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCompression {
    /// Bytes of a compressed page.
    pub page_bytes: u32,
    /// The algorithm.
    pub kind: [u8; 4],
}

impl Answer for OpenAnswer {
    fn decode(body: &Bytes) -> Result<Self> {
        let reader = &mut Reader::new("open answer", body, RESPONSE_HEADER_BYTES);
        let handle = FileHandle(reader.array()?);
        if reader.remaining() == 0 {
            return Ok(OpenAnswer { handle, compression: None, stat: None });
        }
        let compression =
            Some(FileCompression { page_bytes: reader.length()?, kind: reader.array()? });
        let stat = match reader.remaining() {
            0 => None,
            _ => Some(StatLine::parse("open answer", reader.rest())?),
        };
        Ok(OpenAnswer { handle, compression, stat })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Writer::default();
        body.raw(&self.handle.0);
        if let (Some(_), _) | (_, Some(_)) = (&self.compression, &self.stat) {
            let FileCompression { page_bytes, kind } = self.compression.unwrap_or_default();
            body.length(page_bytes).raw(&kind);
        }
        if let Some(stat) = &self.stat {
            body.zero_ended(stat.to_string().as_bytes());
        }
        body.finish()
    }
}

/// The limit and the use of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointAnswer {
    /// The maximum number of changed bytes.
    pub most: u32,
    /// The number of changed bytes.
    pub used: u32,
}

impl Answer for CheckpointAnswer {
    fn decode(body: &Bytes) -> Result<Self> {
        let reader = &mut Reader::new("chkpoint answer", body, RESPONSE_HEADER_BYTES);
        Ok(CheckpointAnswer { most: reader.u32()?, used: reader.u32()? })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Writer::default();
        body.u32(self.most).u32(self.used);
        body.finish()
    }
}

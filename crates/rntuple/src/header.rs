//! The header envelope: the name and the schema of an RNTuple.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Header Envelope".

use crate::envelope::{
    EnvelopeKind, PREAMBLE_SIZE, decode_feature_flags, envelope_checksum, open_envelope,
    seal_envelope,
};
use crate::error::Result;
use crate::schema::Schema;
use crate::wire::{Reader, Writer};

/// The header of an RNTuple: written first, never changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// Name of the RNTuple.
    pub name: String,
    /// Free text.
    pub description: String,
    /// The program that wrote the RNTuple.
    pub writer: String,
    /// Fields and columns; a footer may add more.
    pub schema: Schema,
}

impl Header {
    /// Encodes the uncompressed envelope.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u64(0);
        writer.string(&self.name).string(&self.description).string(&self.writer);
        self.schema.encode(&mut writer);
        seal_envelope(EnvelopeKind::Header, &writer.bytes)
    }

    /// Decodes an uncompressed envelope; returns the header and its checksum, by which footers and page
    /// lists refer to it.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) if the bytes are damaged,
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if they use features of a later version.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u64)> {
        let payload = open_envelope(EnvelopeKind::Header, bytes)?;
        let name = EnvelopeKind::Header.name();
        let mut reader = Reader::new(name, payload, PREAMBLE_SIZE as u64);
        decode_feature_flags(&mut reader)?;
        let header = Header {
            name: reader.string()?,
            description: reader.string()?,
            writer: reader.string()?,
            schema: Schema::decode(&mut reader)?,
        };
        header.schema.check()?;
        Ok((header, envelope_checksum(bytes)))
    }
}

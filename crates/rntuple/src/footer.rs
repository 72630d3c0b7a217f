//! The footer envelope: additions to the schema, and where the page lists are.
//!
//! A footer is one version of an RNTuple: it names all cluster groups, older and newer.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Footer Envelope".

use crate::envelope::{
    EnvelopeKind, PREAMBLE_SIZE, decode_feature_flags, open_envelope, seal_envelope,
};
use crate::error::Result;
use crate::locator::{ENVELOPE_LINK_SIZE_MIN, EnvelopeLink};
use crate::schema::Schema;
use crate::wire::{RECORD_FRAME_OVERHEAD, Reader, Writer};

const CLUSTER_GROUP_SIZE_MIN: usize = RECORD_FRAME_OVERHEAD + 20 + ENVELOPE_LINK_SIZE_MIN;

/// The footer of an RNTuple.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Footer {
    /// Checksum of the header that this footer belongs to.
    pub header_checksum: u64,
    /// Fields and columns added since the header; identifiers continue the header's.
    pub extension: Schema,
    /// All cluster groups, in the order of their entries.
    pub cluster_groups: Vec<ClusterGroup>,
}

/// Consecutive clusters whose pages one page list describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterGroup {
    /// First entry of the group.
    pub min_entry: u64,
    /// Number of entries of the group.
    pub entry_span: u64,
    /// Number of clusters.
    pub clusters: u32,
    /// Where the page list is.
    pub page_list: EnvelopeLink,
}

impl Footer {
    /// The uncompressed envelope.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u64(0).u64(self.header_checksum);
        writer.record_frame(|writer| self.extension.encode(writer));
        writer.list_frame(self.cluster_groups.len(), |writer| {
            for group in &self.cluster_groups {
                writer.record_frame(|writer| group.encode(writer));
            }
        });
        seal_envelope(EnvelopeKind::Footer, &writer.bytes)
    }

    /// Reads an uncompressed envelope. The extension's references are checked when it is joined to
    /// the header's schema by [`Schema::extend`].
    ///
    /// # Errors
    /// As [`Header::decode`](crate::Header::decode).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let payload = open_envelope(EnvelopeKind::Footer, bytes)?;
        let name = EnvelopeKind::Footer.name();
        let mut reader = Reader::new(name, payload, PREAMBLE_SIZE as u64);
        decode_feature_flags(&mut reader)?;
        let header_checksum = reader.u64()?;
        let extension = decode_extension(&mut reader.record_frame()?)?;
        let (count, mut groups) = reader.list_frame(CLUSTER_GROUP_SIZE_MIN)?;
        let cluster_groups = (0..count)
            .map(|_| ClusterGroup::decode(&mut groups.record_frame()?))
            .collect::<Result<_>>()?;
        Ok(Footer { header_checksum, extension, cluster_groups })
    }

    /// Number of entries of all cluster groups.
    pub fn entries(&self) -> u64 {
        let ends = self
            .cluster_groups
            .iter()
            .map(|group| group.min_entry.saturating_add(group.entry_span));
        ends.max().unwrap_or(0)
    }
}

/// The record frame of an extension may be empty.
fn decode_extension(reader: &mut Reader<'_>) -> Result<Schema> {
    if reader.remaining() == 0 { Ok(Schema::default()) } else { Schema::decode(reader) }
}

impl ClusterGroup {
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let group = ClusterGroup {
            min_entry: reader.u64()?,
            entry_span: reader.u64()?,
            clusters: reader.u32()?,
            page_list: EnvelopeLink::decode(reader)?,
        };
        match group.min_entry.checked_add(group.entry_span) {
            Some(_) => Ok(group),
            None => Err(reader.corrupt("a cluster group ends beyond entry 2^64")),
        }
    }

    fn encode(&self, writer: &mut Writer) {
        writer.u64(self.min_entry).u64(self.entry_span).u32(self.clusters);
        self.page_list.encode(writer);
    }
}

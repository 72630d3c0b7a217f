//! The footer envelope: additions to the schema, and the locations of the page lists.
//!
//! A footer describes one version of an RNTuple: it lists all its cluster groups, old and new.
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
    /// Checksum of the header of the same RNTuple.
    pub header_checksum: u64,
    /// Fields and columns added since the header; identifiers continue the header's.
    pub extension: Schema,
    /// All cluster groups, in the order of their entries.
    pub cluster_groups: Vec<ClusterGroup>,
}

/// Consecutive clusters that share one page list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterGroup {
    /// First entry of the group.
    pub min_entry: u64,
    /// Number of entries of the group.
    pub entry_span: u64,
    /// Number of clusters.
    pub clusters: u32,
    /// Location of the page list.
    pub page_list: EnvelopeLink,
}

impl Footer {
    /// Encodes the uncompressed envelope.
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

    /// Decodes an uncompressed envelope. [`Schema::extend`] checks the references of the extension when
    /// it joins it to the schema of the header.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) if the bytes are damaged,
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if they use features of a later version.
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

/// Decodes a schema extension, whose record frame may be empty.
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

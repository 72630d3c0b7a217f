//! Commit records: the changes of one transaction to one database, written into that database's file.
//!
//! The catalogue is the truth. A commit record repeats the part of it that concerns one file, so that the
//! catalogue can be rebuilt from the files alone, and another federation can attach a sealed file. A record is
//! a blob, framed as `femtobarn_format::frame` says; docs/format.md specifies its content.

use std::sync::Arc;

use femtobarn_catalog::{Author, BlobRange, ContainerId, Csn, DatabaseId, EnvelopeRange};
use rntuple::{BlobSink, ByteSource};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ContainerOptions;
use crate::annex;
use crate::error::{Error, Result};
use crate::frame;
use crate::schema::class::{Class, shared_class};
use crate::storage::extent::ExtentWriter;

/// The first bytes of a commit record; the digit is the version of its format.
pub(crate) const MAGIC: [u8; 8] = *b"FBCMT\0\x002";

/// The changes of one transaction to one database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CommitRecord {
    /// The transaction.
    pub transaction: Uuid,
    /// Its message.
    pub message: String,
    /// The author of the record; `None` if an earlier release wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// The federation.
    pub federation: Uuid,
    /// This database.
    pub database: Uuid,
    /// Its number in the federation, which is part of OIDs.
    pub number: DatabaseId,
    /// Its name when the record was written.
    pub name: String,
    /// The newest commit when the record was written. The transaction's own CSN is greater.
    pub after: Csn,
    /// When it was written, in microseconds since 1970.
    pub time_us: i64,
    /// All databases of the transaction. It was committed only if each of them has its record.
    pub databases: Vec<Uuid>,
    /// Containers of this database that got a new version.
    pub containers: Vec<RecordedVersion>,
    /// Containers of this database that got another name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<(ContainerId, String)>,
    /// Containers of this database that were dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<ContainerId>,
    /// How the transaction ended the database, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// Whether `containers` are all containers of the database, not only those that changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_whole: bool,
}

/// How a database leaves a federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    /// Its file is removed once no snapshot needs it.
    Dropped,
    /// Its file leaves the federation.
    Detached,
}

/// One version of a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedVersion {
    pub id: ContainerId,
    pub name: String,
    #[serde(with = "shared_class")]
    pub class: Arc<Class>,
    pub options: ContainerOptions,
    /// The version that this one follows.
    pub base: Option<Csn>,
    pub header: EnvelopeRange,
    pub footer: EnvelopeRange,
    pub annex: BlobRange,
    pub entries: u64,
    pub deleted: u64,
    pub bytes: u64,
    /// The databases that its links refer to, from position 1 on; position 0 is its own database.
    pub link_targets: Vec<Uuid>,
}

impl CommitRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        frame::seal(&MAGIC, self)
    }

    /// Writes the record into a file that gets no other data, and makes it durable.
    pub(crate) fn write_alone(&self, mut extents: ExtentWriter) -> Result<BlobRange> {
        let bytes = self.encode();
        let what = extents.file().path.display().to_string();
        let offset = extents.write_blob(&[&bytes]).map_err(Error::storage(what))?;
        extents.flush()?;
        extents.sync()?;
        extents.trim()?;
        Ok(BlobRange { offset, size: bytes.len() as u64 })
    }

    /// Decodes the record at the front of `bytes`; bytes after it are ignored.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        Ok(frame::open(&MAGIC, bytes, "commit record")?)
    }

    /// Reads the record in a range of a file.
    pub(crate) fn at(source: &dyn ByteSource, range: BlobRange) -> Result<Self> {
        let what = format!("commit record at byte {}", range.offset);
        Self::decode(&annex::read_bytes(source, range.offset, range.size, &what)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> CommitRecord {
        CommitRecord {
            transaction: Uuid::from_u128(1),
            message: "run 7".into(),
            author: Some(Author { user: "anna".into(), host: "daq1".into(), pid: 5 }),
            federation: Uuid::from_u128(9),
            database: Uuid::from_u128(2),
            number: DatabaseId(1),
            name: "run7".into(),
            after: Csn(3),
            time_us: 4,
            databases: vec![Uuid::from_u128(2)],
            containers: vec![],
            renamed: vec![],
            dropped: vec![],
            end: None,
            is_whole: false,
        }
    }

    #[test]
    fn a_record_is_decoded_though_bytes_follow_it() {
        let mut bytes = record().encode();
        bytes.extend_from_slice(b"the next blob");
        assert_eq!(CommitRecord::decode(&bytes).unwrap(), record());
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let bytes = record().encode();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(CommitRecord::decode(&flipped).is_err(), "bit {bit}");
        }
    }
}

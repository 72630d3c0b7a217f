//! Commit records: what a transaction committed, left in every file that it touched.
//!
//! The catalogue is the truth. A commit record repeats the part of it that concerns one file, so
//! that the catalogue can be made again from the files alone, and a sealed file can tell another
//! federation what it holds. It is a blob like any other: 8 bytes of magic, the length of the text
//! (`u64`), its XXH3 checksum (`u64`), all little-endian, and the text, which is JSON.

use femtobarn_catalog::{ContainerId, Csn, EnvelopeRange};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;
use uuid::Uuid;

use crate::class::Class;
use crate::options::ContainerOptions;

/// The first bytes of a commit record; the digit is the version of its format.
pub(crate) const MAGIC: [u8; 8] = *b"FBCMT\0\x001";
/// Bytes before the text.
const PREAMBLE: usize = 24;

/// What one transaction did to one database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CommitRecord {
    /// The transaction.
    pub transaction: Uuid,
    /// What its author said about it.
    pub message: String,
    /// This database.
    pub database: Uuid,
    /// Its name when the record was written.
    pub name: String,
    /// All databases of the transaction: it happened only if all of them have its record.
    pub databases: Vec<Uuid>,
    /// Containers of this database that got a new version.
    pub containers: Vec<ContainerRecord>,
}

/// One container as of one version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub id: ContainerId,
    pub name: String,
    pub class: Class,
    pub options: ContainerOptions,
    /// The version that this one follows.
    pub base: Option<Csn>,
    pub header: EnvelopeRange,
    pub footer: EnvelopeRange,
    pub entries: u64,
    pub bytes: u64,
    /// The databases that its links refer to, by position; position 0, itself, is left out.
    pub link_targets: Vec<Uuid>,
}

impl CommitRecord {
    pub fn encode(&self) -> Vec<u8> {
        let text = serde_json::to_vec(self).expect("a record has only names and numbers");
        let mut bytes = Vec::with_capacity(PREAMBLE + text.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&XxHash3_64::oneshot(&text).to_le_bytes());
        bytes.extend_from_slice(&text);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Result};

    impl CommitRecord {
        /// Reads the record at the front of `bytes`, which may go on.
        pub fn decode(bytes: &[u8]) -> Result<Self> {
            let damaged =
                |reason: &str| Error::Corrupt { what: format!("commit record: {reason}") };
            let text = bytes
                .get(..PREAMBLE)
                .filter(|preamble| preamble.starts_with(&MAGIC))
                .and_then(|preamble| {
                    let length = u64::from_le_bytes(preamble[8..16].try_into().ok()?);
                    let end = PREAMBLE.checked_add(usize::try_from(length).ok()?)?;
                    let text = bytes.get(PREAMBLE..end)?;
                    (XxHash3_64::oneshot(text).to_le_bytes() == preamble[16..]).then_some(text)
                })
                .ok_or_else(|| damaged("its magic, length or checksum is wrong"))?;
            serde_json::from_slice(text).map_err(|error| damaged(&error.to_string()))
        }
    }

    fn record() -> CommitRecord {
        CommitRecord {
            transaction: Uuid::from_u128(1),
            message: "run 7".into(),
            database: Uuid::from_u128(2),
            name: "run7".into(),
            databases: vec![Uuid::from_u128(2)],
            containers: vec![],
        }
    }

    #[test]
    fn a_record_is_read_back_whatever_follows_it() {
        let mut bytes = record().encode();
        bytes.extend_from_slice(b"the next blob");
        assert_eq!(CommitRecord::decode(&bytes).unwrap(), record());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = record().encode();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(CommitRecord::decode(&flipped).is_err(), "bit {bit}");
        }
    }
}

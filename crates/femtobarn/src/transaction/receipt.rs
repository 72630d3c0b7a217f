//! Messages between a transaction and the tasks that write for it: forks to the tasks, receipts back.
//!
//! Both are smaller than 2 KB, however large the classes and the written data are: a fork names a blob with the plan, a
//! receipt names blobs with page lists and statistics. The blobs are in the database files. All are framed as
//! `femtobarn_format::frame` describes, with the version of their form at the end of their magic; other versions are
//! refused.

use std::collections::{BTreeMap, BTreeSet};

use femtobarn_catalog::{ContainerId, ContainerRow, DatabaseId, DatabaseRow, EnvelopeRange};
use rntuple::EnvelopeLink;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::container::ContainerKey;
use crate::ContainerOptions;
use crate::annex::Blob;
use crate::error::{Error, Result};
use crate::frame;
use crate::schema::class::Class;

const FORK_MAGIC: [u8; 8] = *b"FBFRK\0\x001";
const PLAN_MAGIC: [u8; 8] = *b"FBPLN\0\x001";
const RECEIPT_MAGIC: [u8; 8] = *b"FBRCT\0\x001";
const PARTS_MAGIC: [u8; 8] = *b"FBPRT\0\x001";
/// Parts in a receipt itself, at most: each has some 200 bytes.
pub(super) const PARTS_MAX: usize = 4;
/// Bytes of a task's key, at most.
const TASK_BYTES_MAX: usize = 512;

/// The plan by which tasks in any process write for a transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fork {
    pub(super) federation: Uuid,
    pub(super) id: Uuid,
    /// The database that has the plan.
    pub(super) home: ForkedDatabase,
    pub(super) plan: Blob,
}

/// A database that tasks write to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ForkedDatabase {
    pub row: DatabaseRow,
    /// Whether the transaction creates it, so that the catalogue does not know it yet.
    pub is_new: bool,
}

/// The containers that tasks write to, and their databases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ForkPlan {
    pub databases: Vec<ForkedDatabase>,
    pub containers: Vec<ForkedContainer>,
    /// All databases that the transaction creates, for links to them: the catalogue does not know their UUIDs yet.
    pub new_databases: Vec<(DatabaseId, Uuid)>,
}

/// A container as of the fork.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ForkedContainer {
    pub row: ContainerRow,
    pub class: Class,
    pub options: ContainerOptions,
    pub header: EnvelopeRange,
    pub footer: EnvelopeRange,
    /// The databases that links may refer to, from position 1 on.
    pub targets: Vec<Uuid>,
}

/// The result of one task, for the transaction that forked. It is invisible until it is merged and committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    pub(super) federation: Uuid,
    pub(super) fork: Uuid,
    pub(super) task: String,
    /// Several runs of a task differ in it.
    pub(super) attempt: Uuid,
    /// Objects in all parts.
    pub(super) entries: u64,
    pub(super) parts: ReceivedParts,
}

/// The parts that one task wrote, by containers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ReceivedParts {
    /// At most [`PARTS_MAX`].
    Here(Vec<ReceivedPart>),
    /// More: a list in a blob of a database.
    Stored(DatabaseId, Blob),
}

/// The part that one task wrote to a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ReceivedPart {
    pub database: DatabaseId,
    pub container: ContainerId,
    pub entries: u64,
    pub page_list: Blob,
    pub statistics: Blob,
}

/// The forks that a transaction can merge receipts of.
pub(super) type Forks = BTreeMap<Uuid, OpenFork>;

/// A transaction's state of a fork.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenFork {
    /// The containers, each with the header and the version of the class that tasks write in.
    pub containers: BTreeMap<ContainerKey, (EnvelopeLink, u32)>,
    /// The keys of the tasks that were merged.
    pub merged: BTreeSet<String>,
}

impl Fork {
    /// The bytes that [`decode`](Self::decode) reads.
    pub fn encode(&self) -> Vec<u8> {
        frame::seal(&FORK_MAGIC, self)
    }

    /// Decodes the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// `Corrupt` if the bytes are damaged; `Unsupported` if another version of Femtobarn made them.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        open(&FORK_MAGIC, bytes, "fork")
    }
}

impl ForkPlan {
    pub(super) fn encode(&self) -> Vec<u8> {
        frame::seal(&PLAN_MAGIC, self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        open(&PLAN_MAGIC, bytes, "plan of a fork")
    }
}

impl Receipt {
    /// The bytes that [`decode`](Self::decode) reads.
    pub fn encode(&self) -> Vec<u8> {
        frame::seal(&RECEIPT_MAGIC, self)
    }

    /// Decodes the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// `Corrupt` if the bytes are damaged; `Unsupported` if another version of Femtobarn made them.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        open(&RECEIPT_MAGIC, bytes, "receipt")
    }

    /// The key of the task.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Number of objects that the task wrote, to all containers.
    pub fn entries(&self) -> u64 {
        self.entries
    }
}

/// The bytes of a list of parts.
pub(super) fn encode_parts(parts: &[ReceivedPart]) -> Vec<u8> {
    frame::seal(&PARTS_MAGIC, &parts)
}

/// Decodes the bytes of [`encode_parts`].
///
/// # Errors
/// `Corrupt` if the bytes are damaged.
pub(super) fn decode_parts(bytes: &[u8]) -> Result<Vec<ReceivedPart>> {
    open(&PARTS_MAGIC, bytes, "list of the parts of a receipt")
}

impl ReceivedPart {
    pub(super) fn key(&self) -> ContainerKey {
        ContainerKey { database: self.database, container: self.container }
    }

    pub(super) fn blobs(&self) -> [&Blob; 2] {
        [&self.page_list, &self.statistics]
    }

    /// Bytes of its blobs, unchecked.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.page_list.size.saturating_add(self.statistics.size)
    }
}

/// Reads a framed value, whose magic ends with the version of its form.
fn open<T: DeserializeOwned>(magic: &[u8; 8], bytes: &[u8], what: &str) -> Result<T> {
    let (version, name) = magic.split_last().expect("a magic has 8 bytes");
    let is_other = |found: &u8| found != version && (b'1'..=b'9').contains(found);
    if bytes.starts_with(name) && bytes.get(name.len()).is_some_and(is_other) {
        let what = format!(
            "another version of Femtobarn made this {what}: the transaction and its tasks need the same one"
        );
        return Err(femtobarn_catalog::Error::Unsupported { what }.into());
    }
    Ok(frame::open(magic, bytes, what)?)
}

/// Checks the key of a task.
pub(super) fn check_task(task: &str) -> Result<()> {
    if task.is_empty() || task.len() > TASK_BYTES_MAX {
        let size = task.len();
        return Err(Error::invalid(format!(
            "the key of a task has {size} bytes: it needs 1 to {TASK_BYTES_MAX}"
        )));
    }
    Ok(())
}

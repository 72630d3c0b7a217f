//! References: the address of each condition's payload, and its checksum. They are read in blocks and kept.

use std::ops::Range;
use std::sync::OnceLock;

use femtobarn::{Link, Result, View};
use serde_json::Value;

use super::answers::not_found;
use super::stored_payloads::{ELSEWHERE, ElsewhereDetails, PayloadKind};
use crate::version_names::name_of;

/// Entries that are read at once.
const BLOCK: u64 = 1024;

/// The address of a condition's payload, its checksum, and its size if the client that inserted it sent one. All three
/// are JSON, as in answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PayloadReference {
    /// Separated by commas.
    json: String,
    checksum_at: usize,
    size_at: usize,
}

impl PayloadReference {
    fn new(url: String, checksum: String, size: Option<u64>) -> Self {
        let [url, checksum] = [url, checksum].map(|text| Value::String(text).to_string());
        let size = size.map_or_else(|| "null".to_owned(), |size| size.to_string());
        let (checksum_at, size_at) = (url.len() + 1, url.len() + checksum.len() + 2);
        PayloadReference { json: format!("{url},{checksum},{size}"), checksum_at, size_at }
    }

    /// Address, checksum and size, separated by commas.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    pub(super) fn url(&self) -> &str {
        &self.json[..self.checksum_at - 1]
    }

    pub(super) fn checksum(&self) -> &str {
        &self.json[self.checksum_at..self.size_at - 1]
    }

    pub(super) fn size(&self) -> &str {
        &self.json[self.size_at..]
    }
}

rntuple::row! {
    struct StoredPayload {
        media_type: String,
        name: String,
        details: String,
        sha256: String,
    }
}

rntuple::row! {
    struct LinkOfCondition {
        payload: Link,
        source_hash: String,
    }
}

type ReferenceBlock = Vec<Option<PayloadReference>>;

/// The references of a version of a series.
pub(super) struct References {
    kind: PayloadKind,
    blocks: Vec<OnceLock<ReferenceBlock>>,
}

impl References {
    pub(super) fn new(view: &View) -> Result<Self> {
        let count = view.entries().div_ceil(BLOCK) as usize;
        let blocks = std::iter::repeat_with(OnceLock::new).take(count).collect();
        Ok(References { kind: PayloadKind::of(view.class())?, blocks })
    }

    /// The reference of an entry. `view` is the version of the series.
    pub(super) fn get(&self, view: &View, entry: u64) -> Result<&PayloadReference> {
        let missing = || not_found(format!("{} has no entry {entry}", view.path()));
        let number = (entry / BLOCK) as usize;
        let slot = self.blocks.get(number).ok_or_else(missing)?;
        let block = match slot.get() {
            Some(block) => block,
            None => {
                let start = number as u64 * BLOCK;
                let block = self.read(view, start..(start + BLOCK).min(view.entries()))?;
                slot.get_or_init(|| block)
            }
        };
        block[(entry % BLOCK) as usize].as_ref().ok_or_else(missing)
    }

    /// The reference of an entry, if it was read.
    pub(super) fn known(&self, entry: u64) -> Option<&PayloadReference> {
        let block = self.blocks.get((entry / BLOCK) as usize)?.get()?;
        block[(entry % BLOCK) as usize].as_ref()
    }

    fn read(&self, view: &View, entries: Range<u64>) -> Result<ReferenceBlock> {
        let first = entries.start;
        let mut block = vec![None; (entries.end - first) as usize];
        match self.kind {
            PayloadKind::Own => {
                let here = Addresses::of(view)?;
                view.cursor::<StoredPayload>()?.for_each(entries, |entry, payload| {
                    let address = || here.payload(entry);
                    block[(entry - first) as usize] = Some(reference(payload, address));
                    Ok(())
                })?;
            }
            PayloadKind::Linked => {
                let mut payloads = view.snapshot().objects::<StoredPayload>();
                view.cursor::<LinkOfCondition>()?.for_each(entries, |entry, link| {
                    let reference = match link.payload.object() {
                        Some(object) => linked(payloads.get(object)?, link.source_hash),
                        None => PayloadReference::new(String::new(), link.source_hash, None),
                    };
                    block[(entry - first) as usize] = Some(reference);
                    Ok(())
                })?;
            }
            PayloadKind::Other => {
                let here = Addresses::of(view)?;
                for entry in view.live_entries(entries)? {
                    let reference = PayloadReference::new(here.values(entry), String::new(), None);
                    block[(entry - first) as usize] = Some(reference);
                }
            }
        }
        Ok(block)
    }
}

/// The reference to a payload: its name if its bytes are stored elsewhere, otherwise its address.
fn reference(payload: StoredPayload, address: impl FnOnce() -> String) -> PayloadReference {
    if payload.media_type == ELSEWHERE {
        let details: ElsewhereDetails = serde_json::from_str(&payload.details).unwrap_or_default();
        return PayloadReference::new(payload.name, details.checksum, details.size);
    }
    PayloadReference::new(address(), sha256(&payload.sha256), None)
}

/// The reference to an imported payload: its name at its origin.
fn linked(payload: StoredPayload, source_hash: String) -> PayloadReference {
    let details = match &*payload.media_type {
        ELSEWHERE => serde_json::from_str(&payload.details).unwrap_or_default(),
        _ => ElsewhereDetails::default(),
    };
    let checksum = if source_hash.is_empty() { sha256(&payload.sha256) } else { source_hash };
    PayloadReference::new(payload.name, checksum, details.size)
}

fn sha256(digits: &str) -> String {
    if digits.is_empty() { String::new() } else { format!("sha256:{digits}") }
}

/// The addresses of the conditions of a version of a series, relative to those of the federation's conditions.
struct Addresses {
    version: String,
    path: String,
}

impl Addresses {
    fn of(view: &View) -> Result<Self> {
        let version = name_of(view.snapshot().federation(), view.version().csn)?;
        Ok(Addresses { version, path: view.path() })
    }

    /// The bytes of a payload.
    fn payload(&self, entry: u64) -> String {
        format!("payloads/{}/{entry}/{}", self.version, self.path)
    }

    /// The values of a condition that is not a payload.
    fn values(&self, entry: u64) -> String {
        format!("conditions/{}/{entry}/{}", self.version, self.path)
    }
}

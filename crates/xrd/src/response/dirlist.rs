//! The answer to dirlist.
//!
//! ```text
//! name \n name \n name \0                                          names
//! .\n0 0 0 0\n name \n stat line \n name \n stat line \0           with stat lines
//! .\n0 0 0 0\n name \n stat line [ kind:digest ] \n ..             with checksums
//! ```
//!
//! 1. A list with stat lines starts with the entry `.` and four zeros. Servers without stat lines send names alone,
//!    even if stat lines were requested.
//! 2. Parts end at the end of an entry; the last line ends with a zero byte in place of the line feed. An empty
//!    directory has an empty answer, or the entry `.` alone.
//! 3. Neither `.` nor `..` is listed.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_dirlist.

use bytes::Bytes;

use super::{Answer, RESPONSE_HEADER_BYTES, StatLine};
use crate::error::{Error, Result};
use crate::limits::DIRECTORY_ENTRIES_MAX;
use crate::wire::{shared, without_end};

const STAT_LEAD: &[u8] = b".\n0 0 0 0";

/// A directory's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryList {
    /// Whether entries have stat lines.
    pub with_stat: bool,
    /// The entries in the server's order; at most [`DIRECTORY_ENTRIES_MAX`].
    pub entries: Vec<DirectoryEntry>,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, without line feeds and slashes.
    pub name: Bytes,
    /// The metadata, in lists with stat lines.
    pub stat: Option<StatLine>,
    /// The checksum, if requested; the entry then has a stat line, too.
    pub checksum: Option<EntryChecksum>,
}

/// A checksum in a directory list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChecksum {
    /// The algorithm, such as `adler32`.
    pub kind: String,
    /// The digest as hexadecimal digits, or `none`.
    pub digest: String,
}

impl Answer for DirectoryList {
    fn decode(body: &Bytes) -> Result<Self> {
        let text = without_end(body);
        match text.strip_prefix(STAT_LEAD) {
            Some([]) => Ok(DirectoryList { with_stat: true, entries: Vec::new() }),
            Some([b'\n', lines @ ..]) => decode_pairs(body, lines),
            _ => decode_names(body, text),
        }
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut body = if self.with_stat { STAT_LEAD.to_vec() } else { Vec::new() };
        for entry in &self.entries {
            if !body.is_empty() {
                body.push(b'\n');
            }
            entry.encode(self.with_stat, &mut body)?;
        }
        if !body.is_empty() {
            body.push(0);
        }
        Ok(body)
    }
}

impl DirectoryEntry {
    fn encode(&self, with_stat: bool, body: &mut Vec<u8>) -> Result<()> {
        if self.name.is_empty() || self.name.iter().any(|byte| matches!(byte, 0 | b'\n')) {
            let name = self.name.escape_ascii();
            return Err(Error::invalid(format!(
                "an entry \"{name}\" cannot be listed: its name must not be empty or have line feeds"
            )));
        }
        body.extend_from_slice(&self.name);
        if with_stat {
            let Some(stat) = &self.stat else {
                let name = self.name.escape_ascii();
                return Err(Error::invalid(format!("the entry \"{name}\" has no stat line")));
            };
            body.extend_from_slice(format!("\n{stat}").as_bytes());
        }
        if let (true, Some(EntryChecksum { kind, digest })) = (with_stat, &self.checksum) {
            body.extend_from_slice(format!(" [ {kind}:{digest} ]").as_bytes());
        }
        Ok(())
    }
}

fn decode_names(body: &Bytes, text: &[u8]) -> Result<DirectoryList> {
    let names = text.split(|&byte| byte == b'\n').filter(|name| !name.is_empty());
    check_count(names.clone().count())?;
    let entries = names
        .map(|name| DirectoryEntry { name: shared(body, name), stat: None, checksum: None })
        .collect();
    Ok(DirectoryList { with_stat: false, entries })
}

fn decode_pairs(body: &Bytes, text: &[u8]) -> Result<DirectoryList> {
    let mut lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    check_count(lines.clone().count() / 2)?;
    let mut entries = Vec::new();
    while let Some(name) = lines.next() {
        let Some(line) = lines.next() else {
            let offset = RESPONSE_HEADER_BYTES + body.len();
            let reason = "the last entry has no stat line";
            return Err(Error::malformed("dirlist answer", offset, reason));
        };
        let stat = Some(StatLine::parse("dirlist answer", line)?);
        entries.push(DirectoryEntry { name: shared(body, name), stat, checksum: checksum(line) });
    }
    Ok(DirectoryList { with_stat: true, entries })
}

fn check_count(count: usize) -> Result<()> {
    if count > DIRECTORY_ENTRIES_MAX {
        Err(Error::too_many_items("dirlist answer", count, DIRECTORY_ENTRIES_MAX))
    } else {
        Ok(())
    }
}

/// The `[ kind:digest ]` at the end of a stat line.
fn checksum(line: &[u8]) -> Option<EntryChecksum> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, checksum) = text.strip_suffix(" ]")?.rsplit_once(" [ ")?;
    let (kind, digest) = checksum.split_once(':')?;
    Some(EntryChecksum { kind: kind.to_owned(), digest: digest.to_owned() })
}

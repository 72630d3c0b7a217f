//! Stat lines: metadata of a file, or the space of a file system, as text.
//!
//! ```text
//! id size flags mtime [ctime atime mode owner group]     a file
//! nodes free used% nodes free used%                       space: for writing, and for staging
//! ```
//!
//! Numbers are decimal, but for the mode, which is octal. Times are seconds since 1970, space is
//! in MiB. Source: "The XRootD Protocol" 5.1.1, section 3, kXR_stat.

use std::fmt;

use bytes::Bytes;

use super::{Answer, RESPONSE_HEADER_BYTES};
use crate::error::{Error, Result};
use crate::flags::{Mode, StatFlags};

/// Metadata of a file.
///
/// ```
/// use xrd::response::{Answer, StatLine};
///
/// let line = StatLine::decode(&"7 4096 51 1700000000\0".into())?;
/// assert!(line.flags.contains(xrd::flags::StatFlags::DIRECTORY));
/// assert_eq!((line.size, line.to_string().as_str()), (4096, "7 4096 51 1700000000"));
/// # Ok::<(), xrd::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatLine {
    /// The file's id on its server: device in the upper 32 bits, inode in the lower.
    pub id: i64,
    /// Bytes.
    pub size: u64,
    /// Type and access.
    pub flags: StatFlags,
    /// Modification time (mtime), in seconds since 1970.
    pub modified: i64,
    /// More metadata, from servers since 5.0.
    pub extension: Option<StatExtension>,
}

/// More metadata of a file, from servers since 5.0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatExtension {
    /// Change time (ctime), in seconds since 1970.
    pub changed: i64,
    /// Access time (atime), in seconds since 1970.
    pub accessed: i64,
    /// Permissions: the lower twelve bits of POSIX's mode.
    pub mode: Mode,
    /// The owner, without spaces.
    pub owner: String,
    /// The group, without spaces.
    pub group: String,
}

impl StatLine {
    pub(super) fn parse(what: &'static str, line: &[u8]) -> Result<Self> {
        let mut words = Words::new(what, line)?;
        let mut stat = StatLine {
            id: words.number("id")?,
            size: words.number("size")?,
            flags: StatFlags(words.number("flags")?),
            modified: words.number("time")?,
            extension: None,
        };
        // Lists with checksums, and later versions, append more words.
        if let Some(changed) = words.next().and_then(|word| word.parse().ok()) {
            stat.extension = Some(StatExtension {
                changed,
                accessed: words.number("time")?,
                mode: words.mode()?,
                owner: words.word("owner")?.to_owned(),
                group: words.word("group")?.to_owned(),
            });
        }
        Ok(stat)
    }
}

impl fmt::Display for StatLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StatLine { id, size, flags, modified, extension } = self;
        write!(formatter, "{id} {size} {} {modified}", flags.0)?;
        let Some(StatExtension { changed, accessed, mode, owner, group }) = extension else {
            return Ok(());
        };
        write!(formatter, " {changed} {accessed} {:04o} {owner} {group}", mode.0)
    }
}

impl Answer for StatLine {
    fn decode(body: &Bytes) -> Result<Self> {
        StatLine::parse("stat answer", body)
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let names = self.extension.iter().flat_map(|more| [&more.owner, &more.group]);
        for name in names {
            if name.is_empty() || name.contains([' ', '\n', '\0']) {
                return Err(Error::invalid(format!(
                    "invalid owner {name:?}: must be a single word; send its id"
                )));
            }
        }
        Ok(ended(self.to_string()))
    }
}

/// The space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceLine {
    /// Number of writable servers.
    pub writable_nodes: u64,
    /// Largest free space on a writable server, in MiB.
    pub writable_free_mib: u64,
    /// Used space, in percent.
    pub writable_used_percent: u64,
    /// Number of staging servers.
    pub staging_nodes: u64,
    /// Largest free space on a staging server, in MiB.
    pub staging_free_mib: u64,
    /// Used space, in percent.
    pub staging_used_percent: u64,
}

impl Answer for SpaceLine {
    fn decode(body: &Bytes) -> Result<Self> {
        let mut words = Words::new("stat answer", body)?;
        Ok(SpaceLine {
            writable_nodes: words.number("number of servers")?,
            writable_free_mib: words.number("free space")?,
            writable_used_percent: words.number("used space")?,
            staging_nodes: words.number("number of servers")?,
            staging_free_mib: words.number("free space")?,
            staging_used_percent: words.number("used space")?,
        })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let SpaceLine { writable_nodes, writable_free_mib, writable_used_percent, .. } = self;
        let SpaceLine { staging_nodes, staging_free_mib, staging_used_percent, .. } = self;
        let writable = format!("{writable_nodes} {writable_free_mib} {writable_used_percent}");
        Ok(ended(format!("{writable} {staging_nodes} {staging_free_mib} {staging_used_percent}")))
    }
}

fn ended(line: String) -> Vec<u8> {
    let mut bytes = line.into_bytes();
    bytes.push(0);
    bytes
}

/// The words of a line, one after the other.
struct Words<'a> {
    what: &'static str,
    words: std::str::SplitAsciiWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn new(what: &'static str, line: &'a [u8]) -> Result<Self> {
        let end = line.iter().position(|&byte| byte == 0).unwrap_or(line.len());
        let text = std::str::from_utf8(&line[..end])
            .map_err(|_| Error::malformed(what, RESPONSE_HEADER_BYTES, "the line is not UTF-8"))?;
        Ok(Words { what, words: text.split_ascii_whitespace() })
    }

    fn next(&mut self) -> Option<&'a str> {
        self.words.next()
    }

    fn word(&mut self, noun: &str) -> Result<&'a str> {
        self.words.next().ok_or_else(|| self.malformed(format!("the {noun} is missing")))
    }

    fn number<T: std::str::FromStr>(&mut self, noun: &str) -> Result<T> {
        let word = self.word(noun)?;
        word.parse().map_err(|_| self.malformed(format!("invalid {noun} {word:.40?}")))
    }

    fn mode(&mut self) -> Result<Mode> {
        let word = self.word("mode")?;
        let mode = u16::from_str_radix(word, 8);
        mode.map(Mode).map_err(|_| self.malformed(format!("invalid mode {word:.40?}")))
    }

    fn malformed(&self, reason: String) -> Error {
        Error::malformed(self.what, RESPONSE_HEADER_BYTES, reason)
    }
}

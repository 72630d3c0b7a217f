//! The file beside the catalogue for facts that no database file has: the name of the federation, its tags and its
//! retention. A rebuild of the catalogue reads it.
//!
//! 1. It is written before the change of the catalogue takes effect, so it has all tags that were acknowledged. It may
//!    also have a change that was never acknowledged, because the process died; the next change corrects that.
//! 2. A crash leaves the old file or the new one.
//! 3. A damaged file is refused as a whole.
//!
//! docs/format.md specifies its content.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;
use uuid::Uuid;

use super::LocalCatalogue;
use super::creation::sync_folder;
use super::decode::commit_row;
use super::lookup::all;
use super::retention::retention;
use crate::error::{Error, Result};
use crate::paths::RETAINED_FILE;
use crate::rows::{CommitRow, Retention, TagRow};
use crate::sql::{Row, RowResult, SqlConnection, SqlResult};

/// The first line of the file is this, a space, and the checksum of all later lines.
const MAGIC: &str = "femtobarn-retained 1";
const TAGS: &str = "SELECT c.csn, c.transaction_uuid, c.time_us, c.message, c.user_name, c.host, c.pid, \
    t.name, t.created_us, t.message, t.user_name FROM tags t JOIN commits c ON c.csn = t.csn \
    ORDER BY t.csn, t.name";

/// The facts that a rebuild of the catalogue cannot find in database files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retained {
    /// The identity of the federation.
    pub federation: Uuid,
    /// The name of the federation.
    pub name: String,
    /// The snapshots that vacuum keeps.
    pub retention: Retention,
    /// Tags, each with its commit, ordered by commit.
    pub tags: Vec<(TagRow, CommitRow)>,
}

impl Retained {
    /// Reads the file in a federation's folder; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file is damaged; [`Error::Unsupported`] if a later release wrote it; [`Error::Io`] or
    /// [`Error::Denied`] if it cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(RETAINED_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("cannot read", &path, error)),
        };
        Self::decode(&path, &text).map(Some)
    }

    fn decode(path: &Path, text: &[u8]) -> Result<Self> {
        let damaged = || Error::Corrupt {
            path: path.to_owned(),
            reason: "its checksum or its content is wrong".to_owned(),
        };
        let end = text.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
        let (first, rest) = (&text[..end], &text[end + 1..]);
        let first = std::str::from_utf8(first).map_err(|_| damaged())?;
        let (magic, checksum) = first.rsplit_once(' ').ok_or_else(damaged)?;
        if checksum != checksum_of(rest) {
            return Err(damaged());
        }
        if magic != MAGIC {
            let what =
                format!("{RETAINED_FILE} has the format {magic:?}; use the release that wrote it");
            return Err(Error::Unsupported { what });
        }
        serde_json::from_slice(rest).map_err(|_| damaged())
    }

    fn encode(&self) -> Vec<u8> {
        let mut rest = serde_json::to_vec_pretty(self).expect("texts and numbers are JSON");
        rest.push(b'\n');
        let mut text = format!("{MAGIC} {}\n", checksum_of(&rest)).into_bytes();
        text.append(&mut rest);
        text
    }
}

impl LocalCatalogue {
    /// Writes the file that [`Retained::read`] reads.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Denied`] or [`Error::Full`] if it cannot be written.
    pub fn write_retained(&self) -> Result<()> {
        self.connections.write(|sql| self.retain(sql))
    }

    /// Writes the file as of a transaction that is not committed yet, unless the file is up to date.
    pub(super) fn retain(&self, sql: &SqlConnection) -> SqlResult<()> {
        let retained = Retained {
            federation: self.uuid(),
            name: self.name().to_owned(),
            retention: retention(sql)?,
            tags: all(sql, TAGS, [], tag_and_commit)?,
        };
        match replace(self.folder(), &retained.encode()) {
            // PostgreSQL has backups of its own, and its users need not be able to write the folder.
            Err(Error::Denied { .. }) if sql.postgres().is_some() => Ok(()),
            written => Ok(written?),
        }
    }
}

fn tag_and_commit(row: &Row<'_>) -> RowResult<(TagRow, CommitRow)> {
    let commit = commit_row(row)?;
    let tag = TagRow {
        name: row.get(7)?,
        csn: commit.csn,
        created_us: row.get(8)?,
        message: row.get(9)?,
        user: row.get(10)?,
    };
    Ok((tag, commit))
}

fn replace(folder: &Path, text: &[u8]) -> Result<()> {
    let path = folder.join(RETAINED_FILE);
    if fs::read(&path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    // The writer may change the catalogue, so no other process writes now. A draft that a crash left is overwritten.
    let draft = folder.join(format!("{RETAINED_FILE}.draft"));
    let write = || -> io::Result<()> {
        let mut file = File::create(&draft)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&draft, &path)
    };
    write().map_err(|error| Error::io("cannot write", &draft, error))?;
    sync_folder(folder)
}

fn checksum_of(bytes: &[u8]) -> String {
    format!("{:016x}", XxHash3_64::oneshot(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Csn;

    fn retained() -> Retained {
        let commit = CommitRow {
            csn: Csn(7),
            transaction: Uuid::from_u128(1),
            time_us: 2,
            message: "line\nbreak".into(),
            user: "anna".into(),
            host: "daq1".into(),
            pid: 3,
        };
        let tag = TagRow {
            name: "v1".into(),
            csn: Csn(7),
            created_us: 4,
            message: String::new(),
            user: "otto".into(),
        };
        Retained {
            federation: Uuid::from_u128(9),
            name: "lhc".into(),
            retention: Retention { keep_commits: Some(3), keep_days: Some(u64::MAX) },
            tags: vec![(tag, commit)],
        }
    }

    #[test]
    fn retained_file_is_read_as_written_and_every_damage_is_noticed() {
        let text = retained().encode();
        assert_eq!(Retained::decode(Path::new(RETAINED_FILE), &text).unwrap(), retained());
        for bit in 0..8 * text.len() {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Retained::decode(Path::new(RETAINED_FILE), &flipped).is_err(), "bit {bit}");
        }
        for length in 0..text.len() {
            assert!(
                Retained::decode(Path::new(RETAINED_FILE), &text[..length]).is_err(),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn retained_file_of_a_later_release_is_not_supported() {
        let text =
            String::from_utf8(retained().encode()).unwrap().replacen("retained 1", "retained 2", 1);
        assert!(matches!(
            Retained::decode(Path::new(RETAINED_FILE), text.as_bytes()),
            Err(Error::Unsupported { .. })
        ));
    }
}

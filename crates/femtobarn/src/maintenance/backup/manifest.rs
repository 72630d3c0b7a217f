//! The manifest of a backup, `backup.json`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use femtobarn_catalog::{Csn, clock};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::storage::file;

/// The manifest's name in a backup's folder. It is written last: a backup without it is incomplete.
pub(super) const MANIFEST: &str = "backup.json";
/// Bytes of a chunk, the unit in which files are compared: of large files, and of all files in format 1.
const CHUNK_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a chunk of small files, so that a small commit makes a small backup.
const CHUNK_BYTES_MIN: u64 = 16 << 10;
/// Chunks of a file beyond which chunks get larger: each takes about 30 bytes of the manifest.
const CHUNKS_ENOUGH: u64 = 4096;
/// Format 2 added `chunk_bytes`.
const FORMAT: u32 = 2;

/// The chunk size for a file of `size` bytes that no earlier backup holds.
pub(super) fn chunk_bytes_for(size: u64) -> u64 {
    let wanted = size.div_ceil(CHUNKS_ENOUGH).next_power_of_two();
    wanted.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
}

fn chunk_bytes_of_format_1() -> u64 {
    CHUNK_BYTES_MAX
}

/// A backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub format: u32,
    pub id: Uuid,
    /// The backup that this one builds on; `None` for a full backup.
    pub parent: Option<Uuid>,
    pub federation: Uuid,
    pub name: String,
    pub csn: Csn,
    pub made_us: i64,
    pub files: Vec<FileEntry>,
}

/// A file at the time of the backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileEntry {
    /// Its path in the federation's folder and in that of the backup.
    pub path: String,
    pub size: u64,
    /// Bytes of each chunk but the last: the same in successive backups, until the file is several times as
    /// large and is stored in full again.
    #[serde(default = "chunk_bytes_of_format_1")]
    pub chunk_bytes: u64,
    /// XXH3-64 of each chunk.
    pub chunks: Vec<u64>,
    /// The numbers of the chunks that this backup stores, back to back, in the file of that path; `None` if it stores
    /// the whole file.
    pub stored: Option<Vec<u64>>,
}

impl Manifest {
    pub(super) fn new(parent: Option<&Manifest>, federation: Uuid, name: &str, csn: Csn) -> Self {
        Manifest {
            format: FORMAT,
            id: Uuid::new_v4(),
            parent: parent.map(|parent| parent.id),
            federation,
            name: name.to_owned(),
            csn,
            made_us: clock::utc_us(),
            files: vec![],
        }
    }

    pub(super) fn file(&self, path: &str) -> Option<&FileEntry> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Writes the manifest, which completes the backup.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let (draft, path) = (folder.join("backup.json.draft"), folder.join(MANIFEST));
        let text = serde_json::to_vec_pretty(self).expect("a manifest has only names and numbers");
        let written = File::create(&draft)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&draft, &path));
        written.map_err(|error| Error::io("write", &path, error))?;
        file::sync_folder(folder)
    }

    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        let text = std::fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::NotFound {
                what: format!(
                    "incomplete backup {}: no {MANIFEST}; check the path, or make the \
                     backup again",
                    folder.display()
                ),
            },
            _ => Error::io("read", &path, error),
        })?;
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| Error::Corrupt { what: format!("{}: {error}", path.display()) })?;
        if manifest.format > FORMAT {
            return Err(Error::invalid(format!(
                "{} has format {}, newer than the supported {FORMAT}; upgrade femtobarn",
                path.display(),
                manifest.format
            )));
        }
        manifest.check(&path)?;
        Ok(manifest)
    }

    /// Checks that paths stay inside the folder and that chunks and sizes agree.
    fn check(&self, path: &Path) -> Result<()> {
        let is_inside = |file: &FileEntry| {
            let path = Path::new(&file.path);
            path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        let is_whole = |file: &FileEntry| {
            if !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&file.chunk_bytes) {
                return false;
            }
            let count = file.size.div_ceil(file.chunk_bytes);
            let stored = file.stored.as_deref().unwrap_or_default();
            file.chunks.len() as u64 == count
                && stored.is_sorted_by(|one, next| one < next)
                && stored.last().is_none_or(|&last| last < count)
        };
        match self.files.iter().find(|file| !is_inside(file) || !is_whole(file)) {
            None => Ok(()),
            Some(file) => Err(Error::Corrupt {
                what: format!("{}: damaged entry of file {:?}", path.display(), file.path),
            }),
        }
    }
}

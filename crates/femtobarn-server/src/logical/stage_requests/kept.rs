//! Stage requests on disk: a file for each, in a folder `stage-requests` of a federation.
//!
//! A file is written beside its place, synced and renamed, so it is complete or missing. A file that cannot be parsed
//! is left alone, and its request is forgotten.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use femtobarn_catalog::clock;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::request::StageRequest;

/// The folder, below that of a federation.
const FOLDER: &str = "stage-requests";
/// The suffixes of requests, and of requests that are being written.
const SUFFIX: &str = "json";
const PART: &str = "part";
/// The age after which a part is an orphan: its server was killed.
const PART_AGE: Duration = Duration::from_secs(3600);
/// Bytes of the largest file that is read: more than the largest request over HTTP leads to.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files that are examined: more than are ever kept.
const FILES_MAX: usize = 2000;

/// A request, and its user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptRequest {
    /// The user who made the request; no other user may see it.
    pub user: String,
    pub request: StageRequest,
}

/// The folder of a federation's requests.
#[derive(Clone, Debug)]
pub(super) struct RequestFolder(PathBuf);

impl RequestFolder {
    /// The folder below that of a federation. It is made with the first request.
    pub(super) fn of(federation: &Path) -> Self {
        RequestFolder(federation.join(FOLDER))
    }

    /// All requests, the oldest first. Unreadable files are logged.
    pub(super) fn read(&self) -> Vec<KeptRequest> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return vec![],
            Err(error) => {
                self.warn(&self.0, &error);
                return vec![];
            }
        };
        let mut found: Vec<KeptRequest> = vec![];
        for path in entries.flatten().take(FILES_MAX).map(|entry| entry.path()) {
            match path.extension().and_then(|end| end.to_str()) {
                Some(PART) if is_left(&path) => drop(fs::remove_file(&path)),
                Some(SUFFIX) => match read_one(&path) {
                    Ok(kept) => found.push(kept),
                    Err(error) => self.warn(&path, &error),
                },
                _ => {}
            }
        }
        found.sort_by_key(|kept| kept.request.created_at);
        found
    }

    /// Writes a request durably.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(super) fn write(&self, kept: &KeptRequest) -> io::Result<()> {
        self.make()?;
        let place = self.place_of(&kept.request.id);
        let part = self.0.join(format!("{}.{PART}", Uuid::new_v4()));
        let written = write_one(&part, &serde_json::to_vec(kept)?);
        let written = written.and_then(|()| fs::rename(&part, &place));
        if written.is_err() {
            drop(fs::remove_file(&part));
        }
        written?;
        File::open(&self.0)?.sync_all()
    }

    /// Removes a request, if it exists. After a crash it may exist again.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(super) fn remove(&self, id: &str) -> io::Result<()> {
        match fs::remove_file(self.place_of(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the folder durably, unless it exists.
    fn make(&self) -> io::Result<()> {
        match (fs::create_dir(&self.0), self.0.parent()) {
            (Ok(()), Some(federation)) => File::open(federation)?.sync_all(),
            (Err(error), _) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn place_of(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.{SUFFIX}"))
    }

    fn warn(&self, path: &Path, error: &io::Error) {
        let path = path.display();
        tracing::warn!(%path, %error, "a stage request cannot be read, and is ignored");
    }
}

/// Whether a part was left by a server that was killed. Another server may be writing a newer one.
fn is_left(part: &Path) -> bool {
    let changed = fs::metadata(part).and_then(|metadata| metadata.modified());
    let age = changed.ok().and_then(|changed| clock::utc().duration_since(changed).ok());
    age.is_some_and(|age| age > PART_AGE)
}

fn read_one(path: &Path) -> io::Result<KeptRequest> {
    let mut bytes = vec![];
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large"));
    }
    let kept: KeptRequest = serde_json::from_slice(&bytes)?;
    // The name of the file follows from the id, which must not lead elsewhere.
    let is_its = path.file_stem().and_then(|stem| stem.to_str()) == Some(&kept.request.id);
    if is_its && Uuid::parse_str(&kept.request.id).is_ok() {
        Ok(kept)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "its id differs from its file name"))
    }
}

fn write_one(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Only users who may read the files may see their paths.
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::super::request::WantedFile;
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written_and_rubbish_is_passed_over() {
        let federation = tempfile::tempdir().unwrap();
        let folder = RequestFolder::of(federation.path());
        assert!(folder.read().is_empty());
        let kept = |path: &str, now| {
            let files = vec![WantedFile { path: path.to_owned(), lifetime: 60 }];
            KeptRequest { user: "ann".to_owned(), request: StageRequest::new(files, now) }
        };
        let (one, other) = (kept("/lhc.fed/a.root", 7), kept("/lhc.fed/b \"ü\".root", 5));
        for request in [&one, &other, &one] {
            folder.write(request).unwrap();
        }
        fs::write(folder.0.join("rubbish.json"), b"{").unwrap();
        for (name, age) in [("left.part", 2 * PART_AGE), ("written.part", Duration::ZERO)] {
            let part = File::create(folder.0.join(name)).unwrap();
            part.set_modified(clock::utc() - age).unwrap();
        }
        fs::copy(folder.place_of(&one.request.id), folder.0.join("copy.json")).unwrap();
        let requests: Vec<_> = folder.read().into_iter().map(|kept| kept.request).collect();
        assert_eq!(requests, [other.request.clone(), one.request.clone()]);
        assert!(!folder.0.join("left.part").exists());
        assert!(folder.0.join("written.part").exists(), "another server may rename it");
        folder.remove(&one.request.id).unwrap();
        folder.remove(&one.request.id).unwrap();
        assert_eq!(folder.read().len(), 1);
    }
}

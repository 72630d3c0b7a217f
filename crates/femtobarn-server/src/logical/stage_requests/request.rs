//! [`StageRequest`]: the files that a client wants on the disk, and their progress.
//!
//! Its JSON is that of the WLCG Tape REST API, and also the form in which it is stored on disk.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::physical::StoragePath;

/// A request. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StageRequest {
    /// A UUID, which cannot be guessed.
    pub id: String,
    /// When the request was made.
    pub created_at: u64,
    /// When work on the request began.
    pub started_at: u64,
    /// When the last file was finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<u64>,
    /// The files, each once.
    pub files: Vec<StagedFile>,
}

/// A file of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StagedFile {
    /// The path, as the client wrote it.
    pub path: String,
    /// When the file was requested.
    pub started_at: u64,
    /// When the file was finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<u64>,
    /// Whether the file was brought to the disk.
    pub on_disk: bool,
    /// The progress of the file.
    pub state: StageState,
    /// Why the file failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Seconds for which the file stays on the disk.
    pub lifetime: u64,
    /// The end of the file's pin; `None` if it was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_until: Option<u64>,
}

/// The progress of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StageState {
    /// The file is being brought back.
    Started,
    /// The file is on the disk.
    Completed,
    /// The file cannot be brought back.
    Failed,
    /// The client has cancelled the file.
    Cancelled,
}

/// A file that a client requests.
#[derive(Clone, Debug)]
pub struct WantedFile {
    /// The path of the file.
    pub path: String,
    /// Seconds for which the file is to stay on the disk.
    pub lifetime: u64,
}

/// The result of a look at a file.
#[derive(Debug)]
pub(super) enum FoundFile {
    OnDisk,
    Waiting,
    Failed(String),
}

impl StageRequest {
    /// A request whose files wait.
    pub(super) fn new(files: Vec<WantedFile>, now: u64) -> Self {
        let file = |file: WantedFile| StagedFile {
            path: file.path,
            started_at: now,
            finished_at: None,
            on_disk: false,
            state: StageState::Started,
            error: None,
            lifetime: file.lifetime,
            // The initial value means that the pin has just ended.
            pinned_until: Some(now),
        };
        let (created_at, started_at) = (now, now);
        let files = files.into_iter().map(file).collect();
        StageRequest {
            id: Uuid::new_v4().to_string(),
            created_at,
            started_at,
            completed_at: None,
            files,
        }
    }

    /// The paths of the files that are not finished.
    pub(super) fn waiting(&self) -> Vec<String> {
        let waiting = self.files.iter().filter(|file| file.state == StageState::Started);
        waiting.map(|file| file.path.clone()).collect()
    }

    /// Records the results of looking at files; returns the paths of those whose pins are over. Finished files do not
    /// change: a user may have cancelled them meanwhile.
    pub(super) fn note(&mut self, found: Vec<(String, FoundFile)>, now: u64) -> Vec<String> {
        let mut over = vec![];
        let mut found: HashMap<String, FoundFile> = found.into_iter().collect();
        for file in self.files.iter_mut().filter(|file| file.state == StageState::Started) {
            match found.remove(&file.path) {
                None | Some(FoundFile::Waiting) => continue,
                Some(FoundFile::OnDisk) => {
                    (file.state, file.on_disk) = (StageState::Completed, true)
                }
                Some(FoundFile::Failed(why)) => {
                    (file.state, file.error) = (StageState::Failed, Some(why));
                    file.pinned_until = None;
                    over.push(file.path.clone());
                }
            }
            file.finished_at = Some(now);
        }
        self.complete(now);
        over
    }

    /// The files whose pins must be renewed, with the ends of the new pins: arrived files, for their whole lifetime,
    /// and waiting files, before their pins end.
    pub(super) fn extend_pins(&mut self, now: u64) -> Vec<(String, u64)> {
        let mut extended = vec![];
        for file in &mut self.files {
            let until = now.saturating_add(file.lifetime);
            let rest = file.pinned_until.map(|until| until.saturating_sub(now));
            let is_due = match file.state {
                StageState::Started => rest.is_some_and(|rest| rest <= file.lifetime / 2),
                StageState::Completed => file.finished_at == Some(now) && rest.is_some(),
                StageState::Failed | StageState::Cancelled => false,
            };
            if is_due {
                file.pinned_until = Some(until);
                extended.push((file.path.clone(), until));
            }
        }
        extended
    }

    /// Cancels unfinished files; returns the paths of those whose pins are over. `None` if a path is not part of the
    /// request; then nothing is cancelled.
    pub(super) fn cancel(&mut self, paths: &HashSet<StoragePath>, now: u64) -> Option<Vec<String>> {
        self.has_all(paths).then(|| {
            let mut over = vec![];
            for file in self.files.iter_mut().filter(|file| file.is_one_of(paths)) {
                if file.state == StageState::Started {
                    (file.state, file.finished_at) = (StageState::Cancelled, Some(now));
                    file.pinned_until = None;
                    over.push(file.path.clone());
                }
            }
            self.complete(now);
            over
        })
    }

    /// Ends pins; returns the paths of those whose pins are over. `None` if a path is not part of the request.
    pub(super) fn release(&mut self, paths: &HashSet<StoragePath>) -> Option<Vec<String>> {
        self.has_all(paths).then(|| {
            let named = self.files.iter_mut().filter(|file| file.is_one_of(paths));
            let over = named.filter_map(|file| file.pinned_until.take().map(|_| file.path.clone()));
            over.collect()
        })
    }

    /// The paths of the files whose pins were not ended.
    pub(super) fn pinned(&self) -> Vec<String> {
        let pinned = self.files.iter().filter(|file| file.pinned_until.is_some());
        pinned.map(|file| file.path.clone()).collect()
    }

    /// Whether all paths are of the request.
    fn has_all(&self, paths: &HashSet<StoragePath>) -> bool {
        let known: HashSet<_> = self.files.iter().filter_map(StagedFile::place).collect();
        paths.is_subset(&known)
    }

    fn complete(&mut self, now: u64) {
        let is_over = self.files.iter().all(|file| file.state != StageState::Started);
        self.completed_at = self.completed_at.or(is_over.then_some(now));
    }
}

impl StagedFile {
    /// The validated path, whatever spelling the client used.
    fn place(&self) -> Option<StoragePath> {
        StoragePath::new(self.path.as_bytes()).ok()
    }

    fn is_one_of(&self, paths: &HashSet<StoragePath>) -> bool {
        self.place().is_some_and(|place| paths.contains(&place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> HashSet<StoragePath> {
        names.iter().map(|name| StoragePath::new(name.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn pins_are_extended_while_files_wait_and_when_they_come() {
        let wanted = |path: &str, lifetime| WantedFile { path: path.to_owned(), lifetime };
        let mut request = StageRequest::new(vec![wanted("/a", 100), wanted("/b", 100)], 1000);
        let pin = |path: &str, until| (path.to_owned(), until);
        assert_eq!(request.extend_pins(1000), [pin("/a", 1100), pin("/b", 1100)]);
        assert_eq!(request.extend_pins(1049), []);
        assert_eq!(request.extend_pins(1050), [pin("/a", 1150), pin("/b", 1150)]);
        assert!(request.note(vec![("/a".to_owned(), FoundFile::OnDisk)], 1060).is_empty());
        assert_eq!(request.extend_pins(1060), [pin("/a", 1160)], "its lifetime begins");
        assert_eq!(request.extend_pins(1170), [pin("/b", 1270)], "it has come long ago");
        assert_eq!(request.release(&paths(&["/b", "/c"])), None);
        assert_eq!(request.release(&paths(&["//b"])), Some(vec!["/b".to_owned()]));
        assert_eq!(request.release(&paths(&["/b"])), Some(vec![]));
        request.note(vec![("/b".to_owned(), FoundFile::OnDisk)], 1180);
        assert_eq!(request.extend_pins(1180), [], "nobody wants it any more");
        assert_eq!((request.completed_at, request.pinned()), (Some(1180), vec!["/a".to_owned()]));
    }

    #[test]
    fn finished_files_do_not_change() {
        let files =
            ["/a", "/b", "/c"].map(|path| WantedFile { path: path.to_owned(), lifetime: 9 });
        let mut request = StageRequest::new(files.to_vec(), 1);
        request.extend_pins(1);
        assert_eq!(request.cancel(&paths(&["/a"]), 2), Some(vec!["/a".to_owned()]));
        let failed = FoundFile::Failed("no copy".to_owned());
        let found = vec![("/a".to_owned(), FoundFile::OnDisk), ("/b".to_owned(), failed)];
        assert_eq!(request.note(found, 3), ["/b"]);
        assert_eq!(request.cancel(&paths(&["/b", "/c"]), 4), Some(vec!["/c".to_owned()]));
        let states: Vec<_> = request.files.iter().map(|file| file.state).collect();
        assert_eq!(states, [StageState::Cancelled, StageState::Failed, StageState::Cancelled]);
        assert_eq!((request.completed_at, request.pinned().len()), (Some(4), 0));
    }
}

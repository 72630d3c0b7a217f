//! Requests to stage files, and how far they are.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::Serialize;
use uuid::Uuid;

/// Requests that are remembered, and files of all of them; the oldest request is forgotten first.
const REQUESTS_MAX: usize = 1000;
const FILES_KEPT_MAX: usize = 200_000;

/// The requests of all clients.
#[derive(Default)]
pub(super) struct StageRequests {
    requests: VecDeque<StageRequest>,
}

/// A request, in the form of the API's answer. Times are in seconds since 1970.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StageRequest {
    pub id: String,
    pub created_at: u64,
    pub started_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<u64>,
    pub files: Vec<StagedFile>,
    /// Who made it, and alone may see it.
    #[serde(skip)]
    pub user: String,
}

/// A file of a request.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StagedFile {
    pub path: String,
    pub started_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<u64>,
    pub on_disk: bool,
    pub state: StageState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How far a file is.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum StageState {
    Started,
    Completed,
    Failed,
    Cancelled,
}

/// What was found out about a file.
pub(super) enum FoundFile {
    OnDisk,
    Waiting,
    Failed(String),
}

impl StageRequests {
    /// Remembers a request; returns its id.
    pub(super) fn add(&mut self, user: &str, files: Vec<(String, FoundFile)>, now: u64) -> String {
        let id = Uuid::new_v4().to_string();
        let files = files.into_iter().map(|(path, found)| {
            let mut file = StagedFile {
                path,
                started_at: now,
                finished_at: None,
                on_disk: false,
                state: StageState::Started,
                error: None,
            };
            file.note(found, now);
            file
        });
        let mut request = StageRequest {
            id: id.clone(),
            created_at: now,
            started_at: now,
            completed_at: None,
            files: files.collect(),
            user: user.to_owned(),
        };
        request.complete(now);
        self.requests.push_back(request);
        let files = |requests: &VecDeque<StageRequest>| {
            requests.iter().map(|request| request.files.len()).sum::<usize>()
        };
        while self.requests.len() > REQUESTS_MAX || files(&self.requests) > FILES_KEPT_MAX {
            self.requests.pop_front();
        }
        id
    }

    /// A user's request.
    pub(super) fn find(&mut self, user: &str, id: &str) -> Option<&mut StageRequest> {
        self.requests.iter_mut().find(|request| request.id == id && request.user == user)
    }

    /// Forgets a user's request; false if there is none.
    pub(super) fn remove(&mut self, user: &str, id: &str) -> bool {
        let before = self.requests.len();
        self.requests.retain(|request| request.id != id || request.user != user);
        self.requests.len() < before
    }
}

impl StageRequest {
    /// The paths of the files that have not come to an end.
    pub(super) fn waiting(&self) -> Vec<String> {
        let waiting = self.files.iter().filter(|file| file.state == StageState::Started);
        waiting.map(|file| file.path.clone()).collect()
    }

    /// Notes what was found out about files.
    pub(super) fn note(&mut self, found: Vec<(String, FoundFile)>, now: u64) {
        let mut found: HashMap<String, FoundFile> = found.into_iter().collect();
        for file in &mut self.files {
            if let Some(found) = found.remove(&file.path) {
                file.note(found, now);
            }
        }
        self.complete(now);
    }

    /// Cancels files that have not come to an end. False if one is not of the request; then nothing is cancelled.
    pub(super) fn cancel(&mut self, paths: &HashSet<String>, now: u64) -> bool {
        if !self.has_all(paths) {
            return false;
        }
        let cancelled = self.files.iter_mut().filter(|file| paths.contains(&file.path));
        for file in cancelled.filter(|file| file.state == StageState::Started) {
            (file.state, file.finished_at) = (StageState::Cancelled, Some(now));
        }
        self.complete(now);
        true
    }

    /// Whether all paths are of the request.
    pub(super) fn has_all(&self, paths: &HashSet<String>) -> bool {
        let known: HashSet<&String> = self.files.iter().map(|file| &file.path).collect();
        paths.iter().all(|path| known.contains(path))
    }

    fn complete(&mut self, now: u64) {
        let is_over = self.files.iter().all(|file| file.state != StageState::Started);
        self.completed_at = self.completed_at.or(is_over.then_some(now));
    }
}

impl StagedFile {
    /// What came to an end stays as it is: somebody may have cancelled it meanwhile.
    fn note(&mut self, found: FoundFile, now: u64) {
        if self.state != StageState::Started {
            return;
        }
        match found {
            FoundFile::Waiting => return,
            FoundFile::OnDisk => (self.state, self.on_disk) = (StageState::Completed, true),
            FoundFile::Failed(why) => (self.state, self.error) = (StageState::Failed, Some(why)),
        }
        self.finished_at = Some(now);
    }
}

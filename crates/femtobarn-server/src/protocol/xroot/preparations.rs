//! Prepare requests, which are remembered so that clients can query and cancel them.

use std::collections::VecDeque;

use parking_lot::Mutex;
use uuid::Uuid;

/// Prepare requests that are remembered.
const PREPARATIONS_MAX: usize = 1024;

/// The newest [`PREPARATIONS_MAX`] prepare requests: their ids, and the paths of each.
#[derive(Default)]
pub(super) struct Preparations {
    requests: Mutex<VecDeque<(String, Vec<Vec<u8>>)>>,
}

impl Preparations {
    /// Remembers a request, and returns its id.
    pub(super) fn add(&self, paths: Vec<Vec<u8>>) -> String {
        let name = Uuid::new_v4().to_string();
        let mut requests = self.requests.lock();
        if requests.len() >= PREPARATIONS_MAX {
            requests.pop_front();
        }
        requests.push_back((name.clone(), paths));
        name
    }

    /// Forgets a request; false if it is unknown.
    pub(super) fn cancel(&self, name: &[u8]) -> bool {
        let mut requests = self.requests.lock();
        let before = requests.len();
        requests.retain(|(known, _)| known.as_bytes() != name);
        requests.len() < before
    }

    /// The paths of a request.
    pub(super) fn paths(&self, name: &[u8]) -> Option<Vec<Vec<u8>>> {
        let requests = self.requests.lock();
        let found = requests.iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, paths)| paths.clone())
    }
}

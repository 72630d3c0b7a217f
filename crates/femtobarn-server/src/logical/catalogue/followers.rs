//! The followers of a federation, which are copies at other servers that regularly ask for new rows; and the servers of
//! such copies to which readers may be redirected.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use femtobarn_catalog::{Csn, clock};
use parking_lot::Mutex;

/// A follower that has not asked for this long counts as ended.
const GONE_AFTER: Duration = Duration::from_secs(60);
/// A server that has not answered for this long gets no readers.
const SILENT_AFTER: Duration = Duration::from_secs(3);
/// Followers that are remembered at most, and bytes of their names.
const FOLLOWERS_MAX: usize = 1000;
const NAME_BYTES_MAX: usize = 1000;

/// A copy of the federation at another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFollower {
    /// The name that the follower has chosen.
    pub name: String,
    /// The newest commit that the follower had at its last question.
    pub at: Csn,
    /// The time of its last question.
    pub heard: Instant,
}

/// A server that has a copy of the federation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyServer {
    /// The address of the server, `host:port`.
    pub address: String,
    /// The newest commit that the server shows.
    pub at: Csn,
    /// When the server answered last.
    answered: Instant,
    /// Requests in progress at its last answer.
    running: u64,
    /// Clients that were redirected there since.
    sent: u64,
}

impl CopyServer {
    /// The server's load, in requests in progress.
    pub fn load(&self) -> u64 {
        self.running + self.sent
    }
}

/// All followers that have asked recently, and all servers of copies that have answered.
#[derive(Debug, Default)]
pub struct Followers {
    by_name: Mutex<BTreeMap<String, KnownFollower>>,
    servers: Mutex<BTreeMap<String, CopyServer>>,
}

impl Followers {
    /// Records that a follower has all commits up to one.
    pub fn heard_from(&self, name: &str, at: Csn) {
        let heard = clock::now();
        let mut known = self.by_name.lock();
        known.retain(|_, follower| heard.duration_since(follower.heard) < GONE_AFTER);
        let has_room = known.len() < FOLLOWERS_MAX && name.len() <= NAME_BYTES_MAX;
        if has_room || known.contains_key(name) {
            known.insert(name.to_owned(), KnownFollower { name: name.to_owned(), at, heard });
        }
    }

    /// The followers that have asked within the last minute, by name.
    pub fn all(&self) -> Vec<KnownFollower> {
        let now = clock::now();
        let known = self.by_name.lock();
        let is_there = |it: &&KnownFollower| now.duration_since(it.heard) < GONE_AFTER;
        known.values().filter(is_there).cloned().collect()
    }

    /// The servers of copies that have answered within the last seconds.
    pub fn servers(&self) -> Vec<CopyServer> {
        let now = clock::now();
        let answers = |it: &&CopyServer| now.duration_since(it.answered) < SILENT_AFTER;
        self.servers.lock().values().filter(answers).cloned().collect()
    }

    /// Records a server's answer: its newest commit, and its requests in progress; `None` if it does not answer.
    pub(in crate::logical) fn answered(&self, address: &str, answer: Option<(Csn, u64)>) {
        let mut servers = self.servers.lock();
        let Some((at, running)) = answer else {
            servers.remove(address);
            return;
        };
        let (address, answered) = (address.to_owned(), clock::now());
        let server = CopyServer { address: address.clone(), at, answered, running, sent: 0 };
        servers.insert(address, server);
    }

    /// Records that a client was redirected to a server.
    pub(in crate::logical) fn sent_to(&self, address: &str) {
        if let Some(server) = self.servers.lock().get_mut(address) {
            server.sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_a_server_is_the_reported_one_and_the_clients_sent_since() {
        let followers = Followers::default();
        followers.heard_from("copy", Csn(7));
        followers.heard_from(&"x".repeat(2000), Csn(7));
        assert_eq!(followers.all().len(), 1);
        assert!(followers.servers().is_empty());
        followers.answered("b:1095", Some((Csn(7), 3)));
        followers.sent_to("b:1095");
        assert_eq!(followers.servers()[0].load(), 4);
        followers.answered("b:1095", None);
        assert!(followers.servers().is_empty());
    }
}

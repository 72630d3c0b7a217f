//! Redirection by policy: which opens another server should answer.
//!
//! A client says in `tried` which servers it has been to; none of them is named again, so that two
//! servers that send each other clients do not do so for ever.

use crate::physical::{Opaque, StoragePath};

/// Another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// What a policy knows of this server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sessions that are there now.
    pub sessions: usize,
}

/// Who else should open a file.
pub trait Placement: Send + Sync + 'static {
    /// The server to send a client to that opens this; none: this one.
    fn elsewhere(&self, path: &StoragePath, opaque: Opaque<'_>, load: Load) -> Option<Neighbour>;
}

/// Everything is opened here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

impl Placement for Here {
    fn elsewhere(&self, _: &StoragePath, _: Opaque<'_>, _: Load) -> Option<Neighbour> {
        None
    }
}

/// Sends clients to neighbours once there are many sessions.
#[derive(Clone, Debug, Default)]
pub struct Overflow {
    /// Sessions that this server likes to have at most.
    pub sessions_max: usize,
    /// Who has the same files.
    pub neighbours: Vec<Neighbour>,
}

impl Placement for Overflow {
    fn elsewhere(&self, _: &StoragePath, opaque: Opaque<'_>, load: Load) -> Option<Neighbour> {
        match load.sessions > self.sessions_max {
            true => first_untried(&self.neighbours, opaque),
            false => None,
        }
    }
}

/// Sends clients to those who have a copy of what lies below a prefix.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    /// Prefixes such as `/store/raw`, and who has what is below them.
    pub replicas: Vec<(Vec<u8>, Vec<Neighbour>)>,
}

impl Placement for Replicas {
    fn elsewhere(&self, path: &StoragePath, opaque: Opaque<'_>, _: Load) -> Option<Neighbour> {
        let is_below = |prefix: &[u8]| {
            let rest = path.as_bytes().strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let (_, neighbours) = self.replicas.iter().find(|(prefix, _)| is_below(prefix))?;
        first_untried(neighbours, opaque)
    }
}

/// The first policy's answer; the second's where the first has none.
#[derive(Clone, Debug)]
pub struct Either<A, B>(pub A, pub B);

impl<A: Placement, B: Placement> Placement for Either<A, B> {
    fn elsewhere(&self, path: &StoragePath, opaque: Opaque<'_>, load: Load) -> Option<Neighbour> {
        self.0.elsewhere(path, opaque, load).or_else(|| self.1.elsewhere(path, opaque, load))
    }
}

fn first_untried(neighbours: &[Neighbour], opaque: Opaque<'_>) -> Option<Neighbour> {
    let tried = opaque.value_of("tried").unwrap_or_default();
    let was_tried =
        |host: &str| tried.split(|byte| *byte == b',').any(|name| name == host.as_bytes());
    neighbours.iter().find(|neighbour| !was_tried(&neighbour.host)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> StoragePath {
        StoragePath::new(text.as_bytes()).expect("a clean path")
    }

    fn neighbour(host: &str) -> Neighbour {
        Neighbour { host: host.to_owned(), port: 1094 }
    }

    #[test]
    fn a_client_is_sent_nowhere_twice() {
        let policy =
            Overflow { sessions_max: 1, neighbours: vec![neighbour("one"), neighbour("two")] };
        let elsewhere = |opaque: &[u8], sessions| {
            let found = policy.elsewhere(&path("/x"), Opaque(opaque), Load { sessions });
            found.map(|neighbour| neighbour.host)
        };
        assert_eq!(elsewhere(b"", 1), None);
        assert_eq!(elsewhere(b"", 2).as_deref(), Some("one"));
        assert_eq!(elsewhere(b"tried=one", 2).as_deref(), Some("two"));
        assert_eq!(elsewhere(b"a=b&tried=one,two", 2), None);
    }

    #[test]
    fn replicas_are_those_of_whole_names() {
        let policy = Replicas { replicas: vec![(b"/raw".to_vec(), vec![neighbour("one")])] };
        let is_elsewhere =
            |name| policy.elsewhere(&path(name), Opaque(b""), Load::default()).is_some();
        assert!(is_elsewhere("/raw") && is_elsewhere("/raw/x"));
        assert!(!is_elsewhere("/rawer"));
    }
}

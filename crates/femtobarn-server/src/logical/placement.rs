//! Policies that redirect clients which open a file to another server.
//!
//! A client lists in `tried` the servers that redirected it. None of these is chosen again, so two servers do not send
//! a client back and forth.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use crate::physical::{Opaque, StoragePath};

/// Another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Opaque information that the client adds there.
    pub opaque: String,
}

/// The properties of an open that decide about a redirect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Open sessions of this server.
    pub sessions: usize,
    /// Whether the client will write.
    pub is_writing: bool,
}

/// A policy of redirects.
pub trait Placement: Send + Sync + 'static {
    /// The server that a client which opens this path is redirected to; `None` if this server answers.
    fn redirect_target(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
        opening: Opening,
    ) -> Option<Neighbour>;

    /// Whether any client may be redirected now.
    fn may_redirect(&self) -> bool;
}

impl Placement for Arc<dyn Placement> {
    fn redirect_target(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
        opening: Opening,
    ) -> Option<Neighbour> {
        (**self).redirect_target(path, opaque, opening)
    }

    fn may_redirect(&self) -> bool {
        (**self).may_redirect()
    }
}

/// Never redirects.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysLocal;

impl Placement for AlwaysLocal {
    fn redirect_target(&self, _: &StoragePath, _: Opaque<'_>, _: Opening) -> Option<Neighbour> {
        None
    }

    fn may_redirect(&self) -> bool {
        false
    }
}

/// Redirects to neighbours while this server has many sessions.
#[derive(Clone, Debug, Default)]
pub struct Overflow {
    /// Sessions above which clients are redirected.
    pub sessions_max: usize,
    /// Servers with the same files.
    pub neighbours: Vec<Neighbour>,
}

impl Placement for Overflow {
    fn redirect_target(
        &self,
        _: &StoragePath,
        opaque: Opaque<'_>,
        opening: Opening,
    ) -> Option<Neighbour> {
        if opening.sessions > self.sessions_max {
            first_untried(&self.neighbours, opaque)
        } else {
            None
        }
    }

    fn may_redirect(&self) -> bool {
        !self.neighbours.is_empty()
    }
}

/// Redirects to servers with copies of the files below a prefix.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    /// Prefixes such as `/store/raw`, each with the servers that have copies.
    pub replicas: Vec<(Vec<u8>, Vec<Neighbour>)>,
}

impl Placement for Replicas {
    fn redirect_target(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
        _: Opening,
    ) -> Option<Neighbour> {
        let (_, neighbours) =
            self.replicas.iter().find(|(prefix, _)| is_below(path.as_bytes(), prefix))?;
        first_untried(neighbours, opaque)
    }

    fn may_redirect(&self) -> bool {
        !self.replicas.is_empty()
    }
}

/// The first policy's redirect, or else the second's.
#[derive(Clone, Debug)]
pub struct FirstOf<A, B>(pub A, pub B);

impl<A: Placement, B: Placement> Placement for FirstOf<A, B> {
    fn redirect_target(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
        opening: Opening,
    ) -> Option<Neighbour> {
        self.0
            .redirect_target(path, opaque, opening)
            .or_else(|| self.1.redirect_target(path, opaque, opening))
    }

    fn may_redirect(&self) -> bool {
        self.0.may_redirect() || self.1.may_redirect()
    }
}

fn first_untried(neighbours: &[Neighbour], opaque: Opaque<'_>) -> Option<Neighbour> {
    neighbours.iter().find(|neighbour| !was_tried(&neighbour.host, opaque)).cloned()
}

/// Whether a path is this prefix, or below it.
pub(super) fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether a client has tried a server already. Clients may have got its address from `kXR_locate`: `[::127.0.0.1]`.
pub(super) fn was_tried(host: &str, opaque: Opaque<'_>) -> bool {
    let tried = opaque.value_of("tried").unwrap_or_default();
    let is_it = |name: &[u8]| {
        let bare = name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]"));
        let bare = bare.map_or(name, |name| match name.strip_prefix(b"::") {
            Some(address) if address.contains(&b'.') => address,
            _ => name,
        });
        bare.eq_ignore_ascii_case(host.as_bytes())
    };
    tried.split(|byte| *byte == b',').any(is_it)
}

/// Of two servers that are drawn from `count`, which is not 0, the one with the lower load.
pub(super) fn less_loaded(count: u64, load: impl Fn(u64) -> u64) -> u64 {
    let first = draw() % count;
    let second = (first + 1 + draw() % (count - 1).max(1)) % count;
    if load(second) < load(first) { second } else { first }
}

/// A random number.
fn draw() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> StoragePath {
        StoragePath::new(text.as_bytes()).expect("a clean path")
    }

    fn neighbour(host: &str) -> Neighbour {
        Neighbour { host: host.to_owned(), port: 1094, opaque: String::new() }
    }

    #[test]
    fn a_client_is_not_redirected_to_a_server_it_has_tried() {
        let policy =
            Overflow { sessions_max: 1, neighbours: vec![neighbour("one"), neighbour("two")] };
        let elsewhere = |opaque: &[u8], sessions| {
            let found = policy.redirect_target(
                &path("/x"),
                Opaque(opaque),
                Opening { sessions, is_writing: false },
            );
            found.map(|neighbour| neighbour.host)
        };
        assert_eq!(elsewhere(b"", 1), None);
        assert_eq!(elsewhere(b"", 2).as_deref(), Some("one"));
        assert_eq!(elsewhere(b"tried=one", 2).as_deref(), Some("two"));
        assert_eq!(elsewhere(b"a=b&tried=one,two", 2), None);
    }

    #[test]
    fn tried_servers_are_known_by_names_and_addresses() {
        let was = |host, tried: &str| was_tried(host, Opaque(format!("tried={tried}").as_bytes()));
        assert!(was("one", "two,ONE") && !was("one", "two,none"));
        assert!(was("10.0.0.7", "[::10.0.0.7]") && was("10.0.0.7", "10.0.0.7"));
        assert!(was("2001:db8::1", "[2001:db8::1]") && was("::1", "[::1]"));
    }

    #[test]
    fn the_server_with_less_to_do_is_taken() {
        assert_eq!(less_loaded(1, |_| 7), 0);
        assert!((0..50).all(|_| less_loaded(2, |number| [9, 3][number as usize]) == 1));
        assert!((0..200).all(|_| less_loaded(3, |number| [9, 3, 5][number as usize]) != 0));
    }

    #[test]
    fn a_replica_prefix_matches_whole_names_only() {
        let policy = Replicas { replicas: vec![(b"/raw".to_vec(), vec![neighbour("one")])] };
        let is_elsewhere =
            |name| policy.redirect_target(&path(name), Opaque(b""), Opening::default()).is_some();
        assert!(is_elsewhere("/raw") && is_elsewhere("/raw/x"));
        assert!(!is_elsewhere("/rawer"));
    }
}

//! The path in a URL, and the snapshot of a federation that it names.

use http::Uri;
use nix::errno::Errno;
use percent_encoding::percent_decode;

use super::failure::HttpFailure;
use crate::physical::{Opaque, StorageError, StoragePath};
use crate::protocol::http::clients::token_of_query;

/// The first byte of the name of a snapshot in a path.
const SNAPSHOT_MARK: u8 = b'@';

/// The location that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UrlLocation {
    /// The path, without a snapshot.
    pub path: StoragePath,
    /// Whether the URL ends with a slash.
    pub is_slashed: bool,
    /// Whether the path has a commit in it, so that its bytes never change.
    pub is_immutable: bool,
    /// Whether the path is one of a federation.
    pub is_federation: bool,
    /// The path as it was sent, with one slash at its beginning.
    url_path: String,
    opaque: Vec<u8>,
    /// The opaque information of the query alone.
    query: String,
    token: Option<String>,
}

impl UrlLocation {
    /// The location of a URL: `/lhc.fed/@41/run7.root` as of commit 41, `/lhc.fed/@winter26/run7.root` as of a tag.
    ///
    /// Of the query only names with a dot and `tried` are opaque information, as in `?fb.csn=41`; other names belong to
    /// browsers, except `authz`, which has a token.
    ///
    /// # Errors
    /// `EINVAL` if the path is invalid, or the query contradicts its snapshot.
    pub(super) fn of(uri: &Uri, federations: &[String]) -> Result<Self, HttpFailure> {
        Self::of_path(uri.path(), uri.query().unwrap_or_default(), federations)
    }

    /// As [`of`](Self::of), from the parts of a URL.
    pub(super) fn of_path(
        url: &str,
        query: &str,
        federations: &[String],
    ) -> Result<Self, HttpFailure> {
        let decoded: Vec<u8> = percent_decode(url.as_bytes()).collect();
        let path = StoragePath::new(&decoded)?;
        let federation = federations.iter().find(|name| {
            let rest = path.as_bytes().strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        });
        let pairs = || xrd::opaque_pairs(query.as_bytes());
        let mut opaque: Vec<u8> = vec![];
        let is_opaque = |name: &[u8]| name.contains(&b'.') || name == b"tried";
        for (name, value) in pairs().filter(|(name, _)| is_opaque(name)) {
            opaque.extend([b"&", name, b"=", value].concat());
        }
        let opaque = opaque.get(1..).unwrap_or_default().to_vec();
        let mut location = UrlLocation {
            is_slashed: decoded.ends_with(b"/"),
            is_immutable: false,
            is_federation: federation.is_some(),
            query: String::from_utf8_lossy(&opaque).into_owned(),
            opaque,
            // Two slashes would be the beginning of another host in a link.
            url_path: format!("/{}", url.trim_start_matches('/')),
            token: token_of_query(query),
            path,
        };
        if let Some(name) = federation {
            location.take_snapshot(name.len())?;
        }
        Ok(location)
    }

    /// Takes the snapshot out of a path below a federation.
    fn take_snapshot(&mut self, federation: usize) -> Result<(), HttpFailure> {
        let (name, rest) = self.path.as_bytes().split_at(federation);
        let Some([SNAPSHOT_MARK, rest @ ..]) = rest.strip_prefix(b"/") else { return Ok(()) };
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (snapshot, below) = rest.split_at(end);
        let opaque = Opaque(&self.opaque);
        if ["fb.csn", "fb.tag", "fb.raw"].iter().any(|key| opaque.value_of(key).is_some()) {
            let what = "the path names a snapshot, and fb.csn, fb.tag and fb.raw contradict that";
            return Err(StorageError::refused(Errno::EINVAL, what).into());
        }
        let is_number = !snapshot.is_empty() && snapshot.iter().all(u8::is_ascii_digit);
        let key: &[u8] = if is_number { b"fb.csn=" } else { b"fb.tag=" };
        let value = percent_encoding::percent_encode(snapshot, percent_encoding::NON_ALPHANUMERIC);
        let separator: &[u8] = if self.opaque.is_empty() { b"" } else { b"&" };
        self.opaque.extend([separator, key, value.to_string().as_bytes()].concat());
        // A tag can be made again with another commit; a commit never changes.
        self.is_immutable = is_number;
        self.path = StoragePath::new(&[name, b"/", below].concat())?;
        Ok(())
    }

    /// The suffix of links to entries of a folder.
    pub(super) fn link_query(&self) -> String {
        if self.query.is_empty() { String::new() } else { format!("?{}", self.query) }
    }

    /// The opaque information for storages.
    pub(super) fn opaque(&self) -> Opaque<'_> {
        Opaque(&self.opaque)
    }

    /// The path as it was sent, with its snapshot.
    pub(super) fn url_path(&self) -> &str {
        &self.url_path
    }

    /// The bearer token in the query.
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(path: &str, query: &str) -> UrlLocation {
        UrlLocation::of_path(path, query, &["/lhc.fed".to_owned()]).expect("a location")
    }

    #[test]
    fn snapshots_are_taken_out_of_paths_of_federations_alone() {
        let found = location("/lhc.fed/@41/run7.root", "stamp=17&authz=Bearer%20abc");
        assert_eq!(found.path.to_string(), "/lhc.fed/run7.root");
        assert_eq!(found.opaque().0, b"fb.csn=41");
        assert!(found.is_immutable && found.is_federation);
        assert_eq!(found.token(), Some("abc"));
        let found = location("/lhc.fed/@winter%2026", "oss.x=1");
        assert_eq!(found.path.to_string(), "/lhc.fed");
        assert_eq!(found.opaque().0, b"oss.x=1&fb.tag=winter%2026");
        assert!(!found.is_immutable);
        let found = location("/lhc.federation/@41/a/", "");
        assert_eq!(found.path.to_string(), "/lhc.federation/@41/a");
        assert!(!found.is_federation && found.is_slashed);
        for query in ["fb.csn=3", "fb.tag=x", "fb.raw=1"] {
            let twice = UrlLocation::of_path("/lhc.fed/@41/a", query, &["/lhc.fed".to_owned()]);
            assert!(twice.is_err(), "{query}");
        }
        assert_eq!(location("//data//x", "").url_path(), "/data//x");
    }

    #[test]
    fn paths_that_leave_the_top_are_refused() {
        for path in ["/a/../b", "/a/%2e%2e/b", "/a%00b", "/@/%2E%2E"] {
            assert!(UrlLocation::of_path(path, "", &[]).is_err(), "{path}");
        }
    }
}

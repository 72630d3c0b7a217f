//! Validated paths, and the opaque information that comes with them.

use std::fmt;

use nix::errno::Errno;

use super::error::{StorageError, StorageResult};

/// Bytes of one name in a path.
const NAME_BYTES_MAX: usize = 255;

/// A path below a storage's top: absolute, without `.`, `..`, empty names and zero bytes. Otherwise it has the bytes
/// that the client sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoragePath(Vec<u8>);

/// Opaque information of a request: `key=value` pairs joined by `&`, not parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opaque<'a>(pub &'a [u8]);

impl StoragePath {
    /// Validates a path. Empty names and `.` are removed.
    ///
    /// # Errors
    /// `EINVAL` if the path is not absolute or has a zero byte; `EACCES` if it has a `..`; `ENAMETOOLONG` if a name
    /// has more than 255 bytes.
    pub fn new(path: &[u8]) -> StorageResult<Self> {
        let shown = String::from_utf8_lossy(path);
        if path.first() != Some(&b'/') || path.contains(&0) {
            return Err(StorageError::refused(
                Errno::EINVAL,
                format!("{shown:?} is not an absolute path"),
            ));
        }
        let mut clean = Vec::with_capacity(path.len());
        for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(name, [] | [b'.'])) {
            if name == b".." {
                let what = format!("invalid path {shown:?}: '..' is not allowed");
                return Err(StorageError::refused(Errno::EACCES, what));
            }
            if name.len() > NAME_BYTES_MAX {
                let what = format!("a name in the path has more than {NAME_BYTES_MAX} bytes");
                return Err(StorageError::refused(Errno::ENAMETOOLONG, what));
            }
            clean.push(b'/');
            clean.extend_from_slice(name);
        }
        if clean.is_empty() {
            clean.push(b'/');
        }
        Ok(StoragePath(clean))
    }

    /// The storage's top, `/`.
    pub(super) fn top() -> Self {
        StoragePath(vec![b'/'])
    }

    /// A path from bytes that are known to be valid, as when they are composed of other paths.
    #[cfg(feature = "testing")]
    pub(super) fn from_clean(bytes: Vec<u8>) -> Self {
        StoragePath(bytes)
    }

    /// The bytes, beginning with `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The parent folder, and the path's name in it; `None` for the top.
    pub fn parent(&self) -> Option<(StoragePath, &[u8])> {
        let slash = self.0.iter().rposition(|byte| *byte == b'/')?;
        let name = &self.0[slash + 1..];
        (!name.is_empty()).then(|| (StoragePath(self.0[..slash.max(1)].to_vec()), name))
    }

    /// All ancestors below the top, the outermost first.
    pub fn folders_above(&self) -> impl Iterator<Item = StoragePath> + '_ {
        let slashes = self.0.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        slashes.map(|(slash, _)| StoragePath(self.0[..slash].to_vec()))
    }

    /// The path of a name in this folder.
    ///
    /// # Errors
    /// `EINVAL` if the name is empty, `.` or `..`, or has a slash; otherwise those of [`StoragePath::new`].
    pub fn join(&self, name: &[u8]) -> StorageResult<Self> {
        if matches!(name, [] | [b'.'] | [b'.', b'.']) || name.contains(&b'/') {
            let what = format!("invalid name {:?}", String::from_utf8_lossy(name));
            return Err(StorageError::refused(Errno::EINVAL, what));
        }
        StoragePath::new(&[&self.0, b"/".as_slice(), name].concat())
    }
}

impl fmt::Display for StoragePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// The keys that select the content of a file.
const SELECTING: [&[u8]; 3] = [b"fb.csn", b"fb.tag", b"fb.raw"];
/// The hints with the urgency of a request.
const URGENT: [&[u8]; 2] = [b"fb.priority", b"fb.deadline"];

impl Opaque<'_> {
    /// The pairs that select the content of a file, as a suffix of a path: `?fb.csn=41`, or nothing.
    pub fn selection(&self) -> Vec<u8> {
        self.only(&SELECTING)
    }

    /// The selection with the hints of urgency. No other pair is sent to another server: there may be a token.
    pub(super) fn selection_and_urgency(&self) -> Vec<u8> {
        self.only(&[SELECTING.as_slice(), &URGENT].concat())
    }

    fn only(&self, keys: &[&[u8]]) -> Vec<u8> {
        let mut text = Vec::new();
        for (key, value) in xrd::opaque_pairs(self.0).filter(|(key, _)| keys.contains(key)) {
            let parts: [&[u8]; 4] = [if text.is_empty() { b"?" } else { b"&" }, key, b"=", value];
            text.extend(parts.concat());
        }
        text
    }

    /// The first value of a key.
    pub fn value_of(&self, key: &str) -> Option<&[u8]> {
        xrd::opaque_pairs(self.0).find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| value)
    }
}

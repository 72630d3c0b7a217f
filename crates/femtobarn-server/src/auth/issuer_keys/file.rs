//! Keys in a file, which is read when the server starts and again whenever it changes.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jsonwebtoken::jwk::Jwk;
use parking_lot::Mutex;

use super::key_set::{WantedKey, parsed};

/// The file with the keys of an issuer, and the keys that were last read from it.
pub(in crate::auth) struct KeyFile {
    issuer: String,
    path: PathBuf,
    keys: Mutex<KeysOfFile>,
}

/// Keys, and when their file was modified.
pub(in crate::auth) struct KeysOfFile {
    set: Vec<Jwk>,
    written: Option<SystemTime>,
}

impl KeyFile {
    /// Reads the keys.
    ///
    /// # Errors
    /// A text that names the file, if it cannot be read or has no keys.
    pub(super) fn open(issuer: &str, path: &Path) -> Result<Self, String> {
        let (issuer, path) = (issuer.to_owned(), path.to_owned());
        let empty = KeysOfFile { set: vec![], written: None };
        let file = KeyFile { issuer, path, keys: Mutex::new(empty) };
        let keys = file.read()?;
        file.replace(keys);
        Ok(file)
    }

    /// A key from the present file. While the file cannot be read, as when it is being replaced, the old keys stay in
    /// use.
    pub(super) fn find(&self, wanted: &WantedKey<'_>) -> Result<Jwk, String> {
        let mut keys = self.keys.lock();
        let written = self.path.metadata().and_then(|metadata| metadata.modified()).ok();
        if written.is_none() || written != keys.written {
            match self.read() {
                Ok(new) => *keys = new,
                Err(what) => tracing::warn!("{what}"),
            }
        }
        wanted.among(&keys.set).cloned().ok_or_else(|| wanted.unknown())
    }

    /// Reads the file, without using its keys.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub(in crate::auth) fn read(&self) -> Result<KeysOfFile, String> {
        let (issuer, path) = (&self.issuer, self.path.display());
        let cannot = |what: String| format!("cannot read the keys of {issuer} in {path}: {what}");
        let read = || -> std::io::Result<_> {
            Ok((self.path.metadata()?.modified().ok(), std::fs::read(&self.path)?))
        };
        let (written, text) = read().map_err(|error| cannot(error.to_string()))?;
        Ok(KeysOfFile { set: parsed(&text).map_err(cannot)?, written })
    }

    /// Uses other keys from now on.
    pub(in crate::auth) fn replace(&self, keys: KeysOfFile) {
        *self.keys.lock() = keys;
    }
}

//! [`Store`]: what keeps copies of databases.

use std::fmt::Debug;
use std::path::Path;

use crate::error::{Error, Result};

/// Is called with the bytes that were moved so far, at least every 64 MiB or second; stops the operation by returning
/// false.
pub type ByteWatch<'a> = dyn FnMut(u64) -> bool + 'a;

/// The beginning of names of files that are being written, in stores that are folders.
pub(super) const PART: &str = ".part-";
/// The file that shows that a folder is a store: the folder of a disk that is not mounted has none. It is made before
/// the first copy, and never again.
pub(super) const MARK: &str = ".femtobarn-store";
/// What a mark tells those who find it.
pub(super) const MARK_TEXT: &[u8] = b"Copies of databases of a Femtobarn federation.\n";
/// What an empty disk has.
pub(super) const LOST_AND_FOUND: &str = "lost+found";

/// What a store says about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// Its bytes.
    pub size: u64,
    /// Its checksum, such as `adler32:0a1b2c3d`, if the store tells one of the stored bytes.
    pub checksum: Option<String>,
    /// The tape that it is on, and its place there, if it is on one.
    pub tape: Option<(String, u64)>,
    /// Whether the store has to bring it online before it can be read, as far as it tells.
    pub is_offline: bool,
}

/// A range of an object that is to be read.
#[derive(Debug)]
pub struct ObjectRange<'a> {
    /// Where it begins.
    pub offset: u64,
    /// What is filled.
    pub buffer: &'a mut [u8],
}

/// A store of objects. Several threads may use it at once; every method may block.
///
/// 1. An object is there as a whole or not at all.
/// 2. When [`put`](Store::put) has returned, the object survives a loss of power at the store.
/// 3. A store may lie: callers compare sizes and checksums.
///
/// # Errors
/// Every method fails with `NotBefore` if the store says when it can do it, with `Unavailable` if it does not
/// answer, `Denied` if it refuses, `Io` if a file cannot be read or written, `Stopped` by the watch.
pub trait Store: Debug + Send + Sync {
    /// Where it is, for people: `folder /mnt/tape`.
    fn place(&self) -> String;

    /// Prepares a store that has no objects of this federation yet. The watch is called with 0.
    ///
    /// # Errors
    /// `Unavailable` if it cannot be told from one whose disk is not mounted.
    fn begin(&self, _watch: &mut ByteWatch<'_>) -> Result<()> {
        Ok(())
    }

    /// Stores a file's bytes as an object; an object of that name is replaced. Returns the checksum of the bytes that
    /// were sent, if they passed through here.
    ///
    /// # Errors
    /// `Full` if the store is.
    fn put(&self, key: &str, from: &Path, watch: &mut ByteWatch<'_>) -> Result<Option<String>>;

    /// Writes an object to a new file. The file is not synced; after an error it is removed.
    ///
    /// # Errors
    /// `NoObject` if there is none of that name; `Full` if the disk is.
    fn get(&self, key: &str, to: &Path, watch: &mut ByteWatch<'_>) -> Result<()>;

    /// Fills ranges of an object.
    ///
    /// # Errors
    /// `NoObject` if there is none of that name; `Corrupt` if it ends before a range is full; `Invalid` if the store has
    /// only whole objects.
    fn read(&self, key: &str, ranges: &mut [ObjectRange<'_>]) -> Result<()>;

    /// What the store says about an object.
    ///
    /// # Errors
    /// `NoObject` if there is none of that name.
    fn stat(&self, key: &str) -> Result<StoredState>;

    /// As [`stat`](Store::stat), with the checksum that the store can tell, even if it reads the object for it; but not
    /// if the object has another size than it should have. The watch is called with 0.
    ///
    /// # Errors
    /// Those of [`stat`](Store::stat).
    fn examine(&self, key: &str, _size: u64, _watch: &mut ByteWatch<'_>) -> Result<StoredState> {
        self.stat(key)
    }

    /// Removes an object, if there is one. The watch is called with 0.
    ///
    /// # Errors
    /// As above.
    fn remove(&self, key: &str, watch: &mut ByteWatch<'_>) -> Result<()>;

    /// The names and sizes of all objects whose names begin with a prefix, sorted.
    ///
    /// # Errors
    /// `Invalid` if the store cannot list.
    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>>;
}

/// The error of an object that does not exist.
pub(super) fn no_object(store: &dyn Store, key: &str) -> Error {
    Error::NoObject { what: format!("{} has no object {key}", store.place()) }
}

/// The error of a folder that is not there, or is not the store. The hint says what to look at.
pub(super) fn not_mounted(store: &dyn Store, hint: &str) -> Error {
    let what =
        format!("{} is not there or has no file {MARK}, which a store has; {hint}", store.place());
    Error::Unavailable { what }
}

/// The error of an object that ends too early.
pub(super) fn too_short(store: &dyn Store, key: &str, end: u64) -> Error {
    let what = format!("{} has fewer than {end} bytes of {key}", store.place());
    Error::Corrupt { what }
}

/// Checks an object's name: parts of letters, digits, `.`, `_` and `-`, separated by `/`.
pub(super) fn check_key(key: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_good =
        |part: &str| !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_plain);
    if key.split('/').all(is_good) {
        return Ok(());
    }
    Err(Error::Invalid {
        what: format!(
            "invalid object name {key:?}: its parts must be letters, digits, '.', '_' and '-', without '.' \
             in front"
        ),
    })
}

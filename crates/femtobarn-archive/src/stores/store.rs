//! [`Store`]: the interface to a place that keeps copies of databases.

use std::fmt::Debug;
use std::path::Path;

use crate::error::{Error, Result};

/// Called with the number of bytes moved so far, at least every 64 MiB or second; stops the operation by returning
/// false.
pub type ByteWatch<'a> = dyn FnMut(u64) -> bool + 'a;

/// The prefix of names of files that are being written, in stores that are folders.
pub(super) const PART: &str = ".part-";
/// The file that marks a folder as a store: the folder of an unmounted disk has none. It is made before the first copy,
/// and never again.
pub(super) const MARK: &str = ".femtobarn-store";
/// The content of a mark, for people who find it.
pub(super) const MARK_TEXT: &[u8] = b"Copies of databases of a Femtobarn federation.\n";
/// A folder that every empty disk may have.
pub(super) const LOST_AND_FOUND: &str = "lost+found";

/// A store's answer about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// Its bytes.
    pub size: u64,
    /// Its checksum, such as `adler32:0a1b2c3d`, if the store reports one of the stored bytes.
    pub checksum: Option<String>,
    /// Its tape, and its position there, if it is on one.
    pub tape: Option<(String, u64)>,
    /// Whether the store must bring it online before it can be read, as far as it reports.
    pub is_offline: bool,
}

/// A range of an object that is to be read.
#[derive(Debug)]
pub struct ObjectRange<'a> {
    /// Where it begins.
    pub offset: u64,
    /// The buffer to fill.
    pub buffer: &'a mut [u8],
}

/// A store of objects. Several threads may use it at once; every method may block.
///
/// 1. An object exists as a whole or not at all.
/// 2. When [`put`](Store::put) has returned, the object survives a loss of power at the store.
/// 3. A store's answers may be wrong: callers compare sizes and checksums.
///
/// # Errors
/// Every method fails with `NotBefore` if the store announces when it can do it, `Unavailable` if it does not answer,
/// `Denied` if it refuses, `Io` if a file cannot be read or written, `Stopped` by the watch.
pub trait Store: Debug + Send + Sync {
    /// Its place, for people: `folder /mnt/tape`.
    fn place(&self) -> String;

    /// Prepares a store that has no objects of this federation yet. The watch is called with 0.
    ///
    /// # Errors
    /// `Unavailable` if it cannot be distinguished from a store whose disk is not mounted.
    fn begin(&self, _watch: &mut ByteWatch<'_>) -> Result<()> {
        Ok(())
    }

    /// Stores a file's bytes as an object, and replaces an object of that name. Returns the checksum of the sent bytes,
    /// if they passed through this process.
    ///
    /// # Errors
    /// `Full` if the store is full.
    fn put(&self, key: &str, from: &Path, watch: &mut ByteWatch<'_>) -> Result<Option<String>>;

    /// Writes an object to a new file. The file is not synced; after an error it is removed.
    ///
    /// # Errors
    /// `NoObject` if no object has that name; `Full` if the disk is full.
    fn get(&self, key: &str, to: &Path, watch: &mut ByteWatch<'_>) -> Result<()>;

    /// Fills ranges of an object.
    ///
    /// # Errors
    /// `NoObject` if no object has that name; `Corrupt` if it ends before a range is full; `Invalid` if the store has
    /// only whole objects.
    fn read(&self, key: &str, ranges: &mut [ObjectRange<'_>]) -> Result<()>;

    /// The store's answer about an object.
    ///
    /// # Errors
    /// `NoObject` if no object has that name.
    fn stat(&self, key: &str) -> Result<StoredState>;

    /// Like [`stat`](Store::stat), with the checksum that the store can report, even if it must read the object to
    /// compute it; but not if the object's size differs from `size`. The watch is called with 0.
    ///
    /// # Errors
    /// The errors of [`stat`](Store::stat).
    fn examine(&self, key: &str, _size: u64, _watch: &mut ByteWatch<'_>) -> Result<StoredState> {
        self.stat(key)
    }

    /// Removes an object, if it exists. The watch is called with 0.
    ///
    /// # Errors
    /// The errors of every method.
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

/// The error for a folder that does not exist, or is not the store. The hint says what to check.
pub(super) fn not_mounted(store: &dyn Store, hint: &str) -> Error {
    let what = format!(
        "{} does not exist or lacks the file {MARK}, which marks a store; {hint}",
        store.place()
    );
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

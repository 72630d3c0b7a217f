//! Checksums of whole files, cached until the file changes.
//!
//! The computation for a large file stops at the next piece when its client has disconnected ([`CancelGuard`]).

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use md5::{Digest, Md5};
use nix::errno::Errno;
use quick_cache::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::files::SharedFile;
use crate::physical::{Metadata, StorageError, StoragePath, StorageResult, StoredFile};

/// Checksums that are cached.
const KEPT_MAX: usize = 16_384;

/// Checksums that are computed at the same time.
const COMPUTED_MAX: usize = 2;

/// Bytes of one read.
const PIECE_BYTES: usize = 256 * 1024;

/// Bytes that are announced before they are read, in a file on another machine.
const AHEAD_BYTES: u64 = 8 << 20;

/// A checksum algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// Adler-32 (RFC 1950).
    Adler32,
    /// CRC-32C (RFC 7143).
    Crc32c,
    /// CRC-32 of `cksum` (POSIX), with the length appended to the data.
    Crc32,
    /// CRC-32 of zlib (RFC 1952), written with its lowest byte first, as XRootD does.
    Zcrc32,
    /// MD5 (RFC 1321).
    Md5,
}

impl ChecksumKind {
    /// All kinds; the first is the default.
    pub const ALL: [ChecksumKind; 5] = [
        ChecksumKind::Adler32,
        ChecksumKind::Crc32c,
        ChecksumKind::Crc32,
        ChecksumKind::Zcrc32,
        ChecksumKind::Md5,
    ];

    /// The name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            ChecksumKind::Adler32 => "adler32",
            ChecksumKind::Crc32c => "crc32c",
            ChecksumKind::Crc32 => "crc32",
            ChecksumKind::Zcrc32 => "zcrc32",
            ChecksumKind::Md5 => "md5",
        }
    }

    /// The kind of this name, ignoring case; `default` is the first one.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let is_called = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
        if is_called("default") {
            Some(Self::ALL[0])
        } else {
            Self::ALL.into_iter().find(|kind| is_called(kind.name()))
        }
    }

    /// The digest of a file in hexadecimal digits. Reads the whole file, so it may block for long.
    ///
    /// # Errors
    /// `ECANCELED` if the request was cancelled; otherwise those of reading the file.
    pub fn compute(self, file: &dyn StoredFile, cancelled: &CancelSignal) -> StorageResult<String> {
        let mut running = ChecksumState::new(self);
        let mut buffer = vec![0; PIECE_BYTES];
        let mut offset = 0;
        loop {
            if cancelled.is_cancelled() {
                let what = "the client no longer waits for the checksum";
                return Err(StorageError::refused(Errno::ECANCELED, what));
            }
            if file.is_remote() {
                file.will_need(offset, AHEAD_BYTES);
            }
            let count = file.read_at(offset, &mut buffer)?;
            running.add(&buffer[..count]);
            offset += count as u64;
            if count < buffer.len() {
                return Ok(running.digest());
            }
        }
    }
}

/// Cancels a checksum when it is dropped.
#[derive(Default)]
pub struct CancelGuard(Arc<()>);

/// Shows a computation whether its [`CancelGuard`] was dropped.
pub struct CancelSignal(Weak<()>);

impl CancelGuard {
    /// The signal of this guard.
    pub fn signal(&self) -> CancelSignal {
        CancelSignal(Arc::downgrade(&self.0))
    }
}

impl CancelSignal {
    fn is_cancelled(&self) -> bool {
        self.0.strong_count() == 0
    }
}

enum ChecksumState {
    Adler32(simd_adler32::Adler32),
    Crc32c(u32),
    Crc32(PosixCrc),
    Zcrc32(crc32fast::Hasher),
    Md5(Md5),
}

impl ChecksumState {
    fn new(kind: ChecksumKind) -> Self {
        match kind {
            ChecksumKind::Adler32 => ChecksumState::Adler32(simd_adler32::Adler32::new()),
            ChecksumKind::Crc32c => ChecksumState::Crc32c(0),
            ChecksumKind::Crc32 => ChecksumState::Crc32(PosixCrc::new()),
            ChecksumKind::Zcrc32 => ChecksumState::Zcrc32(crc32fast::Hasher::new()),
            ChecksumKind::Md5 => ChecksumState::Md5(Md5::new()),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        match self {
            ChecksumState::Adler32(state) => state.write(bytes),
            ChecksumState::Crc32c(state) => *state = crc32c::crc32c_append(*state, bytes),
            ChecksumState::Crc32(state) => state.add(bytes),
            ChecksumState::Zcrc32(state) => state.update(bytes),
            ChecksumState::Md5(state) => state.update(bytes),
        }
    }

    fn digest(self) -> String {
        match self {
            ChecksumState::Adler32(state) => format!("{:08x}", state.finish()),
            ChecksumState::Crc32c(state) => format!("{state:08x}"),
            ChecksumState::Crc32(state) => format!("{:08x}", state.finish()),
            ChecksumState::Zcrc32(state) => format!("{:08x}", state.finalize().swap_bytes()),
            ChecksumState::Md5(state) => {
                state.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }
    }
}

/// The checksum of `cksum` (POSIX), computed with zlib's: the polynomial is the same, but the bits of each byte are
/// reversed, the initial value is 0, and the length follows the data.
struct PosixCrc {
    state: crc32fast::Hasher,
    length: u64,
    reversed: Vec<u8>,
}

impl PosixCrc {
    fn new() -> Self {
        // zlib's implementation stores the complement of its state.
        let state = crc32fast::Hasher::new_with_initial(u32::MAX);
        PosixCrc { state, length: 0, reversed: Vec::new() }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.add_reversed(bytes);
    }

    fn add_reversed(&mut self, bytes: &[u8]) {
        self.reversed.clear();
        self.reversed.extend(bytes.iter().map(|byte| byte.reverse_bits()));
        self.state.update(&self.reversed);
    }

    fn finish(mut self) -> u32 {
        let bytes = self.length.to_le_bytes();
        let count = bytes.len() - (self.length.leading_zeros() / 8) as usize;
        self.add_reversed(&bytes[..count]);
        self.state.finalize().reverse_bits()
    }
}

/// A version of a file and an algorithm: path, id, size, time of modification, kind.
type ChecksumKey = (StoragePath, u64, u64, SystemTime, ChecksumKind);

/// Computed checksums, by the version of the file.
pub struct Checksums {
    kept: Option<Cache<ChecksumKey, String>>,
    /// Limits concurrent computations, so that long ones do not take all blocking threads.
    turns: Arc<Semaphore>,
}

impl Checksums {
    /// An empty cache, or no cache if `keeps` is false.
    pub fn new(keeps: bool) -> Self {
        Checksums {
            kept: keeps.then(|| Cache::new(KEPT_MAX)),
            turns: Arc::new(Semaphore::new(COMPUTED_MAX)),
        }
    }

    /// A turn to compute a checksum, which ends when it is dropped.
    pub async fn turn(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.turns).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// The digest of an open file, from the cache or computed. May block for long.
    ///
    /// # Errors
    /// As [`ChecksumKind::compute`].
    pub fn of_file(
        &self,
        path: &StoragePath,
        (file, before): (&SharedFile, &Metadata),
        kind: ChecksumKind,
        cancelled: &CancelSignal,
    ) -> StorageResult<String> {
        if let Some(digest) = self.known(path, before, kind) {
            return Ok(digest);
        }
        let interface = file.interface()?;
        if let Some(digest) = interface.checksum(kind.name()) {
            return Ok(digest);
        }
        let digest = kind.compute(&*interface, cancelled)?;
        self.insert(path, (before, &interface.metadata()?), kind, &digest);
        Ok(digest)
    }

    /// The cached digest.
    pub fn known(
        &self,
        path: &StoragePath,
        metadata: &Metadata,
        kind: ChecksumKind,
    ) -> Option<String> {
        let key = (path.clone(), metadata.id, metadata.size, metadata.modified, kind);
        self.kept.as_ref()?.get(&key)
    }

    /// Caches a digest, unless the file's metadata differ `before` and `after` its computation: the file was changed
    /// meanwhile, and the digest is of neither version.
    fn insert(
        &self,
        path: &StoragePath,
        (before, after): (&Metadata, &Metadata),
        kind: ChecksumKind,
        digest: &str,
    ) {
        let is_same =
            (before.id, before.size, before.modified) == (after.id, after.size, after.modified);
        if let (Some(kept), true) = (&self.kept, is_same) {
            let key = (path.clone(), after.id, after.size, after.modified, kind);
            kept.insert(key, digest.to_owned());
        }
    }
}

//! Checksums of whole files, kept until the file changes.
//!
//! One that nobody waits for any more ends after the piece that it reads: a file may be huge, and its client gone.

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use md5::{Digest, Md5};
use nix::errno::Errno;
use quick_cache::sync::Cache;

use crate::physical::{Metadata, StorageError, StoragePath, StorageResult, StoredFile};

/// Checksums that are kept.
const KEPT_MAX: usize = 16_384;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 * 1024;

/// How a checksum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// Adler-32 (RFC 1950).
    Adler32,
    /// CRC-32C (RFC 7143).
    Crc32c,
    /// CRC-32 with the length behind the data, as `cksum` has it (POSIX).
    Crc32,
    /// CRC-32 as zlib has it (RFC 1952), its bytes from the lowest on, as XRootD tells it.
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

    /// The name by which clients ask for it.
    pub fn name(self) -> &'static str {
        match self {
            ChecksumKind::Adler32 => "adler32",
            ChecksumKind::Crc32c => "crc32c",
            ChecksumKind::Crc32 => "crc32",
            ChecksumKind::Zcrc32 => "zcrc32",
            ChecksumKind::Md5 => "md5",
        }
    }

    /// The kind of this name, in letters of any case; `default` is the first one.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let is_called = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
        match is_called("default") {
            true => Some(Self::ALL[0]),
            false => Self::ALL.into_iter().find(|kind| is_called(kind.name())),
        }
    }

    /// The digest of a file in hexadecimal digits. Reads all of it, as long as somebody waits: may block
    /// for long.
    ///
    /// # Errors
    /// The storage's; `ECANCELED` if nobody waits any more.
    pub fn compute(self, file: &dyn StoredFile, wish: &Wish) -> StorageResult<String> {
        let mut running = Running::new(self);
        let mut buffer = vec![0; PIECE_BYTES];
        let mut offset = 0;
        loop {
            if !wish.lasts() {
                let what = "nobody waits for the checksum any more";
                return Err(StorageError::refused(Errno::ECANCELED, what));
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

/// Somebody who waits for a checksum; once it is dropped, nobody does.
#[derive(Default)]
pub struct Waiter(Arc<()>);

/// What a waiter wants done, for as long as it waits.
pub struct Wish(Weak<()>);

impl Waiter {
    /// What it waits for.
    pub fn wish(&self) -> Wish {
        Wish(Arc::downgrade(&self.0))
    }
}

impl Wish {
    fn lasts(&self) -> bool {
        self.0.strong_count() > 0
    }
}

enum Running {
    Adler32(simd_adler32::Adler32),
    Crc32c(u32),
    Crc32(PosixCrc),
    Zcrc32(crc32fast::Hasher),
    Md5(Md5),
}

impl Running {
    fn new(kind: ChecksumKind) -> Self {
        match kind {
            ChecksumKind::Adler32 => Running::Adler32(simd_adler32::Adler32::new()),
            ChecksumKind::Crc32c => Running::Crc32c(0),
            ChecksumKind::Crc32 => Running::Crc32(PosixCrc::new()),
            ChecksumKind::Zcrc32 => Running::Zcrc32(crc32fast::Hasher::new()),
            ChecksumKind::Md5 => Running::Md5(Md5::new()),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        match self {
            Running::Adler32(state) => state.write(bytes),
            Running::Crc32c(state) => *state = crc32c::crc32c_append(*state, bytes),
            Running::Crc32(state) => state.add(bytes),
            Running::Zcrc32(state) => state.update(bytes),
            Running::Md5(state) => state.update(bytes),
        }
    }

    fn digest(self) -> String {
        match self {
            Running::Adler32(state) => format!("{:08x}", state.finish()),
            Running::Crc32c(state) => format!("{state:08x}"),
            Running::Crc32(state) => format!("{:08x}", state.finish()),
            Running::Zcrc32(state) => format!("{:08x}", state.finalize().swap_bytes()),
            Running::Md5(state) => {
                state.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }
    }
}

/// The checksum of `cksum` (POSIX), by the one of zlib: the same polynomial, but the bits of each byte come
/// the other way round, it begins with 0, and the length follows the data.
struct PosixCrc {
    state: crc32fast::Hasher,
    length: u64,
    reversed: Vec<u8>,
}

impl PosixCrc {
    fn new() -> Self {
        // zlib's has the complement of its state.
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

/// A file as it was, and a kind of checksum: path, id, size, time of change.
type Known = (StoragePath, u64, u64, SystemTime, ChecksumKind);

/// Checksums that were computed, by what the file was then.
pub struct Checksums {
    kept: Option<Cache<Known, String>>,
}

impl Checksums {
    /// With none computed yet.
    pub fn new(keeps: bool) -> Self {
        Checksums { kept: keeps.then(|| Cache::new(KEPT_MAX)) }
    }

    /// The digest, if it was computed before.
    pub fn known(
        &self,
        path: &StoragePath,
        metadata: &Metadata,
        kind: ChecksumKind,
    ) -> Option<String> {
        let key = (path.clone(), metadata.id, metadata.size, metadata.modified, kind);
        self.kept.as_ref()?.get(&key)
    }

    /// Keeps a digest. `before` and `after` are what was known of the file around its computing: if it
    /// changed meanwhile, nobody may take the digest for that of what is there now.
    pub fn keep(
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

//! Every maximum of this crate, with its unit.
//!
//! The maxima marked *protocol* are fixed by the protocol's binary definitions, and other implementations rely on
//! them. The ones marked *ours* bound the memory that the other side can make this one allocate.

use crate::codes::RequestCode;

/// Segments of one readv or writev request (protocol: `maxRvecsz`, `maxWvecsz`).
pub const SEGMENTS_MAX: usize = 1024;

/// Bytes of data in one segment of a readv request that every server allows (protocol: `maxRVdsz`).
/// A server may announce more by `query config readv_ior_max`.
pub const SEGMENT_DATA_BYTES: u32 = 2_097_136;

/// Bytes of data of one writev request (ours): [`SEGMENTS_MAX`] segments of 2 MiB, which other servers
/// accept, too.
pub const WRITE_V_DATA_BYTES_MAX: usize = SEGMENTS_MAX << 21;

/// Ranges of one clone request (protocol: `maxClonesz`).
pub const CLONE_RANGES_MAX: usize = 1024;

/// Attributes of one fattr request (protocol: `kXR_faMaxVars`).
pub const ATTRIBUTES_MAX: usize = 16;

/// Attributes in the answer to a listing (this crate's limit).
pub const ATTRIBUTES_LISTED_MAX: usize = 65_536;

/// Bytes of an attribute's name (protocol: `kXR_faMaxNlen`).
pub const ATTRIBUTE_NAME_BYTES_MAX: usize = 248;

/// Bytes of an attribute's value (protocol: `kXR_faMaxVlen`).
pub const ATTRIBUTE_VALUE_BYTES_MAX: usize = 65_536;

/// Pages with wrong checksums that one pgwrite may have (protocol: `kXR_pgMaxEpr`).
pub const BAD_PAGES_PER_WRITE_MAX: usize = 128;

/// Pages with wrong checksums that one open file may have (protocol: `kXR_pgMaxEos`).
pub const BAD_PAGES_PER_FILE_MAX: usize = 256;

/// Streams bound to a session beside its first connection (protocol).
pub const BOUND_STREAMS_MAX: u8 = 15;

/// Bytes of one location: a path and its opaque information (ours).
pub const LOCATION_BYTES_MAX: usize = 32 * 1024;

/// Locations of one prepare or statx request (ours).
pub const LOCATIONS_MAX: usize = 8192;

/// Bytes of the body of most requests (ours); see [`request_body_bytes_max`].
pub const REQUEST_BODY_BYTES_MAX: usize = 64 * 1024;

/// Bytes of the body of a prepare or statx request, which hold many locations (ours).
pub const LIST_BODY_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of the body of a fattr request (from the protocol's limits of its parts).
pub const ATTRIBUTES_BODY_BYTES_MAX: usize = LOCATION_BYTES_MAX
    + 1
    + ATTRIBUTES_MAX * (2 + ATTRIBUTE_NAME_BYTES_MAX + 1 + 4 + ATTRIBUTE_VALUE_BYTES_MAX);

/// Bytes of a too long body that are skipped, so that the request can be rejected and the connection kept (ours). A
/// longer body loses the connection.
pub const SKIPPED_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of one response that a client gathers by default (ours). Servers usually split answers of more than about
/// 2 MiB, but need not.
pub const RESPONSE_BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of the partial answers on one connection by default (ours).
pub const JOINED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Servers in the answer to a locate (ours).
pub const LOCATED_SERVERS_MAX: usize = 65_536;

/// Entries of one directory list (ours).
pub const DIRECTORY_ENTRIES_MAX: usize = 1_000_000;

/// The maximum body of a request in bytes. The data of write, pgwrite and writev are not gathered, and are limited only
/// by their 31-bit lengths.
pub fn request_body_bytes_max(code: RequestCode) -> usize {
    match code {
        RequestCode::READ_V | RequestCode::WRITE_V => SEGMENTS_MAX * 16,
        RequestCode::CLONE => CLONE_RANGES_MAX * 32,
        RequestCode::FATTR => ATTRIBUTES_BODY_BYTES_MAX,
        RequestCode::PREPARE | RequestCode::STAT_X => LIST_BODY_BYTES_MAX,
        _ => REQUEST_BODY_BYTES_MAX,
    }
}

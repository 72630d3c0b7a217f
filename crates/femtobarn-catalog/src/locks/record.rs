//! The record of a lock's holder: 64 bytes in the lock's slot, written by a holder that locks it exclusively.
//!
//! ```text
//! byte  0      4       8               16     17     18                       60          64
//!       +------+-------+---------------+------+------+------------------------+-----------+
//!       | FBlk | pid   | since, ms     | host | user | host and user, padded  | checksum  |
//!       +------+-------+---------------+------+------+------------------------+-----------+
//! ```
//!
//! `host` and `user` at bytes 16 and 17 are the lengths of the two names in bytes; longer names are cut. Integers are
//! little-endian. The checksum distinguishes a complete record from one that is being written.

use crate::holder::{HOST_BYTES_MAX, Holder, cut};

const MAGIC: &[u8; 4] = b"FBlk";
pub(super) const RECORD_BYTES: usize = 64;
const NAMES_AT: usize = 18;
const SUM_AT: usize = RECORD_BYTES - 4;
const USER_BYTES_MAX: usize = 16;
const _: () = assert!(NAMES_AT + HOST_BYTES_MAX + USER_BYTES_MAX == SUM_AT);

pub(super) fn encode(holder: &Holder) -> [u8; RECORD_BYTES] {
    let host = cut(&holder.host, HOST_BYTES_MAX);
    let user = cut(&holder.user, USER_BYTES_MAX);
    let mut record = [0; RECORD_BYTES];
    record[..4].copy_from_slice(MAGIC);
    record[4..8].copy_from_slice(&holder.pid.to_le_bytes());
    record[8..16].copy_from_slice(&holder.since_ms.to_le_bytes());
    record[16] = host.len() as u8;
    record[17] = user.len() as u8;
    let user_at = NAMES_AT + host.len();
    record[NAMES_AT..user_at].copy_from_slice(host);
    record[user_at..user_at + user.len()].copy_from_slice(user);
    let sum = checksum(&record[..SUM_AT]);
    record[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    record
}

/// The holder, or `None` unless the record is whole.
pub(super) fn decode(record: &[u8; RECORD_BYTES]) -> Option<Holder> {
    let sum = u32::from_le_bytes(record[SUM_AT..].try_into().ok()?);
    if record[..4] != *MAGIC || sum != checksum(&record[..SUM_AT]) {
        return None;
    }
    let (host_bytes, user_bytes) = (usize::from(record[16]), usize::from(record[17]));
    let (host, rest) = record[NAMES_AT..SUM_AT].split_at_checked(host_bytes)?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Some(Holder {
        host: text(host),
        user: text(rest.get(..user_bytes)?),
        application: String::new(),
        pid: u32::from_le_bytes(record[4..8].try_into().ok()?),
        since_ms: u64::from_le_bytes(record[8..16].try_into().ok()?),
    })
}

/// FNV-1a, which needs no dependency and is enough for 60 bytes.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_back_unless_it_is_torn() {
        let (host, user) = ("h".repeat(80), "u".repeat(80));
        let application = String::new();
        let holder = Holder { host, pid: 7, user, application, since_ms: 1 << 40 };
        let mut record = encode(&holder);
        let read = decode(&record).unwrap();
        assert_eq!((read.pid, read.since_ms), (7, 1 << 40));
        assert_eq!(read.host, "h".repeat(HOST_BYTES_MAX));
        assert_eq!(read.user, "u".repeat(USER_BYTES_MAX));
        record[9] ^= 1;
        assert_eq!(decode(&record), None);
        assert_eq!(decode(&[0; RECORD_BYTES]), None);
    }
}

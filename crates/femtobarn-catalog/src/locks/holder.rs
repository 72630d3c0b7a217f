//! The record of who holds a lock alone, 64 bytes in its slot.
//!
//! ```text
//! byte  0      4       8               16     17     18                       60          64
//!       +------+-------+---------------+------+------+------------------------+-----------+
//!       | FBlk | pid   | since, ms     | host | user | host and user, padded  | check sum |
//!       +------+-------+---------------+------+------+------------------------+-----------+
//! ```
//!
//! `host` and `user` are how many bytes each name has; what does not fit is cut off. Integers are
//! little-endian. The check sum tells a record from one that is half written.

use std::fmt;

use super::SLOT_BYTES;
use crate::clock;
use crate::host;

const MAGIC: &[u8; 4] = b"FBlk";
const RECORD: usize = SLOT_BYTES as usize;
const NAMES_AT: usize = 18;
const SUM_AT: usize = RECORD - 4;
const USER_BYTES_MAX: usize = 16;
const HOST_BYTES_MAX: usize = SUM_AT - NAMES_AT - USER_BYTES_MAX;

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The host.
    pub host: String,
    /// The process on that host.
    pub pid: u32,
    /// The user that the process runs as.
    pub user: String,
    /// The program, as far as it is known; empty if it is not.
    pub application: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

impl Holder {
    /// This process, from now on; without its program, which takes a look at a file.
    pub fn this_process() -> Self {
        let host = host::host_name().to_owned();
        let (pid, user) = (host::process_id(), host::user_name().to_owned());
        Holder { host, pid, user, application: String::new(), since_ms: clock::utc_ms() }
    }

    /// Looks for the program of a process on this host: records have no room for it.
    pub fn with_application(mut self) -> Self {
        if self.host.as_bytes() == cut(host::host_name(), HOST_BYTES_MAX) {
            self.application = host::application_of(self.pid);
        }
        self
    }

    /// One that has not written its record yet.
    pub(super) fn unknown() -> Self {
        let (host, user) = ("an unknown host".into(), "unknown".into());
        Holder { host, pid: 0, user, application: String::new(), since_ms: clock::utc_ms() }
    }

    /// The program, process, host and user, as far as they are known.
    pub fn name(&self) -> String {
        let Holder { host, pid, user, application, .. } = self;
        match application.as_str() {
            "" => format!("process {pid} on {host} ({user})"),
            application => format!("{application}, process {pid} on {host} ({user})"),
        }
    }

    pub(super) fn encode(&self) -> [u8; RECORD] {
        let host = cut(&self.host, HOST_BYTES_MAX);
        let user = cut(&self.user, USER_BYTES_MAX);
        let mut record = [0; RECORD];
        record[..4].copy_from_slice(MAGIC);
        record[4..8].copy_from_slice(&self.pid.to_le_bytes());
        record[8..16].copy_from_slice(&self.since_ms.to_le_bytes());
        record[16] = host.len() as u8;
        record[17] = user.len() as u8;
        let user_at = NAMES_AT + host.len();
        record[NAMES_AT..user_at].copy_from_slice(host);
        record[user_at..user_at + user.len()].copy_from_slice(user);
        let sum = check_sum(&record[..SUM_AT]);
        record[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        record
    }

    /// None unless the record is whole.
    pub(super) fn decode(record: &[u8; RECORD]) -> Option<Self> {
        let sum = u32::from_le_bytes(record[SUM_AT..].try_into().ok()?);
        if record[..4] != *MAGIC || sum != check_sum(&record[..SUM_AT]) {
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
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = clock::utc_ms().saturating_sub(self.since_ms) as f64 / 1e3;
        write!(f, "{} for {seconds:.1} s", self.name())
    }
}

/// The front of a name, as far as there is room for it.
fn cut(name: &str, bytes: usize) -> &[u8] {
    &name.as_bytes()[..name.len().min(bytes)]
}

/// FNV-1a: a few dozen bytes need no better, and no dependency.
fn check_sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_a_torn_one_is_not() {
        let (host, user) = ("h".repeat(80), "u".repeat(80));
        let application = String::new();
        let holder = Holder { host, pid: 7, user, application, since_ms: 1 << 40 };
        let mut record = holder.encode();
        let read = Holder::decode(&record).unwrap();
        assert_eq!((read.pid, read.since_ms), (7, 1 << 40));
        assert_eq!(read.host, "h".repeat(HOST_BYTES_MAX));
        assert_eq!(read.user, "u".repeat(USER_BYTES_MAX));
        record[9] ^= 1;
        assert_eq!(Holder::decode(&record), None);
        assert_eq!(Holder::decode(&[0; RECORD]), None);
    }
}

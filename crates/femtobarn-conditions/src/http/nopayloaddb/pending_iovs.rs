//! IOVs that clients have created and not yet inserted into a list. They are in memory only: nopayloaddb creates an IOV
//! and inserts it by two requests, which are one commit here.

use std::collections::BTreeMap;

use femtobarn::Result;
use parking_lot::Mutex;
use serde::Deserialize;

use super::answers::not_found;
use super::moments::{ENDLESS, IovMoment};
use crate::clock;

/// Pending IOVs, at most; beyond that the oldest is dropped.
const PENDING_MAX: usize = 100_000;

fn endless() -> i64 {
    ENDLESS
}

/// An IOV to insert.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct NewIov {
    pub payload_url: String,
    #[serde(default)]
    pub checksum: String,
    #[serde(default)]
    pub size: Option<u64>,
    major_iov: i64,
    minor_iov: i64,
    #[serde(default = "endless")]
    major_iov_end: i64,
    #[serde(default = "endless")]
    minor_iov_end: i64,
}

impl NewIov {
    pub(super) fn start(&self) -> IovMoment {
        IovMoment { major: self.major_iov, minor: self.minor_iov }
    }

    pub(super) fn end(&self) -> IovMoment {
        IovMoment { major: self.major_iov_end, minor: self.minor_iov_end }
    }
}

/// IOVs by number.
#[derive(Default)]
pub(super) struct PendingIovs(Mutex<BTreeMap<i64, NewIov>>);

impl PendingIovs {
    /// Keeps an IOV, and returns its number. Numbers derive from times, so that numbers of an earlier process are
    /// unknown to this one.
    pub(super) fn add(&self, iov: NewIov) -> i64 {
        let mut pending = self.0.lock();
        let after = pending.last_key_value().map_or(0, |(last, _)| last + 1);
        let number = (clock::unix_nanoseconds() / 1000).max(after);
        pending.insert(number, iov);
        if pending.len() > PENDING_MAX {
            pending.pop_first();
        }
        number
    }

    /// The IOV with a number.
    ///
    /// # Errors
    /// `NotFound` if there is no such IOV.
    pub(super) fn find(&self, number: i64) -> Result<NewIov> {
        self.0.lock().get(&number).cloned().ok_or_else(|| {
            not_found(format!(
                "payload IOV {number} does not exist; one that was not put into a list is lost when the server stops: create \
                 it again"
            ))
        })
    }

    pub(super) fn remove(&self, number: i64) {
        self.0.lock().remove(&number);
    }
}

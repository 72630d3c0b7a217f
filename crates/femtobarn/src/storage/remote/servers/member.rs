//! One of several servers: its connection, whether it is admitted, and the reason if it is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use femtobarn_catalog::{Catalogue, Csn, Error, Result, clock};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};
use parking_lot::{Mutex, RwLock};
use uuid::Uuid;

use super::choice::ServerLoad;
use crate::options::OpenOptions;
use crate::storage::remote::connect::connect_options;
use crate::storage::remote::folder::{RemoteFolder, ServerPatience};
use crate::storage::remote::tier::TierCounts;

/// The longest time to wait for a silent server while others may answer.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The longest time to wait for a server that answers slowly.
const SLOWNESS_MAX: Duration = Duration::from_secs(15);
/// The longest time to wait for a file server that cannot be connected to again.
const ABSENCE_MAX: Duration = Duration::from_millis(500);
/// How long a server is left out: after the first failure, and at most after repeated ones.
const OUTAGE_MIN: Duration = Duration::from_secs(1);
const OUTAGE_MAX: Duration = Duration::from_secs(60);

/// A server of a federation's copy.
#[derive(Debug)]
pub(super) struct Member {
    pub url: String,
    connection: RwLock<Option<Arc<MemberConnection>>>,
    /// The opening of the session in which its history was compared with that of the others; 0 while it is not
    /// admitted.
    admitted: AtomicU64,
    /// The newest commit that it is known to have.
    head: AtomicU64,
    /// The newest commit that was compared, and its transaction.
    pub compared: Mutex<Option<(Csn, Uuid)>>,
    outage: Mutex<Outage>,
    pub load: ServerLoad,
    /// The reads from it.
    pub counts: TierCounts,
}

/// Why a server is left out, and until when.
#[derive(Debug)]
struct Outage {
    reason: String,
    until: Instant,
    pause: Duration,
}

/// The catalogue and the files of a server.
#[derive(Debug)]
pub(super) struct MemberConnection {
    pub catalogue: RemoteCatalogue,
    pub folder: RemoteFolder,
}

impl MemberConnection {
    pub(super) fn open(url: &str, options: &OpenOptions) -> crate::error::Result<Self> {
        let silent = options.timeout.min(SILENCE_MAX);
        let slow = options.timeout.min(SLOWNESS_MAX);
        let gone = options.timeout.min(ABSENCE_MAX);
        let patience = ServerPatience { silent, gone, slow, dripping: Some(slow) };
        let connect = ConnectOptions { has_alternatives: true, ..connect_options(silent) };
        let catalogue = RemoteCatalogue::connect(url, &connect)?;
        let folder = RemoteFolder::connect(url, catalogue.session(), options.streams, patience)?;
        Ok(MemberConnection { catalogue, folder })
    }

    /// The transaction of a commit; nil before the first one.
    pub(super) fn transaction(&self, csn: Csn) -> Result<Uuid> {
        if csn == Csn::ZERO {
            return Ok(Uuid::nil());
        }
        Ok(self.catalogue.commit_by_csn(csn)?.transaction)
    }
}

impl Member {
    pub(super) fn new(url: String) -> Self {
        Member {
            url,
            connection: RwLock::default(),
            admitted: AtomicU64::new(0),
            head: AtomicU64::new(0),
            compared: Mutex::default(),
            outage: Mutex::new(Outage {
                reason: "it was not connected to yet".to_owned(),
                until: clock::now(),
                pause: Duration::ZERO,
            }),
            load: ServerLoad::default(),
            counts: TierCounts::default(),
        }
    }

    /// The connection, whether the server is admitted or not.
    pub(super) fn connection(&self) -> Option<Arc<MemberConnection>> {
        self.connection.read().clone()
    }

    pub(super) fn set_connection(&self, connection: MemberConnection) -> Arc<MemberConnection> {
        let connection = Arc::new(connection);
        *self.connection.write() = Some(Arc::clone(&connection));
        connection
    }

    /// The connection if the server is admitted. A session that was opened again is not: the server may have been
    /// restored from an older copy meanwhile.
    pub(super) fn admitted(&self) -> Option<Arc<MemberConnection>> {
        let connection = self.connection.read().clone()?;
        let admitted = self.admitted.load(Ordering::Acquire);
        let is_admitted = admitted != 0
            && admitted == connection.catalogue.openings()
            && connection.catalogue.is_reachable();
        is_admitted.then_some(connection)
    }

    pub(super) fn admit(&self, opening: u64) {
        self.admitted.store(opening, Ordering::Release);
    }

    /// Fails if the server was admitted until its session was lost.
    pub(super) fn check_connected(&self) -> Result<()> {
        if self.admitted.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        Err(Error::Unavailable { what: format!("the connection to {} was lost", self.url) })
    }

    /// Leaves the server out, for longer if it was left out a short time ago.
    pub(super) fn eject(&self, reason: &str) {
        self.admitted.store(0, Ordering::Release);
        self.counts.add_failure();
        let now = clock::now();
        let mut outage = self.outage.lock();
        let is_again = now < outage.until + outage.pause;
        let pause = if is_again { outage.pause * 2 } else { OUTAGE_MIN };
        let pause = pause.clamp(OUTAGE_MIN, OUTAGE_MAX);
        *outage = Outage { reason: reason.to_owned(), until: now + pause, pause };
    }

    /// Whether the server may be admitted again.
    pub(super) fn may_return(&self) -> bool {
        clock::now() >= self.outage.lock().until
    }

    /// Why it was left out last.
    pub(super) fn reason(&self) -> String {
        self.outage.lock().reason.clone()
    }

    pub(super) fn head(&self) -> Csn {
        Csn(self.head.load(Ordering::Acquire))
    }

    pub(super) fn observe_head(&self, head: Csn) {
        self.head.fetch_max(head.0, Ordering::AcqRel);
    }

    /// Asks the server for its newest commit and its load.
    pub(super) fn ask_load(&self, connection: &MemberConnection) -> Result<Csn> {
        let since = clock::now();
        let (head, reported) = connection.catalogue.head_and_load()?;
        self.load.observe(reported, since.elapsed());
        self.head.store(head.0, Ordering::Release);
        Ok(head)
    }

    /// The error for a server whose history differs from the others'.
    pub(super) fn other_history(&self, csn: Csn) -> Error {
        let what = format!(
            "{} has another commit {csn} than the other servers; make a new copy there",
            self.url
        );
        Error::Unavailable { what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_fails_again_is_left_out_for_longer() {
        let member = Member::new("root://tau//lhc.fed".to_owned());
        assert!(member.may_return());
        let pauses: Vec<u64> = (0..8)
            .map(|_| {
                member.eject("it is gone");
                assert!(!member.may_return());
                member.outage.lock().pause.as_secs()
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(member.reason(), "it is gone");
    }
}

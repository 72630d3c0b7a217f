//! Several servers that have copies of one federation, and requests to one of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use femtobarn_catalog::{
    Csn, Error, HeldLock, LeasedLocks, LockKind, LockTarget, PinGuard, Result, Waiter, clock,
};
use parking_lot::Mutex;
use uuid::Uuid;

use super::choice::better_of_two;
use super::member::{Member, MemberConnection};
use super::no_answer::RequestError;
use super::pins::{SharedPins, pin_at};
use crate::storage::remote::tier::TierStatistics;

/// The pause before servers are tried again when none answers.
const PAUSE: Duration = Duration::from_millis(50);

/// The servers of one federation's copies.
#[derive(Debug)]
pub(crate) struct ServerGroup {
    pub(super) members: Box<[Member]>,
    pub(super) pins: Arc<SharedPins>,
    pub(super) uuid: Uuid,
    pub(super) name: String,
    /// Their URLs, in the form of a path.
    pub(super) urls: PathBuf,
    /// How long a request waits for a server that answers.
    timeout: Duration,
    random: AtomicU64,
    /// Held while a server is admitted or a snapshot is pinned, so that each sees the other.
    pub(super) admission: Mutex<()>,
}

/// A server that was chosen for a request.
pub(super) struct ChosenServer<'a> {
    pub place: usize,
    pub member: &'a Member,
    pub connection: Arc<MemberConnection>,
}

impl ServerGroup {
    pub(super) fn new(
        members: Box<[Member]>,
        (uuid, name): (Uuid, String),
        timeout: Duration,
    ) -> Self {
        let urls: Vec<&str> = members.iter().map(|member| member.url.as_str()).collect();
        ServerGroup {
            pins: Arc::default(),
            uuid,
            name,
            urls: PathBuf::from(urls.join(",")),
            timeout,
            random: AtomicU64::new(uuid::Uuid::new_v4().as_u64_pair().0),
            admission: Mutex::default(),
            members,
        }
    }

    /// The newest commit that an admitted server is known to have.
    pub(super) fn newest(&self) -> Csn {
        let admitted = self.members.iter().filter(|member| member.admitted().is_some());
        admitted.map(Member::head).max().unwrap_or(Csn::ZERO)
    }

    /// Asks one server after the other until one answers, for as long as the time-out. Only servers that have reached
    /// `at` are asked, and `avoided` only if there is no other. [`Csn::MAX`] stands for the newest commit.
    ///
    /// # Errors
    /// The error that a server answered; the error of the last server if waiting does not help; `Unavailable` after the
    /// time-out, with the reasons of all servers.
    pub(super) fn ask<T, E: RequestError>(
        &self,
        at: Csn,
        avoided: Option<usize>,
        mut request: impl FnMut(&ChosenServer<'_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let deadline = clock::now() + self.timeout;
        let mut tried = vec![false; self.members.len()];
        if let Some(place) = avoided {
            tried[place] = true;
        }
        let mut is_avoiding = avoided.is_some();
        loop {
            // Servers whose errors are theirs alone if another server answers.
            let mut refusals = vec![];
            while let Some(chosen) = self.choose(at, &tried) {
                tried[chosen.place] = true;
                match request(&chosen) {
                    Err(error) if error.is_temporary() => chosen.member.eject(&error.to_string()),
                    Err(error) if error.is_no_answer() => refusals.push((chosen.member, error)),
                    answer => {
                        let at_fault = refusals.iter();
                        at_fault.for_each(|(member, error)| member.eject(&error.to_string()));
                        return answer;
                    }
                }
            }
            tried.fill(false);
            if std::mem::take(&mut is_avoiding) {
                continue;
            }
            if let Some((_, error)) = refusals.pop() {
                return Err(error);
            }
            // A snapshot that is lost at all servers comes back at none.
            if clock::now() >= deadline || self.pins.is_lost(at) {
                return Err(E::unavailable(self.nobody(at)));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Chooses by load among the admitted servers that were not tried and have reached a commit.
    fn choose(&self, at: Csn, tried: &[bool]) -> Option<ChosenServer<'_>> {
        let at = if at == Csn::MAX { self.newest() } else { at };
        let candidates = self.members.iter().enumerate().filter(|(place, member)| {
            !tried[*place] && self.pins.allow(at, *place, member) && member.admitted().is_some()
        });
        let candidates: Vec<_> =
            candidates.map(|(place, member)| (place, member.load.cost())).collect();
        let place = better_of_two(&candidates, self.next_random())?;
        let member = &self.members[place];
        Some(ChosenServer { place, member, connection: member.admitted()? })
    }

    /// A number that looks random: SplitMix64.
    fn next_random(&self) -> u64 {
        let mut z = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn nobody(&self, at: Csn) -> String {
        let reasons = self.members.iter().map(|member| match member.admitted() {
            Some(_) => format!("{} has reached commit {} only", member.url, member.head()),
            None => format!("{}: {}", member.url, member.reason()),
        });
        let reasons: Vec<String> = reasons.collect();
        let what = if at == Csn::MAX { String::new() } else { format!(" that has commit {at}") };
        let seconds = self.timeout.as_secs_f32();
        format!("no server{what} answered within {seconds} s: {}", reasons.join("; "))
    }

    /// Pins a snapshot at every server that has it.
    pub(super) fn pin(&self, at: Csn) -> Result<PinGuard> {
        if let Some(guard) = self.pins.again(at) {
            return Ok(guard);
        }
        // Without the lock, since this may wait until a server is admitted.
        let (_at_one, transaction) = self.ask(at, None, |chosen| pin_at(&chosen.connection, at))?;
        let _one = self.admission.lock();
        let guard = self.pins.add(at, transaction, self.members.len());
        for (place, member) in self.members.iter().enumerate() {
            if let Some(connection) = member.admitted()
                && let Err(error) = self.pins.extend_to(place, member, &connection, false)
            {
                member.eject(&error.to_string());
            }
        }
        Ok(guard)
    }

    /// The error of operations that would change the federation.
    pub(crate) fn read_only(&self) -> Error {
        let urls = self.urls.display();
        let what = format!("{urls} are open to read; open the federation at one server to write");
        Error::Denied { what }
    }

    /// Whether a server is admitted.
    pub(super) fn is_reachable(&self) -> bool {
        self.members.iter().any(|member| member.admitted().is_some())
    }

    /// The URLs of a file, in the form of a path.
    pub(crate) fn path_of(&self, relative: &str) -> PathBuf {
        self.urls.join(relative)
    }

    /// The reads from each server.
    pub(crate) fn statistics(&self) -> impl Iterator<Item = TierStatistics> + '_ {
        self.members.iter().map(|member| member.counts.statistics(&member.url))
    }
}

/// Nothing can be locked at several servers.
impl LeasedLocks for ServerGroup {
    fn new_owner(&self) -> u64 {
        0
    }

    fn lock(&self, _: u64, _: LockTarget, _: LockKind, _: Option<Duration>) -> Result<()> {
        Err(self.read_only())
    }

    fn unlock(&self, _: u64, _: &[LockTarget]) {}

    fn held(&self) -> Result<Vec<HeldLock>> {
        Err(self.read_only())
    }

    fn waiting(&self) -> Result<Vec<Waiter>> {
        Err(self.read_only())
    }
}

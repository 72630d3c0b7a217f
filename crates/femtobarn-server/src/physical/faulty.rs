//! A gate that injects faults: the n-th call of a kind fails, or all from the n-th on.
//!
//! A fault is written `KIND:N=EFFECT`, or `KIND:N+=EFFECT` for all calls from the N-th on:
//!
//! | part | values |
//! |---|---|
//! | kind | `open`, `facts`, `list`, `change`, `space`, `attributes`, `read`, `write`, `sync`, `truncate` |
//! | effect | an error such as `EIO`; `short:100` for at most 100 bytes; `wait:2` to defer the call by 2 seconds |

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;

use super::gate::{Call, CallKind, Gate, Gated};
use super::{Storage, StorageError, StorageResult};

/// A storage with injected faults.
pub type FaultyStorage = Gated<FaultInjector>;

/// The highest error number of the operating system.
const ERRNO_MAX: i32 = 133;
/// The names of the kinds of calls.
const KINDS: [(&str, CallKind); 10] = [
    ("open", CallKind::Open),
    ("facts", CallKind::Metadata),
    ("list", CallKind::List),
    ("change", CallKind::Change),
    ("space", CallKind::Space),
    ("attributes", CallKind::Attributes),
    ("read", CallKind::Read),
    ("write", CallKind::Write),
    ("sync", CallKind::Sync),
    ("truncate", CallKind::Truncate),
];

/// A fault: which calls it affects, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// The kind of the affected calls.
    pub kind: CallKind,
    /// The number of the first affected call, from 1 on.
    pub number: u64,
    /// Whether all later calls are affected, too.
    pub lasts: bool,
    /// The effect on an affected call.
    pub effect: FaultEffect,
}

/// The effect of a fault on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// The call fails.
    Refused(Errno),
    /// The call reads or writes at most this many bytes; writing the rest fails.
    Short(usize),
    /// The call is deferred by this time.
    NotBefore(Duration),
}

/// The gate that injects faults.
pub struct FaultInjector {
    faults: Vec<InjectedFault>,
    /// Calls of each kind so far, in the order of [`KINDS`].
    counts: [AtomicU64; KINDS.len()],
}

impl FaultyStorage {
    /// A storage with these faults.
    pub fn failing(inner: Arc<dyn Storage>, faults: Vec<InjectedFault>) -> Self {
        Gated::new(inner, FaultInjector { faults, counts: Default::default() })
    }
}

impl Gate for FaultInjector {
    fn pass(&self, call: Call<'_>) -> StorageResult<usize> {
        let at = KINDS.iter().position(|(_, kind)| *kind == call.kind);
        let at = at.expect("every kind has a name");
        let number = self.counts[at].fetch_add(1, Ordering::Relaxed) + 1;
        let is_hit = |fault: &&InjectedFault| {
            let is_it = fault.number == number || fault.lasts && fault.number < number;
            fault.kind == call.kind && is_it
        };
        match self.faults.iter().find(is_hit).map(|fault| fault.effect) {
            None => Ok(call.size),
            Some(FaultEffect::Short(bytes)) => Ok(call.size.min(bytes)),
            Some(FaultEffect::Refused(errno)) => {
                Err(StorageError::cannot(KINDS[at].0, call.path, errno))
            }
            Some(FaultEffect::NotBefore(time)) => {
                Err(StorageError::NotBefore(time, format!("{} is not ready", call.path)))
            }
        }
    }
}

impl FromStr for InjectedFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            let kinds = KINDS.map(|(name, _)| name).join(", ");
            format!(
                "invalid fault {text:?}: write it like read:3=EIO, write:1+=ENOSPC, \
                 read:2=short:100 or open:1=wait:5, and calls are {kinds}"
            )
        })
    }
}

fn parse(text: &str) -> Option<InjectedFault> {
    let (which, what) = text.split_once('=')?;
    let (kind, number) = which.split_once(':')?;
    let (_, kind) = KINDS.iter().find(|(name, _)| *name == kind)?;
    let lasts = number.ends_with('+');
    let number: u64 = number.strip_suffix('+').unwrap_or(number).parse().ok()?;
    let effect = match what.split_once(':') {
        Some(("short", bytes)) => FaultEffect::Short(bytes.parse().ok()?),
        Some(("wait", seconds)) => {
            FaultEffect::NotBefore(Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?)
        }
        Some(_) => return None,
        None => FaultEffect::Refused(errno_called(what)?),
    };
    (number > 0).then_some(InjectedFault { kind: *kind, number, lasts, effect })
}

fn errno_called(name: &str) -> Option<Errno> {
    let known = (1..=ERRNO_MAX).map(Errno::from_raw);
    known.into_iter().find(|errno| format!("{errno:?}") == name && *errno != Errno::UnknownErrno)
}

//! A gate that fails on purpose: the n-th call of a kind, or all from there on.
//!
//! A fault is written `KIND:N=WHAT`, or `KIND:N+=WHAT` for all from the N-th on:
//!
//! | | is |
//! |---|---|
//! | kind | `open`, `facts`, `list`, `change`, `space`, `attributes`, `read`, `write`, `sync`, `truncate` |
//! | what | an error such as `EIO`; `short:100` for so many bytes at most; `wait:2` for not before 2 seconds |

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;

use super::gate::{Call, CallKind, Gate, Gated};
use super::{Storage, StorageError, StorageResult};

/// A storage that fails on purpose.
pub type FaultyStorage = Gated<Faults>;

/// Errors of the operating system have numbers up to here.
const ERRNO_MAX: i32 = 133;
/// The kinds of calls by name.
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

/// What goes wrong, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Calls of this kind.
    pub kind: CallKind,
    /// Which of them, from 1 on.
    pub number: u64,
    /// Whether it is all from that one on.
    pub lasts: bool,
    /// What happens to them.
    pub outcome: Outcome,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It fails.
    Refused(Errno),
    /// It reads or writes so many bytes at most; writing the rest fails.
    Short(usize),
    /// It may not be done before this time has passed.
    NotBefore(Duration),
}

/// The gate.
pub struct Faults {
    faults: Vec<Fault>,
    /// Calls of each kind so far, in the order of [`KINDS`].
    counts: [AtomicU64; KINDS.len()],
}

impl FaultyStorage {
    /// Lets a storage fail.
    pub fn failing(inner: Arc<dyn Storage>, faults: Vec<Fault>) -> Self {
        Gated::new(inner, Faults { faults, counts: Default::default() })
    }
}

impl Gate for Faults {
    fn pass(&self, call: Call<'_>) -> StorageResult<usize> {
        let at = KINDS.iter().position(|(_, kind)| *kind == call.kind);
        let at = at.expect("every kind has a name");
        let number = self.counts[at].fetch_add(1, Ordering::Relaxed) + 1;
        let is_hit = |fault: &&Fault| {
            let is_it = fault.number == number || fault.lasts && fault.number < number;
            fault.kind == call.kind && is_it
        };
        match self.faults.iter().find(is_hit).map(|fault| fault.outcome) {
            None => Ok(call.size),
            Some(Outcome::Short(bytes)) => Ok(call.size.min(bytes)),
            Some(Outcome::Refused(errno)) => {
                Err(StorageError::cannot(KINDS[at].0, call.path, errno))
            }
            Some(Outcome::NotBefore(time)) => {
                Err(StorageError::NotBefore(time, format!("{} is not ready", call.path)))
            }
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            let kinds = KINDS.map(|(name, _)| name).join(", ");
            format!(
                "{text:?} is no fault; one is written such as read:3=EIO, write:1+=ENOSPC, \
                 read:2=short:100 or open:1=wait:5, and calls are {kinds}"
            )
        })
    }
}

fn parse(text: &str) -> Option<Fault> {
    let (which, what) = text.split_once('=')?;
    let (kind, number) = which.split_once(':')?;
    let (_, kind) = KINDS.iter().find(|(name, _)| *name == kind)?;
    let lasts = number.ends_with('+');
    let number: u64 = number.strip_suffix('+').unwrap_or(number).parse().ok()?;
    let outcome = match what.split_once(':') {
        Some(("short", bytes)) => Outcome::Short(bytes.parse().ok()?),
        Some(("wait", seconds)) => {
            Outcome::NotBefore(Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?)
        }
        Some(_) => return None,
        None => Outcome::Refused(errno_called(what)?),
    };
    (number > 0).then_some(Fault { kind: *kind, number, lasts, outcome })
}

fn errno_called(name: &str) -> Option<Errno> {
    let known = (1..=ERRNO_MAX).map(Errno::from_raw);
    known.into_iter().find(|errno| format!("{errno:?}") == name && *errno != Errno::UnknownErrno)
}

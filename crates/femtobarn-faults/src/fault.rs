//! Faults of a disk, and how they are told to a workload.

use std::str::FromStr;

/// What goes wrong, from one operation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// With which operation, counted from 0.
    pub operation: u64,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The disk is full, until the fault is lifted.
    Full,
    /// One operation of any sort fails with an error of input or output.
    Error,
    /// One sync fails.
    FailedSync,
    /// One write takes half of its bytes.
    Short,
    /// One write takes half of its bytes; then the disk is full.
    ShortThenFull,
}

/// Each kind with its name.
pub const KINDS: [(FaultKind, &str); 5] = [
    (FaultKind::Full, "full"),
    (FaultKind::Error, "error"),
    (FaultKind::FailedSync, "failed-sync"),
    (FaultKind::Short, "short"),
    (FaultKind::ShortThenFull, "short-then-full"),
];

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let kind = KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
        kind.ok_or_else(|| format!("{name:?} is not a kind of fault"))
    }
}

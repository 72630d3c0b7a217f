//! Faults of a disk, and their names on the command line.

use std::str::FromStr;

/// A fault that begins with one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// The number of the operation, counted from 0.
    pub operation: u64,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The disk is full, until the fault is lifted.
    Full,
    /// One operation of any kind fails with an I/O error.
    Error,
    /// One sync fails.
    FailedSync,
    /// One sync fails, and every later one until the fault is lifted.
    FailingSyncs,
    /// One write writes half of its bytes.
    Short,
    /// One write writes half of its bytes; then the disk is full.
    ShortThenFull,
}

/// The kinds with their names.
pub const KINDS: [(FaultKind, &str); 6] = [
    (FaultKind::Full, "full"),
    (FaultKind::Error, "error"),
    (FaultKind::FailedSync, "failed-sync"),
    (FaultKind::FailingSyncs, "failing-syncs"),
    (FaultKind::Short, "short"),
    (FaultKind::ShortThenFull, "short-then-full"),
];

/// The kinds of operations that faults distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Takes space on the disk.
    Growing,
    /// Writes bytes, and takes space for them.
    Writing,
    /// Makes a file or folder durable.
    Syncing,
    /// Changes names.
    Other,
}

impl OperationKind {
    /// The kind with a number.
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Growing, Self::Writing, Self::Syncing, Self::Other].get(number as usize).copied()
    }

    /// Whether a fault of this kind makes an operation fail that it strikes first.
    pub fn is_affected_by(self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::Full => matches!(self, OperationKind::Growing | OperationKind::Writing),
            FaultKind::Error => true,
            FaultKind::FailedSync | FaultKind::FailingSyncs => self == OperationKind::Syncing,
            FaultKind::Short | FaultKind::ShortThenFull => self == OperationKind::Writing,
        }
    }
}

impl FaultKind {
    /// The name.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let kind = KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
        kind.ok_or_else(|| format!("unknown kind of fault {name:?}"))
    }
}

//! Splices: which elements of a field are replaced by which of its new values.

use std::ops::Range;

use crate::buffer::AlignedBuffer;
use crate::column::Element;
use crate::error::{Error, Result};
use crate::page_list::Cluster;

/// A range of elements, and the positions of the new values that replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Splice {
    pub old: Range<u64>,
    pub new: Range<usize>,
}

impl Splice {
    pub(super) fn keeps_length(&self) -> bool {
        self.old.end - self.old.start == self.new.len() as u64
    }

    pub(super) fn times(&self, size: u64) -> Option<Splice> {
        let (old, new) = (&self.old, &self.new);
        let width = usize::try_from(size).ok()?;
        Some(Splice {
            old: old.start.checked_mul(size)?..old.end.checked_mul(size)?,
            new: new.start.checked_mul(width)?..new.end.checked_mul(width)?,
        })
    }
}

/// The splices of the items of arrays of one size, and how many items there are.
pub(super) fn multiplied(
    splices: &[Splice],
    elements: u64,
    size: u64,
) -> Result<(Vec<Splice>, u64)> {
    let many = || Error::corrupt("page list", 0, "an array has more than 2^64 items");
    let splices = splices.iter().map(|splice| splice.times(size)).collect::<Option<_>>();
    Ok((splices.ok_or_else(many)?, elements.checked_mul(size).ok_or_else(many)?))
}

/// Copies the new values of splices back to back; returns also the splices with positions in the copy.
pub(super) fn gather(
    values: &[u8],
    of: Element,
    splices: &[Splice],
) -> Result<(AlignedBuffer, Vec<Splice>)> {
    let count: usize = splices.iter().map(|splice| splice.new.len()).sum();
    let mut gathered = AlignedBuffer::for_overwriting(count as u64, of.size())?;
    let mut rest = gathered.bytes_mut();
    let mut moved = Vec::with_capacity(splices.len());
    let mut next = 0;
    for Splice { old, new } in splices {
        let from = &values[new.start * of.size()..new.end * of.size()];
        let (out, behind) = rest.split_at_mut(from.len());
        out.copy_from_slice(from);
        rest = behind;
        moved.push(Splice { old: old.clone(), new: next..next + new.len() });
        next += new.len();
    }
    Ok((gathered, moved))
}

/// Splices for the runs of consecutive entries among `entries` of a cluster, whose new values begin at
/// position `first_value`.
pub(super) fn splices_of(cluster: &Cluster, entries: &[u64], first_value: usize) -> Vec<Splice> {
    let mut splices: Vec<Splice> = vec![];
    for (at, entry) in entries.iter().enumerate() {
        let (entry, value) = (entry - cluster.first_entry, first_value + at);
        match splices.last_mut() {
            Some(last) if last.old.end == entry => {
                (last.old.end, last.new.end) = (entry + 1, value + 1);
            }
            _ => splices.push(Splice { old: entry..entry + 1, new: value..value + 1 }),
        }
    }
    splices
}

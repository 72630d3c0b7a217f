//! Numbers for new databases and containers, reserved in batches because each reservation is a durable write.
//!
//! 1. A batch is half as large as the count handed out so far, at most 256, so that few numbers stay unused.
//! 2. Numbers reserved before a fork belong to the parent.

use parking_lot::Mutex;

use crate::error::Result;

/// Numbers in one batch, at most.
const RESERVED_MAX: u32 = 256;

/// The reserved numbers of one kind.
#[derive(Debug)]
pub(crate) struct NumberPool<N>(Mutex<Reservation<N>>);

#[derive(Debug)]
struct Reservation<N> {
    process: u32,
    /// In descending order.
    reserved: Vec<N>,
    given: u32,
}

impl<N> Default for NumberPool<N> {
    fn default() -> Self {
        NumberPool(Mutex::new(Reservation { process: 0, reserved: vec![], given: 0 }))
    }
}

impl<N> NumberPool<N> {
    /// The next number, never handed out before. `reserve` reserves a batch of the given size.
    ///
    /// # Errors
    /// The errors of `reserve`.
    pub(super) fn next(&self, reserve: impl FnOnce(u32) -> Result<Vec<N>>) -> Result<N> {
        self.next_in(std::process::id(), reserve)
    }

    fn next_in(&self, process: u32, reserve: impl FnOnce(u32) -> Result<Vec<N>>) -> Result<N> {
        let mut own = self.0.lock();
        if own.process != process {
            *own = Reservation { process, reserved: vec![], given: 0 };
        }
        if own.reserved.is_empty() {
            own.reserved = reserve((own.given / 2).clamp(1, RESERVED_MAX))?;
            own.reserved.reverse();
        }
        own.given = own.given.saturating_add(1);
        Ok(own.reserved.pop().expect("a batch has at least one number"))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn batches_grow_with_the_count_handed_out() {
        let (last, times) = (Cell::new(0), Cell::new(0));
        let numbers = NumberPool::default();
        let next = |process| {
            let reserve = |count| {
                times.set(times.get() + 1);
                let first = last.replace(last.get() + count) + 1;
                Ok((first..first + count).collect())
            };
            numbers.next_in(process, reserve).unwrap()
        };
        assert!((1..=1000_u32).all(|number| next(7) == number));
        assert!(times.get() < 25, "{times:?}");
        assert!(last.get() <= 1000 + RESERVED_MAX);
        let parent = last.get();
        assert_eq!(next(8), parent + 1, "a child does not use its parent's numbers");
        assert_eq!(next(8), parent + 2);
    }
}

//! Numbers for new databases and containers, reserved ahead, since each time is a durable write.
//!
//! 1. The more a process makes, the more it reserves at once: half as many as it had, so that few stay
//!    unused when it ends.
//! 2. What was reserved before a fork is the parent's.

use parking_lot::Mutex;

use crate::error::Result;

/// Numbers that are reserved at once.
const RESERVED_MAX: u32 = 256;

/// Numbers of one kind that a process has reserved.
#[derive(Debug)]
pub(crate) struct NumberPool<N>(Mutex<Reservation<N>>);

#[derive(Debug)]
struct Reservation<N> {
    process: u32,
    /// The last comes first.
    reserved: Vec<N>,
    given: u32,
}

impl<N> Default for NumberPool<N> {
    fn default() -> Self {
        NumberPool(Mutex::new(Reservation { process: 0, reserved: vec![], given: 0 }))
    }
}

impl<N> NumberPool<N> {
    /// A number that nobody had before; `reserve` makes so many.
    ///
    /// # Errors
    /// Those of `reserve`.
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
        Ok(own.reserved.pop().expect("one or more were reserved"))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_more_are_needed_the_more_are_reserved_at_once() {
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
        assert_eq!(next(8), parent + 1, "a child has nothing of its parent's");
        assert_eq!(next(8), parent + 2);
    }
}

//! [`Renumbering`]: numbers with a meaning outside the file, and the numbers stored instead of them.
//!
//! **Invariant:** `pairs` ascend by their first number, without duplicates; `last`, if any, is one of them.

/// The stored number of each renumbered number. All other numbers are stored unchanged.
///
/// It serves links to databases, for instance: a file has its own numbers of databases.
#[derive(Clone, Debug, Default)]
pub struct Renumbering {
    pairs: Vec<(u32, u32)>,
    /// The pair that was looked up last: consecutive links usually refer to the same database.
    last: Option<(u32, u32)>,
}

impl Renumbering {
    /// Whether the number is renumbered.
    #[inline]
    pub fn knows(&mut self, number: u32) -> bool {
        if matches!(self.last, Some((last, _)) if last == number) {
            return true;
        }
        self.last = self.find(number).ok().map(|at| self.pairs[at]);
        self.last.is_some()
    }

    /// Sets the stored number of a number.
    pub fn insert(&mut self, number: u32, stored: u32) {
        match self.find(number) {
            Ok(at) => self.pairs[at].1 = stored,
            Err(at) => self.pairs.insert(at, (number, stored)),
        }
        self.last = Some((number, stored));
    }

    /// The stored number of a number.
    #[inline]
    pub fn stored(&self, number: u32) -> u32 {
        match self.last {
            Some((last, stored)) if last == number => stored,
            _ => self.find(number).map_or(number, |at| self.pairs[at].1),
        }
    }

    fn find(&self, number: u32) -> Result<usize, usize> {
        self.pairs.binary_search_by_key(&number, |pair| pair.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renumbered_numbers_are_replaced_and_others_stay() {
        let mut renumbering = Renumbering::default();
        assert!(!renumbering.knows(7));
        assert_eq!(renumbering.stored(7), 7);
        for (number, stored) in [(7, 1), (3, 0), (9, 2), (7, 5)] {
            renumbering.insert(number, stored);
            assert_eq!(renumbering.stored(number), stored);
        }
        assert_eq!([3, 7, 9, 8].map(|number| renumbering.stored(number)), [0, 5, 2, 8]);
        assert_eq!([3, 8, 9].map(|number| renumbering.knows(number)), [true, false, true]);
        assert_eq!([3, 7, 9, 8].map(|number| renumbering.stored(number)), [0, 5, 2, 8]);
    }
}

//! Reads of objects: at random, singly or in batches, and in order.

use crate::{Outcome, Random, Stopwatch};

/// The objects to read.
pub struct Reads {
    /// The number of objects.
    pub objects: u64,
    /// Bytes of each.
    pub size: u64,
    /// Objects to read, some of them more than once.
    pub count: u64,
    /// Objects requested at once.
    pub batch: u64,
    /// Whether all objects were read before; otherwise none is in memory.
    pub is_hot: bool,
}

impl Reads {
    /// From the words `OBJECTS SIZE COUNT BATCH hot|cold` of a command line.
    ///
    /// # Errors
    /// If a word is not a number.
    pub fn parse(words: &[&str]) -> Outcome<Self> {
        let [objects, size, count, batch, heat] = words else {
            return Err("OBJECTS SIZE COUNT BATCH hot|cold".into());
        };
        Ok(Reads {
            objects: objects.parse()?,
            size: size.parse()?,
            count: count.parse()?,
            batch: batch.parse()?,
            is_hot: *heat == "hot",
        })
    }

    /// Reads objects one by one; `read` returns the sum of one's words.
    ///
    /// # Errors
    /// The errors that `read` returns.
    pub fn one_by_one(&self, mut read: impl FnMut(u64) -> Outcome<u64>) -> Outcome {
        for id in 0..if self.is_hot { self.objects } else { 0 } {
            read(id)?;
        }
        let (mut random, mut check) = (Random::default(), 0_u64);
        let watch = Stopwatch::start();
        for _ in 0..self.count {
            check = check.wrapping_add(read(random.below(self.objects))?);
        }
        watch.report(self.count, self.count * self.size, check);
        Ok(())
    }

    /// Reads objects in batches; `read` returns the sum of the words of all that it was asked for.
    ///
    /// # Errors
    /// The errors that `read` returns.
    pub fn in_batches(&self, mut read: impl FnMut(&[u64]) -> Outcome<u64>) -> Outcome {
        let all: Vec<u64> = (0..if self.is_hot { self.objects } else { 0 }).collect();
        for batch in all.chunks(self.batch as usize) {
            read(batch)?;
        }
        let (mut random, mut check) = (Random::default(), 0_u64);
        let watch = Stopwatch::start();
        for _ in 0..self.count / self.batch {
            let batch: Vec<u64> = (0..self.batch).map(|_| random.below(self.objects)).collect();
            check = check.wrapping_add(read(&batch)?);
        }
        watch.report(self.count, self.count * self.size, check);
        Ok(())
    }

    /// Reads all objects in order, having done so before; `read` returns the sum of their words.
    ///
    /// # Errors
    /// The errors that `read` returns.
    pub fn in_order(&self, mut read: impl FnMut() -> Outcome<u64>) -> Outcome {
        read()?;
        let watch = Stopwatch::start();
        let check = read()?;
        watch.report(self.objects, self.objects * self.size, check);
        Ok(())
    }
}

/// The sum of an object's words of 64 bits; the rest at its end is a word of 32 bits.
#[inline]
pub fn sum(object: &[u8]) -> u64 {
    let (words, rest) = object.as_chunks::<8>();
    let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    match rest.first_chunk::<4>() {
        Some(word) => sum.wrapping_add(u64::from(u32::from_le_bytes(*word))),
        None => sum,
    }
}

//! The bytes that written objects consist of, and the transactions that write them.

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use crate::Outcome;

/// The bytes of objects: the file `objects.bin`, which benches/sides/data.py generates.
pub struct Pool {
    bytes: Bytes,
    size: usize,
}

impl Pool {
    /// Objects of `size` bytes.
    ///
    /// # Errors
    /// The operating system's error if the file cannot be read.
    pub fn open(path: &Path, size: usize) -> Outcome<Self> {
        Ok(Pool { bytes: Bytes::from(std::fs::read(path)?), size })
    }

    /// Bytes of an object.
    pub fn size(&self) -> usize {
        self.size
    }

    /// An object; they are not all different.
    #[inline]
    pub fn object(&self, id: u64) -> &[u8] {
        &self.bytes[self.place(id)]
    }

    /// An object that shares the pool's memory.
    #[inline]
    pub fn shared(&self, id: u64) -> Bytes {
        self.bytes.slice(self.place(id))
    }

    fn place(&self, id: u64) -> Range<usize> {
        let start = id as usize % (self.bytes.len() / self.size) * self.size;
        start..start + self.size
    }
}

/// Objects to be appended: `count` of them, in transactions of `commit` objects, by writer number `writer`.
pub struct Appends {
    /// The objects.
    pub pool: Pool,
    /// How many.
    pub count: u64,
    /// How many make a transaction.
    pub commit: u64,
    /// The writer, among those that write at once.
    pub writer: u64,
}

impl Appends {
    /// From the words `POOL SIZE COUNT COMMIT WRITER` of a command line.
    ///
    /// # Errors
    /// If a word is not a number, or the file cannot be read.
    pub fn parse(words: &[&str]) -> Outcome<Self> {
        let [pool, size, count, commit, writer] = words else {
            return Err("POOL SIZE COUNT COMMIT WRITER".into());
        };
        Ok(Appends {
            pool: Pool::open(Path::new(pool), size.parse()?)?,
            count: count.parse()?,
            commit: commit.parse()?,
            writer: writer.parse()?,
        })
    }

    /// The objects of one transaction after the other.
    pub fn transactions(&self) -> impl Iterator<Item = Range<u64>> {
        let end = |first: u64| self.count.min(first + self.commit);
        (0..self.count).step_by(self.commit as usize).map(move |first| first..end(first))
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.count * self.pool.size() as u64
    }
}

//! Reading many fields with several threads. Fields share only page lists and the cache, which are
//! thread-safe, so each thread takes the next field from a common counter until none is left.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Projection, Reader};
use crate::array::Array;
use crate::error::Result;

impl Reader {
    /// Reads fields of a range of entries, as [`read`](Self::read), with up to `threads` threads, of which
    /// the caller's is one. A thread pays off from a few megabytes on.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_in_parallel(
        &self,
        projection: &Projection,
        entries: Range<u64>,
        threads: usize,
    ) -> Result<Array> {
        let nodes = projection.nodes();
        // WebAssembly has one thread.
        let threads = if cfg!(target_family = "wasm") { 1 } else { threads.min(nodes.len()) };
        if threads <= 1 || entries.start >= entries.end || entries.end > self.entries() {
            return self.read(projection, entries);
        }
        let is_sequential = self.continues_last_read(&entries);
        // All fields are announced together first, so that not every field takes a round trip. Each thread announces
        // its field once more: the parts that are not being fetched yet are fetched for it.
        self.announce(nodes, &entries)?;
        let next = AtomicUsize::new(0);
        let work = || {
            let mut read = vec![];
            loop {
                let position = next.fetch_add(1, Ordering::Relaxed);
                let Some(node) = nodes.get(position) else { return read };
                let (node, run) = (std::slice::from_ref(node), std::slice::from_ref(&entries));
                let field = self.assemble(node, run, is_sequential);
                read.push((position, field));
            }
        };
        let mut read = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut read = work();
            for other in others {
                read.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            read
        });
        read.sort_unstable_by_key(|(position, _)| *position);
        let mut all = Vec::with_capacity(nodes.len());
        for (_, field) in read {
            if let Array::Record { members, .. } = field? {
                all.extend(members);
            }
        }
        Ok(Array::Record { length: (entries.end - entries.start) as usize, members: all })
    }
}

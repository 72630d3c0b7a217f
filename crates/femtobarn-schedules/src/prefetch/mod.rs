//! Scenarios of buffers that are fetched before they are read.

#[path = "../../../femtobarn/src/storage/remote/prefetch/buffer.rs"]
#[expect(dead_code, reason = "no scenario has plans")]
mod buffer;
#[path = "../../../femtobarn/src/storage/remote/prefetch/memory.rs"]
mod memory;

use std::sync::Arc;

use buffer::{FetchMode, PrefetchBuffer};
use loom::thread;
use memory::PrefetchMemory;
use rntuple::ReadRequest;

/// A file at a server that answers, or does not.
#[derive(Clone)]
pub(crate) struct ServedFile {
    answers: bool,
}

const BYTE: u8 = 7;

impl ServedFile {
    fn fill(&self, buffer: &mut [u8]) -> rntuple::Result<()> {
        thread::yield_now();
        buffer.fill(BYTE);
        let source = std::io::ErrorKind::ConnectionReset.into();
        let lost = rntuple::Error::Io { what: "read".to_owned(), source };
        if self.answers { Ok(()) } else { Err(lost) }
    }

    pub(crate) fn read_ahead_at(&self, _offset: u64, buffer: &mut [u8]) -> rntuple::Result<usize> {
        self.fill(buffer).map(|()| buffer.len())
    }

    pub(crate) fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        requests.iter_mut().try_for_each(|request| self.fill(request.buffer))
    }

    pub(crate) fn read_ahead(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.read_many(requests)
    }
}

/// Readers of a buffer get its bytes, or none if its fetch has failed, whether they come before that has ended or after it.
pub fn readers_of_a_buffer_have_its_bytes_or_none(
    readers: usize,
    answers: bool,
    preemptions: usize,
) {
    crate::explore("readers of a buffer have its bytes or none", preemptions, move || {
        let range = std::iter::once(100..104).collect();
        let buffer = Arc::new(PrefetchBuffer::new(range, None, PrefetchMemory::new(0)));
        let read = |buffer: Arc<PrefetchBuffer>| {
            move || {
                let mut bytes = [0; 3];
                let count = buffer.copy_front(&mut ReadRequest { offset: 101, buffer: &mut bytes });
                let expected = if answers { (3, [BYTE; 3]) } else { (0, [0; 3]) };
                assert_eq!((count, bytes), expected);
            }
        };
        let readers: Vec<_> =
            (0..readers).map(|_| thread::spawn(read(Arc::clone(&buffer)))).collect();
        Arc::clone(&buffer).fetch(&ServedFile { answers }, FetchMode::Now);
        readers.into_iter().for_each(|reader| reader.join().expect("it has read"));
    });
}

//! Files as [`ByteSource`]s: neighbouring requests are one system call.

use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::uio::preadv;

use super::{ByteSource, ReadRequest, ends_early, io_error};
use crate::error::Result;

impl ByteSource for File {
    fn size(&self) -> Result<u64> {
        let metadata = self.metadata().map_err(|source| io_error("stat", source))?;
        Ok(metadata.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_exact_at(buffer, offset).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => ends_early(offset, buffer.len()),
            _ => io_error("read", source),
        })
    }

    fn read_many(&self, mut requests: &mut [ReadRequest<'_>]) -> Result<()> {
        while !requests.is_empty() {
            let (together, rest) = requests.split_at_mut(contiguous(requests));
            read_together(self, together)?;
            requests = rest;
        }
        Ok(())
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            let (Ok(offset), Ok(size)) =
                (i64::try_from(range.start), i64::try_from(range.end.saturating_sub(range.start)))
            else {
                continue;
            };
            // If the kernel ignores the advice, reads are slower but still correct.
            let _ = posix_fadvise(self, offset, size, PosixFadviseAdvice::POSIX_FADV_WILLNEED);
        }
    }
}

/// Most buffers of one `preadv`, the kernel's own limit.
const BUFFERS_MAX: usize = 1024;

/// The number of leading requests that are contiguous in the file, at most [`BUFFERS_MAX`].
fn contiguous(requests: &[ReadRequest<'_>]) -> usize {
    let end = |request: &ReadRequest<'_>| request.offset.checked_add(request.buffer.len() as u64);
    let follows = requests.windows(2).take_while(|pair| end(&pair[0]) == Some(pair[1].offset));
    (follows.count() + 1).min(BUFFERS_MAX)
}

/// Fills contiguous requests with one system call; after a short read, the rest is read one by one.
fn read_together(file: &File, requests: &mut [ReadRequest<'_>]) -> Result<()> {
    let [first, _, ..] = requests else {
        return requests
            .iter_mut()
            .try_for_each(|one| ByteSource::read_at(file, one.offset, one.buffer));
    };
    let offset = first.offset;
    let mut buffers: Vec<_> =
        requests.iter_mut().map(|request| IoSliceMut::new(request.buffer)).collect();
    let read = i64::try_from(offset).map_or(Ok(0), |offset| preadv(file, &mut buffers, offset));
    let mut filled = read.map_err(|errno| io_error("read", errno.into()))?;
    for request in requests {
        let done = filled.min(request.buffer.len());
        filled -= done;
        if done < request.buffer.len() {
            let rest = &mut request.buffer[done..];
            ByteSource::read_at(file, request.offset + done as u64, rest)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn requests_are_filled_whether_or_not_they_are_contiguous() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..=255).collect();
        file.write_all(&bytes).unwrap();
        let mut buffers = [[0; 10], [0; 10], [0; 10], [0; 10]];
        let offsets = [20_u64, 30, 5, 246];
        let requests = buffers.iter_mut().zip(offsets);
        let mut requests: Vec<_> =
            requests.map(|(buffer, offset)| ReadRequest { offset, buffer }).collect();
        file.read_many(&mut requests).unwrap();
        for (buffer, offset) in buffers.iter().zip(offsets) {
            assert_eq!(buffer[..], bytes[offset as usize..][..10]);
        }
    }

    #[test]
    fn a_request_beyond_the_end_fails_at_any_position() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0; 100]).unwrap();
        for offsets in [[80, 90, 100], [200, 0, 10], [u64::MAX, 0, 10]] {
            let mut buffers = [[0; 10], [0; 10], [0; 10]];
            let requests = buffers.iter_mut().zip(offsets);
            let mut requests: Vec<_> =
                requests.map(|(buffer, offset)| ReadRequest { offset, buffer }).collect();
            assert!(file.read_many(&mut requests).is_err(), "{offsets:?}");
        }
    }
}

//! A file put together from pieces of another, pieces of memory, and zeros between them.

use std::ops::Range;

use crate::physical::StorageResult;

/// Pieces that neither overlap nor lie out of order.
#[derive(Debug, Default)]
pub(super) struct CompositeLayout {
    pieces: Vec<Piece>,
    /// Where it ends.
    size: u64,
    /// Bytes of memory in pieces.
    held: u64,
}

#[derive(Debug)]
struct Piece {
    range: Range<u64>,
    /// The bytes; none if they are those of the file at the same place.
    made: Option<Box<[u8]>>,
}

impl CompositeLayout {
    /// Pieces of the file at `stored`, and others that are made, each with its place; in any order.
    pub(super) fn new(
        stored: impl IntoIterator<Item = Range<u64>>,
        made: impl IntoIterator<Item = (u64, Vec<u8>)>,
    ) -> Self {
        let stored = stored.into_iter().map(|range| Piece { range, made: None });
        let made = made.into_iter().map(|(at, bytes)| Piece {
            range: at..at + bytes.len() as u64,
            made: Some(bytes.into_boxed_slice()),
        });
        let mut pieces: Vec<_> = stored.chain(made).collect();
        pieces.sort_by_key(|piece| piece.range.start);
        pieces.shrink_to_fit();
        let is_apart = |pair: &[Piece]| pair[0].range.end <= pair[1].range.start;
        assert!(pieces.windows(2).all(is_apart), "pieces do not overlap");
        let size = pieces.last().map_or(0, |piece| piece.range.end);
        let held =
            pieces.iter().filter_map(|piece| Some(piece.made.as_ref()?.len())).sum::<usize>();
        CompositeLayout { pieces, size, held: held as u64 }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> u64 {
        self.held + (self.pieces.len() * size_of::<Piece>()) as u64
    }

    /// Fills the buffer from `offset` on as far as there are bytes; how many. `read` reads from the
    /// file, at most once, or gives nothing where it would block; then this gives nothing.
    pub(super) fn fill(
        &self,
        offset: u64,
        buffer: &mut [u8],
        read: impl FnOnce(u64, &mut [u8]) -> StorageResult<Option<()>>,
    ) -> StorageResult<Option<usize>> {
        let size = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..size];
        let end = offset + size as u64;
        let first = self.pieces.partition_point(|piece| piece.range.end <= offset);
        let count = self.pieces[first..].partition_point(|piece| piece.range.start < end);
        let touching = &self.pieces[first..][..count];
        let within = |at: u64| (at.clamp(offset, end) - offset) as usize;
        if let Some(hull) = hull(touching)
            && read(
                offset + within(hull.start) as u64,
                &mut buffer[within(hull.start)..within(hull.end)],
            )?
            .is_none()
        {
            return Ok(None);
        }
        let mut done = 0;
        for piece in touching {
            let (start, end) = (within(piece.range.start), within(piece.range.end));
            buffer[done..start].fill(0);
            if let Some(made) = &piece.made {
                let skipped = (offset + start as u64 - piece.range.start) as usize;
                buffer[start..end].copy_from_slice(&made[skipped..][..end - start]);
            }
            done = end;
        }
        buffer[done..].fill(0);
        Ok(Some(size))
    }
}

/// From the first to the last piece of the file.
fn hull(pieces: &[Piece]) -> Option<Range<u64>> {
    let mut stored = pieces.iter().filter(|piece| piece.made.is_none()).map(|piece| &piece.range);
    let first = stored.next()?;
    Some(first.start..stored.next_back().unwrap_or(first).end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_has_the_bytes_of_its_pieces() {
        let file: Vec<u8> = (0..200).map(|at| 100 + at as u8 % 100).collect();
        let made = [(0, vec![1; 5]), (60, vec![2; 10]), (90, vec![3; 4])];
        let mosaic = CompositeLayout::new([10..20, 30..60, 70..80], made);
        assert_eq!(mosaic.size(), 94);
        let mut whole = [0; 94];
        for range in [10..20, 30..60, 70..80] {
            whole[range.clone()].copy_from_slice(&file[range]);
        }
        whole[..5].fill(1);
        whole[60..70].fill(2);
        whole[90..].fill(3);
        for start in 0..=100 {
            for size in 0..=100 {
                let mut buffer = vec![9; size];
                let read = |at: u64, into: &mut [u8]| {
                    into.copy_from_slice(&file[at as usize..][..into.len()]);
                    Ok(Some(()))
                };
                let filled = mosaic.fill(start, &mut buffer, read).unwrap().unwrap();
                let start = (start as usize).min(94);
                assert_eq!(buffer[..filled], whole[start..(start + size).min(94)]);
            }
        }
    }

    #[test]
    fn what_would_block_is_told() {
        let mosaic = CompositeLayout::new(std::iter::once(10..20), [(0, vec![1; 5])]);
        let blocked = |_: u64, _: &mut [u8]| Ok(None);
        assert_eq!(mosaic.fill(0, &mut [0; 10], blocked), Ok(Some(10)));
        assert_eq!(mosaic.fill(0, &mut [0; 11], blocked), Ok(None));
        assert_eq!(mosaic.fill(u64::MAX, &mut [0; 11], blocked), Ok(Some(0)));
    }
}

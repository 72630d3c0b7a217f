//! A file composed of ranges of another file, ranges in memory, and zeros between them.

use std::ops::Range;

use crate::physical::StorageResult;

/// Pieces that neither overlap nor lie out of order.
#[derive(Debug, Default)]
pub(super) struct CompositeLayout {
    pieces: Vec<LayoutPiece>,
    /// The end of the last piece.
    size: u64,
    /// Bytes of the pieces in memory.
    held: u64,
}

#[derive(Debug)]
struct LayoutPiece {
    range: Range<u64>,
    /// The bytes; `None` for a range that has the file's bytes at the same offset.
    synthesised: Option<Box<[u8]>>,
}

impl CompositeLayout {
    /// Composes ranges of the file with synthesised pieces, each with its offset; both in any order.
    pub(super) fn new(
        stored: impl IntoIterator<Item = Range<u64>>,
        synthesised: impl IntoIterator<Item = (u64, Vec<u8>)>,
    ) -> Self {
        let stored = stored.into_iter().map(|range| LayoutPiece { range, synthesised: None });
        let synthesised = synthesised.into_iter().map(|(at, bytes)| LayoutPiece {
            range: at..at + bytes.len() as u64,
            synthesised: Some(bytes.into_boxed_slice()),
        });
        let mut pieces: Vec<_> = stored.chain(synthesised).collect();
        pieces.sort_by_key(|piece| piece.range.start);
        pieces.shrink_to_fit();
        let is_apart = |pair: &[LayoutPiece]| pair[0].range.end <= pair[1].range.start;
        assert!(pieces.windows(2).all(is_apart), "pieces do not overlap");
        let size = pieces.last().map_or(0, |piece| piece.range.end);
        let held = pieces
            .iter()
            .filter_map(|piece| Some(piece.synthesised.as_ref()?.len()))
            .sum::<usize>();
        CompositeLayout { pieces, size, held: held as u64 }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of memory that the layout takes.
    pub(super) fn memory(&self) -> u64 {
        self.held + (self.pieces.len() * size_of::<LayoutPiece>()) as u64
    }

    /// Fills the buffer from `offset` on, and returns the number of bytes. `read` reads from the file, and is called at
    /// most once; if it returns `None` because it would block, so does this.
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
            if let Some(synthesised) = &piece.synthesised {
                let skipped = (offset + start as u64 - piece.range.start) as usize;
                buffer[start..end].copy_from_slice(&synthesised[skipped..][..end - start]);
            }
            done = end;
        }
        buffer[done..].fill(0);
        Ok(Some(size))
    }
}

/// The range from the first to the last of the pieces that are stored in the file.
fn hull(pieces: &[LayoutPiece]) -> Option<Range<u64>> {
    let mut stored =
        pieces.iter().filter(|piece| piece.synthesised.is_none()).map(|piece| &piece.range);
    let first = stored.next()?;
    Some(first.start..stored.next_back().unwrap_or(first).end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_has_the_bytes_of_its_pieces() {
        let file: Vec<u8> = (0..200).map(|at| 100 + at as u8 % 100).collect();
        let synthesised = [(0, vec![1; 5]), (60, vec![2; 10]), (90, vec![3; 4])];
        let layout = CompositeLayout::new([10..20, 30..60, 70..80], synthesised);
        assert_eq!(layout.size(), 94);
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
                let filled = layout.fill(start, &mut buffer, read).unwrap().unwrap();
                let start = (start as usize).min(94);
                assert_eq!(buffer[..filled], whole[start..(start + size).min(94)]);
            }
        }
    }

    #[test]
    fn fill_gives_none_if_the_read_would_block() {
        let layout = CompositeLayout::new(std::iter::once(10..20), [(0, vec![1; 5])]);
        let blocked = |_: u64, _: &mut [u8]| Ok(None);
        assert_eq!(layout.fill(0, &mut [0; 10], blocked), Ok(Some(10)));
        assert_eq!(layout.fill(0, &mut [0; 11], blocked), Ok(None));
        assert_eq!(layout.fill(u64::MAX, &mut [0; 11], blocked), Ok(Some(0)));
    }
}

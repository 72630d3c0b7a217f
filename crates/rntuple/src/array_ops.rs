//! Taking values out of arrays, and concatenating arrays.

use std::ops::Range;

use crate::array::{Array, bytes_of, values_of};
use crate::buffer::AlignedBuffer;
use crate::error::{Error, Result};

impl Array {
    /// The values at `positions`, in that order.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a position beyond the end.
    pub fn take(&self, positions: &[usize]) -> Result<Array> {
        let mut runs: Vec<Range<usize>> = vec![];
        for &position in positions {
            match runs.last_mut() {
                Some(run) if run.end == position => run.end += 1,
                _ => runs.push(position..position.saturating_add(1)),
            }
        }
        self.take_runs(&runs)
    }

    /// The values at runs of positions, one run after the other.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a position beyond the end.
    pub fn take_runs(&self, runs: &[Range<usize>]) -> Result<Array> {
        if let Some(beyond) = runs.iter().find(|run| run.start > run.end || run.end > self.len()) {
            return Err(Error::NotFound {
                what: "position",
                name: beyond.end.saturating_sub(1).to_string(),
                candidates: vec![format!("0..{}", self.len())],
            });
        }
        if let [all] = runs
            && *all == (0..self.len())
        {
            return Ok(self.clone());
        }
        match self {
            Array::Primitive { primitive, values } => {
                let values = take_values(values, primitive.size(), runs)?;
                Ok(Array::Primitive { primitive: *primitive, values })
            }
            Array::String { offsets, bytes } => {
                let (offsets, items) = take_offsets(offsets, runs)?;
                Ok(Array::String { offsets, bytes: take_values(bytes, 1, &items)? })
            }
            Array::List { offsets, content, optional } => {
                let (offsets, items) = take_offsets(offsets, runs)?;
                let content = content.take_runs(&items)?.into();
                Ok(Array::List { offsets, content, optional: *optional })
            }
            Array::Fixed { size, content, .. } => {
                let width = *size as usize;
                let items = runs.iter().map(|run| run.start * width..run.end * width);
                let content = content.take_runs(&items.collect::<Vec<_>>())?.into();
                Ok(Array::Fixed { size: *size, length: length_of_runs(runs), content })
            }
            Array::Record { members, .. } => {
                let take =
                    |(name, array): &(String, Array)| Ok((name.clone(), array.take_runs(runs)?));
                let members = members.iter().map(take).collect::<Result<_>>()?;
                Ok(Array::Record { length: length_of_runs(runs), members })
            }
            Array::Variant { tags, positions, contents } => Ok(Array::Variant {
                tags: take_values(tags, 1, runs)?,
                positions: take_values(positions, size_of::<i64>(), runs)?,
                contents: contents.clone(),
            }),
        }
    }

    /// All values of arrays of one type, one array after the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no array, or they are not of one type.
    pub fn concatenate(parts: &[Array]) -> Result<Array> {
        let first = match parts {
            [] => return Err(Error::invalid("there is nothing to concatenate")),
            [only] => return Ok(only.clone()),
            [first, ..] => first,
        };
        match first {
            Array::Primitive { primitive, .. } => {
                let values = parts.iter().map(|part| match part {
                    Array::Primitive { values, .. } => Ok(&values[..]),
                    _ => Err(unlike()),
                });
                let values = join(values.collect::<Result<Vec<_>>>()?)?;
                Ok(Array::Primitive { primitive: *primitive, values })
            }
            Array::String { .. } => {
                let pairs = parts.iter().map(|part| match part {
                    Array::String { offsets, bytes } => Ok((&offsets[..], bytes)),
                    _ => Err(unlike()),
                });
                let (offsets, bytes): (Vec<_>, Vec<_>) =
                    pairs.collect::<Result<Vec<_>>>()?.into_iter().unzip();
                let (offsets, ranges) = join_offsets(&offsets)?;
                let bytes = bytes.iter().zip(ranges).map(|(bytes, range)| &bytes[range]);
                Ok(Array::String { offsets, bytes: join(bytes.collect())? })
            }
            Array::List { optional, .. } => {
                let pairs = parts.iter().map(|part| match part {
                    Array::List { offsets, content, .. } => Ok((&offsets[..], &**content)),
                    _ => Err(unlike()),
                });
                let (offsets, contents): (Vec<_>, Vec<_>) =
                    pairs.collect::<Result<Vec<_>>>()?.into_iter().unzip();
                let (offsets, ranges) = join_offsets(&offsets)?;
                let contents = contents.iter().zip(ranges).map(|(content, range)| {
                    if range == (0..content.len()) {
                        Ok((*content).clone())
                    } else {
                        content.take_runs(&[range])
                    }
                });
                let content = Array::concatenate(&contents.collect::<Result<Vec<_>>>()?)?.into();
                Ok(Array::List { offsets, content, optional: *optional })
            }
            Array::Fixed { size, .. } => {
                let contents = parts.iter().map(|part| match part {
                    Array::Fixed { content, .. } => Ok((**content).clone()),
                    _ => Err(unlike()),
                });
                let content = Array::concatenate(&contents.collect::<Result<Vec<_>>>()?)?.into();
                Ok(Array::Fixed { size: *size, length: length_of(parts), content })
            }
            Array::Record { members, .. } => {
                let join_member = |(name, _): &(String, Array)| {
                    let arrays = parts.iter().map(|part| part.member(name).cloned());
                    let arrays = arrays.collect::<Option<Vec<_>>>().ok_or_else(unlike)?;
                    Ok((name.clone(), Array::concatenate(&arrays)?))
                };
                let members = members.iter().map(join_member).collect::<Result<_>>()?;
                Ok(Array::Record { length: length_of(parts), members })
            }
            Array::Variant { .. } => concatenate_variants(parts),
        }
    }
}

fn concatenate_variants(parts: &[Array]) -> Result<Array> {
    let (mut tags, mut positions) = (vec![], vec![]);
    let mut alternatives: Vec<Vec<Array>> = vec![];
    for part in parts {
        let Array::Variant { tags: more, positions: places, contents } = part else {
            return Err(unlike());
        };
        alternatives.resize_with(contents.len().max(alternatives.len()), Vec::new);
        let base = |tag: i8| match usize::try_from(tag) {
            Ok(chosen) => alternatives[chosen].iter().map(Array::len).sum::<usize>() as i64,
            Err(_) => 0,
        };
        let bases: Vec<i64> = (0..contents.len()).map(|chosen| base(chosen as i8)).collect();
        let more = values_of::<i8>(more)?;
        tags.extend_from_slice(more);
        positions.extend(
            more.iter().zip(values_of::<i64>(places)?).map(|(&tag, place)| {
                usize::try_from(tag).map_or(0, |chosen| bases[chosen] + place)
            }),
        );
        contents.iter().zip(&mut alternatives).for_each(|(content, of)| of.push(content.clone()));
    }
    let contents = alternatives.iter().map(|of| Array::concatenate(of)).collect::<Result<_>>()?;
    Ok(Array::Variant { tags: bytes_of(tags), positions: bytes_of(positions), contents })
}

fn length_of(parts: &[Array]) -> usize {
    parts.iter().map(Array::len).sum()
}

fn length_of_runs(runs: &[Range<usize>]) -> usize {
    runs.iter().map(Range::len).sum()
}

/// Copies values of `size` bytes at runs of positions to aligned memory.
fn take_values(values: &[u8], size: usize, runs: &[Range<usize>]) -> Result<bytes::Bytes> {
    join(runs.iter().map(|run| &values[run.start * size..run.end * size]).collect())
}

/// New offsets of the lists at runs of positions, and the runs of their items in the old content.
fn take_offsets(
    offsets: &[u8],
    runs: &[Range<usize>],
) -> Result<(bytes::Bytes, Vec<Range<usize>>)> {
    let offsets = values_of::<i64>(offsets)?;
    let mut taken = Vec::with_capacity(length_of_runs(runs) + 1);
    let mut items = Vec::with_capacity(runs.len());
    let mut end = 0_i64;
    taken.push(end);
    for run in runs.iter().filter(|run| !run.is_empty()) {
        let base = end - offsets[run.start];
        taken.extend(offsets[run.start + 1..=run.end].iter().map(|offset| base + offset));
        items.push(offsets[run.start] as usize..offsets[run.end] as usize);
        end = base + offsets[run.end];
    }
    Ok((bytes_of(taken), items))
}

fn join(parts: Vec<&[u8]>) -> Result<bytes::Bytes> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut joined = AlignedBuffer::for_overwriting(length as u64, 1)?;
    let mut rest = joined.bytes_mut();
    for part in parts {
        let (out, behind) = rest.split_at_mut(part.len());
        out.copy_from_slice(part);
        rest = behind;
    }
    Ok(joined.into_bytes())
}

/// Concatenated offsets, and for each part the range of items that its offsets refer to.
fn join_offsets(parts: &[&[u8]]) -> Result<(bytes::Bytes, Vec<Range<usize>>)> {
    let mut joined = vec![0_i64];
    let mut ranges = Vec::with_capacity(parts.len());
    let mut base = 0;
    for part in parts {
        let offsets = values_of::<i64>(part)?;
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        joined.extend(offsets[1..].iter().map(|offset| base + offset - first));
        ranges.push(first as usize..last as usize);
        base += last - first;
    }
    Ok((bytes_of(joined), ranges))
}

fn unlike() -> Error {
    Error::invalid("arrays of different types cannot be concatenated")
}

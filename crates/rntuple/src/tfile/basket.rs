//! Baskets of plain numbers, the pages of a TTree's branch.
//!
//! A basket is a key. Its header ends with the fields of TBasket. Its payload has the numbers and then, if
//! entries are lists, the offset of each entry from the start of the key.
//!
//! Baskets with displacements, offsets of bits, or objects are refused as corrupt: the caller needs a
//! reader of trees, such as uproot.
//!
//! Source: ROOT's TBasket::Streamer and TKey::Streamer, and files that ROOT and uproot wrote.

use std::ops::Range;

use super::decode_key_header;
use crate::compression::{decompress, uncompressed_size_max};
use crate::error::{Error, Result};
use crate::wire::Reader;

/// Bytes of the fields of TBasket: a version, four integers, and a flag.
const FIELDS_SIZE: usize = 19;
const OFFSET_SIZE: usize = 4;

/// The type of a branch's numbers, and the positions of its baskets in the file.
#[derive(Clone, Copy, Debug)]
pub struct Branch<'a> {
    /// Whether an entry is a list of items; otherwise it is one item.
    pub is_list: bool,
    /// Numbers in an item; more than 1 for arrays of a fixed size.
    pub count: usize,
    /// Bytes of a number: 1, 2, 4 or 8.
    pub size: usize,
    /// Position of the key of each basket.
    pub places: &'a [i64],
    /// The first entry of each basket, and the end of the last basket's entries.
    pub edges: &'a [i64],
}

/// Numbers of some entries of a branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchNumbers {
    /// The numbers in the byte order of this machine.
    pub values: Vec<u8>,
    /// For lists, the offsets of the entries' items from 0 on, one more than there are entries.
    pub offsets: Vec<i64>,
}

impl Branch<'_> {
    /// Reads entries from the bytes of the whole file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a basket is damaged, of an unsupported kind, or lacks entries.
    pub fn read(&self, file: &[u8], entries: Range<i64>) -> Result<BranchNumbers> {
        let item = self.count.checked_mul(self.size).filter(|size| *size > 0);
        let item = item.ok_or_else(|| Error::invalid("items without a size"))?;
        let mut found = BranchNumbers::default();
        if self.is_list {
            found.offsets.push(0);
        }
        let mut next = entries.start;
        for (edge, &place) in self.edges.windows(2).zip(self.places) {
            if edge[1] <= next || next >= entries.end {
                continue;
            }
            if edge[0] > next {
                return Err(corrupt(place, "its entries do not follow those of the basket before"));
            }
            let last = edge[1].min(entries.end);
            let wanted = (next - edge[0]) as usize..(last - edge[0]) as usize;
            let basket = Basket::read(file, place, edge[1] - edge[0])?;
            let (numbers, starts) = basket.payload.split_at(basket.border);
            let range = if self.is_list {
                basket.lists(item, starts, wanted, &mut found.offsets)?
            } else {
                basket.items(item, wanted)?
            };
            found.values.extend_from_slice(&numbers[range]);
            next = last;
        }
        if next < entries.end {
            return Err(corrupt(0, format!("the baskets end before entry {next}")));
        }
        swap_bytes(&mut found.values, self.size);
        Ok(found)
    }
}

/// A decompressed basket.
struct Basket {
    place: i64,
    header_size: usize,
    entries: usize,
    payload: Vec<u8>,
    /// Bytes of numbers at the front of the payload.
    border: usize,
}

impl Basket {
    fn read(file: &[u8], place: i64, entries: i64) -> Result<Self> {
        let too_far = || corrupt(place, "it is not in the file");
        let start = usize::try_from(place).map_err(|_| too_far())?;
        let key = decode_key_header(file.get(start..).ok_or_else(too_far)?)?;
        let header_size = usize::from(key.header_size);
        let end = start.checked_add(key.size as usize).ok_or_else(too_far)?;
        let bytes = file.get(start..end).ok_or_else(too_far)?;
        if key.gap || header_size < FIELDS_SIZE {
            return Err(corrupt(place, "its key is not that of a basket"));
        }
        let (header, stored) = bytes.split_at(header_size);
        let mut fields = Reader::new("basket", &header[header_size - FIELDS_SIZE..], place as u64);
        let _version = fields.u16_be()?;
        let _buffer_size = fields.i32_be()?;
        let _entry_size = fields.i32_be()?;
        let stated = fields.i32_be()?;
        let last = fields.i32_be()? as usize;
        let length = key.length as usize;
        let border = last.wrapping_sub(header_size);
        if i64::from(stated) != entries || border > length {
            return Err(corrupt(place, format!("it has {stated} entries, not {entries}")));
        }
        if key.length as u64 > uncompressed_size_max(stored.len() as u64) {
            return Err(corrupt(place, format!("{} bytes cannot hold {length}", stored.len())));
        }
        let mut payload = vec![0; length];
        decompress(stored, &mut payload)?;
        Ok(Basket { place, header_size, entries: entries as usize, payload, border })
    }

    /// The byte range of entries of one item each.
    fn items(&self, item: usize, wanted: Range<usize>) -> Result<Range<usize>> {
        if self.entries.checked_mul(item) != Some(self.border) {
            return Err(corrupt(self.place, "its entries are of another size"));
        }
        Ok(wanted.start * item..wanted.end * item)
    }

    /// Appends the end offsets of lists; returns the byte range of their items.
    fn lists(
        &self,
        item: usize,
        starts: &[u8],
        wanted: Range<usize>,
        offsets: &mut Vec<i64>,
    ) -> Result<Range<usize>> {
        // The number of offsets comes first. The last offset is 0, not the end of the last entry.
        if starts.len() != (self.entries + 2) * OFFSET_SIZE {
            return Err(corrupt(self.place, "it does not have one offset for each entry"));
        }
        let (starts, _) = starts.as_chunks::<OFFSET_SIZE>();
        let start_of = |entry: usize| {
            let start = if entry == self.entries {
                self.border
            } else {
                (u32::from_be_bytes(starts[entry + 1]) as usize).wrapping_sub(self.header_size)
            };
            let is_good = start <= self.border && start.is_multiple_of(item);
            is_good.then_some(start).ok_or_else(|| corrupt(self.place, "an offset is wrong"))
        };
        let begin = start_of(wanted.start)?;
        let before = offsets.last().copied().unwrap_or(0);
        let mut end = begin;
        offsets.reserve(wanted.len());
        for entry in wanted {
            let next = start_of(entry + 1)?;
            if next < end {
                return Err(corrupt(self.place, "its offsets decrease"));
            }
            end = next;
            offsets.push(before + ((end - begin) / item) as i64);
        }
        Ok(begin..end)
    }
}

/// Converts numbers of `size` bytes from big-endian, the byte order of the file, to that of this machine.
fn swap_bytes(values: &mut [u8], size: usize) {
    fn swap<const N: usize>(values: &mut [u8]) {
        values.as_chunks_mut::<N>().0.iter_mut().for_each(|number| number.reverse());
    }
    match size {
        2 => swap::<2>(values),
        4 => swap::<4>(values),
        8 => swap::<8>(values),
        _ => {}
    }
}

fn corrupt(place: i64, reason: impl Into<String>) -> Error {
    Error::corrupt("basket", place as u64, reason)
}

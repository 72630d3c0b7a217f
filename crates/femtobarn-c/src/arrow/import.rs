//! Arrays from Arrow's C structures, as a class stores them. All values are copied, so the structures keep their owner.
//!
//! The type of the field decides: integers, reals and texts must have exactly this type; `utf8` and `list` with 32-bit
//! offsets are accepted, too. Lengths, offsets, formats and nulls are checked, but buffers cannot be; values below a
//! null are ignored.

use std::ffi::{CStr, c_char};

use bytes::Bytes;
use femtobarn::Result;
use rntuple::{Array, Primitive, bytes_of, values_of};

use super::abi::{ArrowArray, ArrowSchema};
use super::schema::format_of;
use crate::status::invalid;

/// A part of an array, with its type and its path for messages.
struct ArrowPart<'a> {
    schema: &'a ArrowSchema,
    array: &'a ArrowArray,
    /// The first value, counted from the beginning of the buffers.
    first: usize,
    length: usize,
    path: String,
}

/// The objects in a structure of Arrow, in the form of `expected`.
///
/// # Errors
/// `Invalid` with the path of the field that does not fit, and the reason.
///
/// # Safety
/// Both are as the interface demands, not released, and live for the call.
pub(crate) unsafe fn imported(
    schema: &ArrowSchema,
    array: &ArrowArray,
    expected: &Array,
) -> Result<Array> {
    if schema.release.is_none() || array.release.is_none() {
        return Err(invalid("the schema or the array was released before"));
    }
    let part = ArrowPart {
        schema,
        array,
        first: number(array.offset)?,
        length: number(array.length)?,
        path: String::new(),
    };
    // SAFETY: the caller's.
    unsafe { part.as_expected(expected, None) }
}

fn number(value: i64) -> Result<usize> {
    usize::try_from(value)
        .map_err(|_| invalid(format!("an array has the length or offset {value}")))
}

impl ArrowPart<'_> {
    /// # Safety
    /// The requirements of [`imported`], here and in all functions below.
    ///
    /// `counted` marks the values that count, those below no null; `None` stands for all.
    unsafe fn as_expected(&self, expected: &Array, counted: Option<&[bool]>) -> Result<Array> {
        if !self.schema.dictionary.is_null() || !self.array.dictionary.is_null() {
            return Err(self.unfit("it is encoded with a dictionary: decode it before"));
        }
        let may_be_null = matches!(expected, Array::List { optional: true, .. });
        // SAFETY: the caller's.
        let present = if may_be_null { None } else { unsafe { self.present() }? };
        if let Some(present) = present {
            let is_missing = |at: &usize| !present[*at] && counted.is_none_or(|it| it[*at]);
            if let Some(at) = (0..self.length).find(is_missing) {
                return Err(
                    self.unfit(format!("value {at} is null, and the field is not optional"))
                );
            }
        }
        // SAFETY: the caller's.
        unsafe {
            match expected {
                Array::Primitive { primitive, .. } => self.numbers(*primitive),
                Array::String { .. } => self.texts(),
                Array::List { content, optional: true, .. } => self.optional(content, counted),
                Array::List { content, .. } => self.lists(content, counted),
                Array::Fixed { size, content, .. } => self.fixed(*size, content, counted),
                Array::Record { members, .. } => self.record(members, counted),
                Array::Variant { contents, .. } => self.variant(contents),
            }
        }
    }

    fn unfit(&self, why: impl std::fmt::Display) -> femtobarn::Error {
        let path = if self.path.is_empty() { "the objects" } else { &self.path };
        invalid(format!("{path}: {why}"))
    }

    fn format(&self) -> Result<&str> {
        // SAFETY: the interface demands a text.
        let format = unsafe { c_str(self.schema.format) };
        format.ok_or_else(|| self.unfit("its type has no format"))
    }

    fn expect_format(&self, known: &[&str]) -> Result<()> {
        match self.format()? {
            format if known.contains(&format) => Ok(()),
            other => {
                Err(self.unfit(format!("it has Arrow's format {other:?}, not {:?}", known[0])))
            }
        }
    }

    /// Values of a buffer: `count` of them from the one at `first`.
    unsafe fn buffer(
        &self,
        index: usize,
        first: usize,
        count: usize,
        size: usize,
    ) -> Result<&[u8]> {
        let known = usize::try_from(self.array.n_buffers).unwrap_or(0);
        if count == 0 {
            return Ok(&[]);
        }
        if index >= known || self.array.buffers.is_null() {
            return Err(self.unfit(format!("it has {known} buffers")));
        }
        let bytes = first.checked_add(count).and_then(|end| end.checked_mul(size));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(self.unfit("it is too long"));
        }
        // SAFETY: the interface's array has this number of buffers, each as long as its length requires.
        unsafe {
            let start = (*self.array.buffers.add(index)).cast::<u8>();
            if start.is_null() {
                return Err(self.unfit(format!("its buffer {index} is NULL")));
            }
            Ok(std::slice::from_raw_parts(start.add(first * size), count * size))
        }
    }

    /// A copy of values of a buffer, aligned to 8 bytes.
    unsafe fn copied(
        &self,
        index: usize,
        first: usize,
        count: usize,
        size: usize,
    ) -> Result<Bytes> {
        // SAFETY: the caller's.
        let bytes = unsafe { self.buffer(index, first, count, size) }?;
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes_of(words).slice(..bytes.len()))
    }

    /// Bits of a buffer as truth values.
    unsafe fn bits(&self, index: usize) -> Result<Vec<bool>> {
        let (first, end) = (self.first / 8, (self.first + self.length).div_ceil(8));
        // SAFETY: the caller's.
        let bytes = unsafe { self.buffer(index, first, end - first, 1) }?;
        let bit = |at: usize| bytes[at / 8 - first] >> (at % 8) & 1 == 1;
        Ok((self.first..self.first + self.length).map(bit).collect())
    }

    /// Which values are not null; none if all are, so that a length which nothing has checked allocates nothing.
    unsafe fn present(&self) -> Result<Option<Vec<bool>>> {
        let has_validity = !matches!(self.format()?, "n" | "") && !self.format()?.starts_with("+u");
        let buffers = usize::try_from(self.array.n_buffers).unwrap_or(0);
        // SAFETY: the interface's array has this buffer.
        let has_bits = buffers > 0
            && !self.array.buffers.is_null()
            && !unsafe { (*self.array.buffers).is_null() };
        if !has_validity || self.array.null_count == 0 || !has_bits {
            return Ok(None);
        }
        // SAFETY: the caller's.
        Ok(Some(unsafe { self.bits(0) }?))
    }

    /// A part of a child.
    unsafe fn child(&self, index: usize, first: usize, length: usize) -> Result<ArrowPart<'_>> {
        let count = self.schema.n_children.min(self.array.n_children);
        let has_child = usize::try_from(count).is_ok_and(|count| index < count);
        if !has_child || self.schema.children.is_null() || self.array.children.is_null() {
            return Err(self.unfit(format!("its type or its array has {count} children")));
        }
        // SAFETY: the interface's structures have this number of children.
        let (schema, array) = unsafe {
            let schema = (*self.schema.children.add(index)).as_ref();
            (schema, (*self.array.children.add(index)).as_ref())
        };
        let (Some(schema), Some(array)) = (schema, array) else {
            return Err(self.unfit("a child is NULL"));
        };
        if schema.release.is_none() || array.release.is_none() {
            return Err(self.unfit(format!("its child {index} was released or moved before")));
        }
        // SAFETY: the interface demands a text or NULL.
        let name = unsafe { c_str(schema.name) }.unwrap_or("");
        let path =
            if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let behind = first.checked_add(length);
        if behind.is_none_or(|behind| behind > number(array.length).unwrap_or(0)) {
            return Err(self.unfit(format!("its child {name:?} has {} values", array.length)));
        }
        Ok(ArrowPart { schema, array, first: number(array.offset)? + first, length, path })
    }

    unsafe fn numbers(&self, primitive: Primitive) -> Result<Array> {
        self.expect_format(&[format_of(primitive)])?;
        // SAFETY: the caller's.
        let values = unsafe {
            match primitive {
                Primitive::Bool => {
                    bytes_of(self.bits(1)?.into_iter().map(u8::from).collect::<Vec<_>>())
                }
                _ => self.copied(1, self.first, self.length, primitive.size())?,
            }
        };
        Ok(Array::Primitive { primitive, values })
    }

    /// Offsets of 64 bits, counted from 0, and the first one as it was.
    unsafe fn offsets(&self) -> Result<(Vec<i64>, usize)> {
        let is_large = matches!(self.format()?, "U" | "+L");
        // SAFETY: the caller's.
        let offsets: Vec<i64> = unsafe {
            match (self.length, is_large) {
                (0, _) => vec![0],
                (_, true) => {
                    let bytes = self.copied(1, self.first, self.length + 1, 8)?;
                    whole::<i64>(&bytes)?.to_vec()
                }
                (_, false) => {
                    let bytes = self.copied(1, self.first, self.length + 1, 4)?;
                    whole::<i32>(&bytes)?.iter().map(|offset| i64::from(*offset)).collect()
                }
            }
        };
        let first = offsets[0];
        if first < 0 || offsets.windows(2).any(|pair| pair[1] < pair[0]) {
            return Err(self.unfit("its offsets decrease or are negative"));
        }
        Ok((offsets.into_iter().map(|offset| offset - first).collect(), first as usize))
    }

    unsafe fn texts(&self) -> Result<Array> {
        self.expect_format(&["U", "u"])?;
        // SAFETY: the caller's.
        unsafe {
            let (offsets, first) = self.offsets()?;
            let bytes = self.copied(2, first, offsets[self.length] as usize, 1)?;
            let is_text = std::str::from_utf8(&bytes)
                .is_ok_and(|all| offsets.iter().all(|at| all.is_char_boundary(*at as usize)));
            if !is_text {
                return Err(self.unfit("a string is not UTF-8"));
            }
            Ok(Array::String { offsets: bytes_of(offsets), bytes })
        }
    }

    unsafe fn lists(&self, content: &Array, counted: Option<&[bool]>) -> Result<Array> {
        self.expect_format(&["+L", "+l"])?;
        // SAFETY: the caller's.
        unsafe {
            let (offsets, first) = self.offsets()?;
            let items = self.child(0, first, offsets[self.length] as usize)?;
            let size = |at: usize| (offsets[at + 1] - offsets[at]) as usize;
            let counted = counted.map(|it| spread(it, size));
            let content = items.as_expected(content, counted.as_deref())?.into();
            Ok(Array::List { offsets: bytes_of(offsets), content, optional: false })
        }
    }

    /// The values that are not null, each a list of one.
    unsafe fn optional(&self, content: &Array, counted: Option<&[bool]>) -> Result<Array> {
        // SAFETY: the caller's.
        let present = unsafe { self.present() }?;
        let needed: Option<Vec<bool>> = match (&present, counted) {
            (Some(present), Some(counted)) => {
                Some(present.iter().zip(counted).map(|(a, b)| *a && *b).collect())
            }
            (Some(only), None) => Some(only.clone()),
            (None, counted) => counted.map(<[bool]>::to_vec),
        };
        // SAFETY: the caller's.
        let all = unsafe { self.as_expected(content, needed.as_deref()) }?;
        let present = present.unwrap_or_else(|| vec![true; self.length]);
        let mut offsets = vec![0_i64];
        let mut places = vec![];
        for (place, _) in present.iter().enumerate().filter(|(_, present)| **present) {
            offsets.resize(place + 1, places.len() as i64);
            places.push(place);
        }
        offsets.resize(self.length + 1, places.len() as i64);
        let content = all.take(&places).map_err(|error| invalid(error.to_string()))?.into();
        Ok(Array::List { offsets: bytes_of(offsets), content, optional: true })
    }

    unsafe fn fixed(&self, size: u64, content: &Array, counted: Option<&[bool]>) -> Result<Array> {
        self.expect_format(&[&format!("+w:{size}")])?;
        let width = size as usize;
        let (first, count) = (self.first.checked_mul(width), self.length.checked_mul(width));
        let (Some(first), Some(count)) = (first, count) else {
            return Err(self.unfit("it is too long"));
        };
        // SAFETY: the caller's.
        let items = unsafe { self.child(0, first, count) }?;
        let counted = counted.map(|it| spread(it, |_| width));
        // SAFETY: the caller's.
        let content = unsafe { items.as_expected(content, counted.as_deref()) }?;
        Ok(Array::Fixed { size, length: self.length, content: content.into() })
    }

    unsafe fn record(
        &self,
        members: &[(String, Array)],
        counted: Option<&[bool]>,
    ) -> Result<Array> {
        self.expect_format(&["+s"])?;
        let children = number(self.schema.n_children)?;
        let mut found: Vec<(String, ArrowPart<'_>)> = vec![];
        for index in 0..children {
            // SAFETY: the caller's.
            let child = unsafe { self.child(index, self.first, self.length) }?;
            // SAFETY: the interface demands a text or NULL.
            let name = unsafe { c_str(child.schema.name) }.unwrap_or("").to_owned();
            if !members.iter().any(|(member, _)| *member == name) {
                return Err(self.unfit(format!("the class has no field {name:?}")));
            }
            if found.iter().any(|(other, _)| *other == name) {
                return Err(self.unfit(format!("it has {name:?} twice")));
            }
            found.push((name, child));
        }
        let import = |(name, expected): &(String, Array)| {
            let child = found.iter().find(|(member, _)| member == name);
            let (_, child) = child.ok_or_else(|| self.unfit(format!("{name:?} is missing")))?;
            // SAFETY: the caller's.
            Ok((name.clone(), unsafe { child.as_expected(expected, counted) }?))
        };
        let members = members.iter().map(import).collect::<Result<_>>()?;
        Ok(Array::Record { length: self.length, members })
    }

    /// A dense union with the alternatives as its children, and, if there is one more, no value in that.
    unsafe fn variant(&self, alternatives: &[Array]) -> Result<Array> {
        let format = self.format()?.to_owned();
        let codes = format.strip_prefix("+ud:").map(|codes| codes.split(',').map(str::parse::<i8>));
        let codes = codes.map(|codes| codes.collect::<std::result::Result<Vec<i8>, _>>());
        let Some(Ok(codes)) = codes else {
            return Err(self.unfit(format!("it has Arrow's format {format:?}, not a dense union")));
        };
        let fits = match codes.len().checked_sub(alternatives.len()) {
            Some(0) => true,
            // SAFETY: the caller's.
            Some(1) => unsafe { self.child(alternatives.len(), 0, 0) }?.format()? == "n",
            _ => false,
        };
        if !fits {
            let count = alternatives.len();
            return Err(
                self.unfit(format!("its union has not the {count} alternatives of the field"))
            );
        }
        // SAFETY: the caller's.
        let (tags, positions) = unsafe {
            (
                self.copied(0, self.first, self.length, 1)?,
                self.copied(1, self.first, self.length, 4)?,
            )
        };
        let place = |tag: &i8| codes.iter().position(|code| code == tag);
        let places: Option<Vec<usize>> = whole::<i8>(&tags)?.iter().map(place).collect();
        let places = places.ok_or_else(|| self.unfit("a type code is unknown"))?;
        let has = |at: &usize| *at < alternatives.len();
        let tags: Vec<i8> = places.iter().map(|at| if has(at) { *at as i8 } else { -1 }).collect();
        let positions = whole::<i32>(&positions)?.iter().zip(&places);
        let positions: Vec<i64> =
            positions.map(|(at, place)| if has(place) { i64::from(*at) } else { 0 }).collect();
        let contents = alternatives.iter().enumerate().map(|(index, expected)| {
            // SAFETY: the caller's.
            let length = unsafe { self.child(index, 0, 0) }?.array.length;
            // SAFETY: the caller's.
            unsafe { self.child(index, 0, number(length)?)?.as_expected(expected, None) }
        });
        let contents = contents.collect::<Result<_>>()?;
        Ok(Array::Variant { tags: bytes_of(tags), positions: bytes_of(positions), contents })
    }
}

/// Repeats the value of each list for each of its items; `size` returns the number of a list's items.
fn spread(of_lists: &[bool], size: impl Fn(usize) -> usize) -> Vec<bool> {
    let lists = of_lists.iter().enumerate();
    lists.flat_map(|(at, counts)| std::iter::repeat_n(*counts, size(at))).collect()
}

fn whole<T: bytemuck::Pod>(bytes: &[u8]) -> Result<&[T]> {
    values_of(bytes).map_err(|error| invalid(error.to_string()))
}

/// # Safety
/// `text` is NULL or ends with NUL, and lives for `'a`.
unsafe fn c_str<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller's.
    if text.is_null() { None } else { unsafe { CStr::from_ptr(text) }.to_str().ok() }
}

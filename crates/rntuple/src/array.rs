//! Columnar data in memory, which readers return and writers take. The layout is that of Awkward Array
//! and Arrow, so arrays are exchanged with either without copying.
//!
//! Invariants (checked by [`Array::validate`], relied on by writers):
//! 1. Primitive buffers are native little-endian, a whole number of values, aligned to the value.
//! 2. Offsets are `i64`, one more than there are lists; they never decrease, and may start at any value.
//! 3. The content of a list is at least as long as its last offset.
//! 4. All members of a record have the record's length.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::types::Primitive;

/// A column of values of one [`Type`](crate::Type).
#[derive(Clone, Debug)]
pub enum Array {
    /// Fixed-size values, back to back.
    Primitive {
        /// Type of the values.
        primitive: Primitive,
        /// The values.
        values: Bytes,
    },
    /// UTF-8 strings.
    String {
        /// `i64` byte offsets into `bytes`.
        offsets: Bytes,
        /// The characters of all strings.
        bytes: Bytes,
    },
    /// Lists of any length. An optional value is a list of zero or one item, marked `optional`.
    List {
        /// `i64` offsets into `content`.
        offsets: Bytes,
        /// The items of all lists.
        content: Box<Array>,
        /// Whether each list represents an optional value: one item if it is present, else none.
        optional: bool,
    },
    /// Lists of `size` items each.
    Fixed {
        /// Items in each list.
        size: u64,
        /// Number of lists.
        length: usize,
        /// The items of all lists.
        content: Box<Array>,
    },
    /// Records.
    Record {
        /// Number of records.
        length: usize,
        /// Members by name, in order.
        members: Vec<(String, Array)>,
    },
    /// Values, each of one of several types.
    Variant {
        /// `i8` number of the alternative, counted from 0; -1 for a variant with no value.
        tags: Bytes,
        /// `i64` position in the content of the alternative.
        positions: Bytes,
        /// The values of each alternative.
        contents: Vec<Array>,
    },
}

impl Array {
    /// An array of fixed-size values.
    pub fn primitive<T: bytemuck::Pod + Send>(primitive: Primitive, values: Vec<T>) -> Self {
        debug_assert_eq!(size_of::<T>(), primitive.size());
        Array::Primitive { primitive, values: bytes_of(values) }
    }

    /// Number of values, strings, lists or records.
    pub fn len(&self) -> usize {
        match self {
            Array::Primitive { primitive, values } => values.len() / primitive.size(),
            Array::String { offsets, .. } | Array::List { offsets, .. } => {
                (offsets.len() / size_of::<i64>()).saturating_sub(1)
            }
            Array::Fixed { length, .. } | Array::Record { length, .. } => *length,
            Array::Variant { tags, .. } => tags.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The member of a record array by name.
    pub fn member(&self, name: &str) -> Option<&Array> {
        match self {
            Array::Record { members, .. } => {
                members.iter().find(|(member, _)| member == name).map(|(_, array)| array)
            }
            _ => None,
        }
    }
}

/// Converts a vector into shared bytes without copying.
pub fn bytes_of<T: bytemuck::Pod + Send>(values: Vec<T>) -> Bytes {
    struct VecOwner<T>(Vec<T>);
    impl<T: bytemuck::Pod> AsRef<[u8]> for VecOwner<T> {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(&self.0)
        }
    }
    Bytes::from_owner(VecOwner(values))
}

/// Views the bytes as values of `T`.
///
/// # Errors
/// [`Error::Invalid`] if they are not aligned to `T` or not a whole number of values.
pub fn values_of<T: bytemuck::Pod>(bytes: &[u8]) -> Result<&[T]> {
    if bytes.is_empty() {
        // Empty buffers from other languages may have pointers that are not aligned.
        return Ok(&[]);
    }
    bytemuck::try_cast_slice(bytes).map_err(|reason| Error::Invalid {
        what: format!(
            "a buffer of {} bytes does not hold whole aligned values: {reason}",
            bytes.len()
        ),
    })
}

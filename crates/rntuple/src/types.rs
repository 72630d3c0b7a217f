//! The logical types of fields. [`Schema`](crate::Schema) describes their layout on disk.

use crate::column::Element;
use crate::encoding::single_rounding;

/// A number, character or truth value of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Primitive {
    /// One byte in memory, 0 or 1; one bit on disk.
    Bool,
    Byte,
    Char,
    Int8,
    UInt8,
    Int16,
    UInt16,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Float32,
    Float64,
}

impl Primitive {
    /// Bytes of one value in memory.
    pub const fn size(self) -> usize {
        use Primitive::*;
        match self {
            Bool | Byte | Char | Int8 | UInt8 => 1,
            Int16 | UInt16 => 2,
            Int32 | UInt32 | Float32 => 4,
            Int64 | UInt64 | Float64 => 8,
        }
    }

    /// The element of a column that holds such values in memory.
    pub(crate) const fn element(self) -> Element {
        match self {
            Primitive::Bool | Primitive::Byte | Primitive::Char | Primitive::UInt8 => Element::U8,
            Primitive::Int8 => Element::I8,
            Primitive::Int16 => Element::I16,
            Primitive::UInt16 => Element::U16,
            Primitive::Int32 => Element::I32,
            Primitive::UInt32 => Element::U32,
            Primitive::Int64 => Element::I64,
            Primitive::UInt64 => Element::U64,
            Primitive::Float32 => Element::F32,
            Primitive::Float64 => Element::F64,
        }
    }

    /// The range of integers of the type; `None` for real numbers.
    pub const fn integer_range(self) -> Option<std::ops::RangeInclusive<i128>> {
        use Primitive::*;
        Some(match self {
            Bool => 0..=1,
            Byte | Char | UInt8 => 0..=u8::MAX as i128,
            Int8 => i8::MIN as i128..=i8::MAX as i128,
            Int16 => i16::MIN as i128..=i16::MAX as i128,
            UInt16 => 0..=u16::MAX as i128,
            Int32 => i32::MIN as i128..=i32::MAX as i128,
            UInt32 => 0..=u32::MAX as i128,
            Int64 => i64::MIN as i128..=i64::MAX as i128,
            UInt64 => 0..=u64::MAX as i128,
            Float32 | Float64 => return None,
        })
    }

    /// The nearest real number of the type.
    pub(crate) fn rounded(self, value: f64) -> f64 {
        match self {
            Primitive::Float32 => f64::from(value as f32),
            _ => value,
        }
    }

    /// The C++ name that ROOT gives the type, such as `std::int32_t`.
    pub const fn cpp_name(self) -> &'static str {
        use Primitive::*;
        match self {
            Bool => "bool",
            Byte => "std::byte",
            Char => "char",
            Int8 => "std::int8_t",
            UInt8 => "std::uint8_t",
            Int16 => "std::int16_t",
            UInt16 => "std::uint16_t",
            Int32 => "std::int32_t",
            UInt32 => "std::uint32_t",
            Int64 => "std::int64_t",
            UInt64 => "std::uint64_t",
            Float32 => "float",
            Float64 => "double",
        }
    }
}

/// How a real number is stored on disk; in memory it is a `float` or `double`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precision {
    /// IEEE-754 half precision, 2 bytes (`Real16`).
    Half,
    /// Single precision on disk, `double` in memory (ROOT's `Double32_t`).
    Single,
    /// The uppermost 10 to 31 bits of a single precision number (`Real32Trunc`).
    Truncated {
        /// Bits kept, 10 to 31.
        bits: u16,
    },
    /// An integer of `bits` bits that divides the range evenly (`Real32Quant`).
    Quantised {
        /// Bits on disk, 1 to 32.
        bits: u16,
        /// Least value.
        min: f64,
        /// Greatest value.
        max: f64,
    },
}

impl Precision {
    /// Whether a number can be stored. A quantised number must be in the range, up to a rounding error
    /// of single precision; any other finite number must stay finite.
    pub(crate) fn holds(&self, value: f64) -> bool {
        match self {
            Precision::Half => (value as f32).abs() < HALF_LIMIT || !value.is_finite(),
            Precision::Single | Precision::Truncated { .. } => {
                (value as f32).is_finite() || !value.is_finite()
            }
            Precision::Quantised { min, max, .. } => {
                let rounding = single_rounding(*min, *max);
                (min - rounding..=max + rounding).contains(&value)
            }
        }
    }

    /// The reason why a number cannot be stored.
    pub(crate) fn refusal(&self, value: f64) -> String {
        match self {
            Precision::Half => format!("{value} is too large for half precision"),
            Precision::Single | Precision::Truncated { .. } => {
                format!("{value} is too large for single precision")
            }
            Precision::Quantised { .. } => format!("{value} is outside the quantised range"),
        }
    }
}

/// The least number that rounds to infinity in half precision.
const HALF_LIMIT: f32 = 65_520.0;

/// The logical type of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A number, character or truth value.
    Primitive(Primitive),
    /// A `Float32` or `Float64` stored with less than its full precision.
    Reduced(Primitive, Precision),
    /// UTF-8 text.
    String,
    /// Any number of items.
    List(Box<Type>),
    /// Exactly `size` items.
    Array {
        /// Type of the items.
        item: Box<Type>,
        /// Number of items.
        size: u64,
    },
    /// Exactly `size` truth values, one bit each on disk.
    Bitset {
        /// Number of bits.
        size: u64,
    },
    /// A value, or none.
    Optional(Box<Type>),
    /// Named members of any types.
    Record {
        /// The C++ class name; empty for an untyped record, which ROOT reads without a dictionary. As in C++, a
        /// list of `std::pair<const K,V>` is a `std::map<K,V>`.
        class: String,
        /// Members in order.
        members: Vec<(String, Type)>,
    },
    /// A value of one of several types, or none.
    Variant(Vec<Type>),
    /// The number of items of a collection, of 32 or 64 bits: a projection of its offsets, which can
    /// only be read.
    Cardinality(Primitive),
}

impl Type {
    /// Columns of a field of this type and its subfields.
    pub fn columns(&self) -> usize {
        match self {
            Type::Primitive(_) | Type::Reduced(..) | Type::Bitset { .. } | Type::Cardinality(_) => {
                1
            }
            Type::String => 2,
            Type::List(item) | Type::Optional(item) => 1 + item.columns(),
            Type::Array { item, .. } => item.columns(),
            Type::Record { members, .. } => members.iter().map(|(_, of)| of.columns()).sum(),
            Type::Variant(alternatives) => {
                1 + alternatives.iter().map(Type::columns).sum::<usize>()
            }
        }
    }

    /// The name of a value of this type in messages.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            Type::Primitive(primitive) => primitive.cpp_name(),
            Type::Reduced(..) => "a real number",
            Type::String => "a string",
            Type::List(_) => "a list",
            Type::Array { .. } => "an array",
            Type::Bitset { .. } => "a set of bits",
            Type::Optional(_) => "an optional value",
            Type::Record { .. } => "a record",
            Type::Variant(_) => "a variant",
            Type::Cardinality(_) => "a cardinality",
        }
    }
}

//! The types of columns and of their elements in memory. The code of an unknown type is kept, because
//! the specification asks readers to ignore columns of unknown types, not to refuse the file.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Column Description".

/// Type of a column: the type of its elements and the encoding of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// Truth values, packed least significant bit first.
    Bit,
    /// An uninterpreted byte.
    Byte,
    /// A byte of text.
    Char,
    /// Signed, 1 byte.
    Int8,
    /// Unsigned, 1 byte.
    UInt8,
    /// Signed, 2 bytes.
    Int16,
    /// Unsigned, 2 bytes.
    UInt16,
    /// Signed, 4 bytes.
    Int32,
    /// Unsigned, 4 bytes.
    UInt32,
    /// Signed, 8 bytes.
    Int64,
    /// Unsigned, 8 bytes.
    UInt64,
    /// IEEE-754 half precision; single precision in memory.
    Real16,
    /// IEEE-754 single precision.
    Real32,
    /// IEEE-754 double precision.
    Real64,
    /// End offsets of collections within the cluster, 4 bytes; 8 bytes in memory.
    Index32,
    /// End offsets of collections within the cluster, 8 bytes.
    Index64,
    /// An index (8 bytes) and the tag of a variant's alternative (4 bytes); tag 0 is no value.
    Switch,
    /// [`ColumnType::Int16`], zigzag, split into byte planes.
    SplitInt16,
    /// [`ColumnType::UInt16`], split into byte planes.
    SplitUInt16,
    /// [`ColumnType::Int32`], zigzag, split into byte planes.
    SplitInt32,
    /// [`ColumnType::UInt32`], split into byte planes.
    SplitUInt32,
    /// [`ColumnType::Int64`], zigzag, split into byte planes.
    SplitInt64,
    /// [`ColumnType::UInt64`], split into byte planes.
    SplitUInt64,
    /// [`ColumnType::Real16`], split into byte planes.
    SplitReal16,
    /// [`ColumnType::Real32`], split into byte planes.
    SplitReal32,
    /// [`ColumnType::Real64`], split into byte planes.
    SplitReal64,
    /// [`ColumnType::Index32`], differences within the page, split into byte planes.
    SplitIndex32,
    /// [`ColumnType::Index64`], differences within the page, split into byte planes.
    SplitIndex64,
    /// The 10 to 31 uppermost bits of a single precision number.
    Real32Trunc,
    /// An integer of 1 to 32 bits that divides the column's range evenly; double precision in memory,
    /// since single precision does not tell 2^32 steps apart.
    Real32Quant,
    /// A type of a later version of the format.
    Unknown(u16),
}

/// Type of an element in memory; numbers are in the machine's (little-endian) byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Element {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
    /// 12 bytes without padding: index (`u64`), then tag (`u32`).
    Switch,
}

impl Element {
    /// Bytes of one element in memory.
    pub const fn size(self) -> usize {
        match self {
            Element::U8 | Element::I8 => 1,
            Element::U16 | Element::I16 => 2,
            Element::U32 | Element::I32 | Element::F32 => 4,
            Element::U64 | Element::I64 | Element::F64 => 8,
            Element::Switch => 12,
        }
    }
}

/// Encodes an element of a switch column: the position among the values of its alternative, and the tag,
/// which counts alternatives from 1; tag 0 is no value.
pub(crate) fn switch_element(position: u64, tag: u32) -> [u8; Element::Switch.size()] {
    let mut element = [0; Element::Switch.size()];
    element[..size_of::<u64>()].copy_from_slice(&position.to_le_bytes());
    element[size_of::<u64>()..].copy_from_slice(&tag.to_le_bytes());
    element
}

/// Decodes the elements of a switch column: pairs of a position and a tag.
pub(crate) fn switch_pairs(elements: &[u8]) -> impl Iterator<Item = (u64, u32)> {
    let elements: &[[u8; Element::Switch.size()]] = elements.as_chunks().0;
    elements.iter().map(|element| {
        let [p0, p1, p2, p3, p4, p5, p6, p7, tag @ ..] = *element;
        (u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]), u32::from_le_bytes(tag))
    })
}

/// The table of the specification; the position of a type is its code.
const TYPES: [ColumnType; 30] = {
    use ColumnType::*;
    [
        Bit,
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
        Real16,
        Real32,
        Real64,
        Index32,
        Index64,
        Switch,
        SplitInt16,
        SplitUInt16,
        SplitInt32,
        SplitUInt32,
        SplitInt64,
        SplitUInt64,
        SplitReal16,
        SplitReal32,
        SplitReal64,
        SplitIndex32,
        SplitIndex64,
        Real32Trunc,
        Real32Quant,
    ]
};

impl ColumnType {
    /// All types of format 1.0, in the order of their codes.
    pub const ALL: &'static [ColumnType] = &TYPES;

    /// The type with this code on disk.
    pub fn from_code(code: u16) -> Self {
        TYPES.get(usize::from(code)).copied().unwrap_or(ColumnType::Unknown(code))
    }

    /// The code on disk.
    pub const fn code(self) -> u16 {
        use ColumnType::*;
        match self {
            Bit => 0x00,
            Byte => 0x01,
            Char => 0x02,
            Int8 => 0x03,
            UInt8 => 0x04,
            Int16 => 0x05,
            UInt16 => 0x06,
            Int32 => 0x07,
            UInt32 => 0x08,
            Int64 => 0x09,
            UInt64 => 0x0A,
            Real16 => 0x0B,
            Real32 => 0x0C,
            Real64 => 0x0D,
            Index32 => 0x0E,
            Index64 => 0x0F,
            Switch => 0x10,
            SplitInt16 => 0x11,
            SplitUInt16 => 0x12,
            SplitInt32 => 0x13,
            SplitUInt32 => 0x14,
            SplitInt64 => 0x15,
            SplitUInt64 => 0x16,
            SplitReal16 => 0x17,
            SplitReal32 => 0x18,
            SplitReal64 => 0x19,
            SplitIndex32 => 0x1A,
            SplitIndex64 => 0x1B,
            Real32Trunc => 0x1C,
            Real32Quant => 0x1D,
            Unknown(code) => code,
        }
    }

    /// Bits of one element on disk; `None` if each column chooses its own or the type is unknown.
    pub const fn default_bits(self) -> Option<u16> {
        use ColumnType::*;
        match self {
            Bit => Some(1),
            Byte | Char | Int8 | UInt8 => Some(8),
            Int16 | UInt16 | Real16 | SplitInt16 | SplitUInt16 | SplitReal16 => Some(16),
            Int32 | UInt32 | Real32 | Index32 => Some(32),
            SplitInt32 | SplitUInt32 | SplitReal32 | SplitIndex32 => Some(32),
            Int64 | UInt64 | Real64 | Index64 => Some(64),
            SplitInt64 | SplitUInt64 | SplitReal64 | SplitIndex64 => Some(64),
            Switch => Some(96),
            Real32Trunc | Real32Quant | Unknown(_) => None,
        }
    }

    /// Whether the specification allows elements of `bits` bits for this type.
    pub const fn allows_bits(self, bits: u16) -> bool {
        match self {
            ColumnType::Real32Trunc => bits >= 10 && bits <= 31,
            ColumnType::Real32Quant => bits >= 1 && bits <= 32,
            _ => match self.default_bits() {
                Some(only) => bits == only,
                None => false,
            },
        }
    }

    /// Whether the elements are the end offsets of collections.
    pub const fn is_index(self) -> bool {
        use ColumnType::*;
        matches!(self, Index32 | Index64 | SplitIndex32 | SplitIndex64)
    }

    /// The type of an element in memory; `None` for an unknown type.
    pub const fn element(self) -> Option<Element> {
        use ColumnType::*;
        Some(match self {
            Bit | Byte | Char | UInt8 => Element::U8,
            Int8 => Element::I8,
            Int16 | SplitInt16 => Element::I16,
            UInt16 | SplitUInt16 => Element::U16,
            Int32 | SplitInt32 => Element::I32,
            UInt32 | SplitUInt32 => Element::U32,
            Int64 | SplitInt64 => Element::I64,
            UInt64 | SplitUInt64 => Element::U64,
            Index32 | Index64 | SplitIndex32 | SplitIndex64 => Element::U64,
            Real16 | SplitReal16 | Real32 | SplitReal32 => Element::F32,
            Real32Trunc => Element::F32,
            Real64 | SplitReal64 | Real32Quant => Element::F64,
            Switch => Element::Switch,
            Unknown(_) => return None,
        })
    }

    /// The type of the same elements, split into byte planes; itself if there is none.
    pub fn split(self) -> ColumnType {
        SPLIT.iter().find(|(whole, _)| *whole == self).map_or(self, |(_, split)| *split)
    }

    /// The type of the same elements, not split into byte planes.
    pub fn whole(self) -> ColumnType {
        SPLIT.iter().find(|(_, split)| *split == self).map_or(self, |(whole, _)| *whole)
    }

    /// Number of byte planes that a page is stored as.
    pub(crate) fn planes(self) -> usize {
        match self.default_bits() {
            Some(bits) if self != self.whole() => usize::from(bits / 8),
            _ => 1,
        }
    }

    /// Whether the bytes of an uncompressed page equal the elements in memory.
    pub const fn is_plain(self) -> bool {
        use ColumnType::*;
        matches!(
            self,
            Byte | Char
                | Int8
                | UInt8
                | Int16
                | UInt16
                | Int32
                | UInt32
                | Int64
                | UInt64
                | Real32
                | Real64
                | Index64
                | Switch
        )
    }
}

/// Types whose pages are their elements, and those of the same elements split into byte planes.
const SPLIT: [(ColumnType, ColumnType); 11] = [
    (ColumnType::Int16, ColumnType::SplitInt16),
    (ColumnType::UInt16, ColumnType::SplitUInt16),
    (ColumnType::Int32, ColumnType::SplitInt32),
    (ColumnType::UInt32, ColumnType::SplitUInt32),
    (ColumnType::Int64, ColumnType::SplitInt64),
    (ColumnType::UInt64, ColumnType::SplitUInt64),
    (ColumnType::Real16, ColumnType::SplitReal16),
    (ColumnType::Real32, ColumnType::SplitReal32),
    (ColumnType::Real64, ColumnType::SplitReal64),
    (ColumnType::Index32, ColumnType::SplitIndex32),
    (ColumnType::Index64, ColumnType::SplitIndex64),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_positions_in_the_specification_table() {
        for (code, column_type) in TYPES.iter().enumerate() {
            assert_eq!(usize::from(column_type.code()), code);
            assert_eq!(ColumnType::from_code(code as u16), *column_type);
            assert!(column_type.element().is_some());
        }
        assert_eq!(ColumnType::from_code(0x1E), ColumnType::Unknown(0x1E));
        assert_eq!(ColumnType::from_code(0x1E).code(), 0x1E);
        assert_eq!(ColumnType::Unknown(0x1E).element(), None);
    }

    #[test]
    fn split_types_are_those_with_byte_planes() {
        for &column_type in ColumnType::ALL {
            let is_split = format!("{column_type:?}").starts_with("Split");
            assert_eq!(column_type.planes() > 1, is_split, "{column_type:?}");
            assert_eq!(column_type.whole().element(), column_type.split().element());
        }
        assert_eq!(ColumnType::Real64.split().planes(), 8);
    }

    #[test]
    fn plain_types_have_the_same_size_on_disk_and_in_memory() {
        for column_type in ColumnType::ALL.iter().filter(|t| t.is_plain()) {
            let size = column_type.element().unwrap().size();
            assert_eq!(column_type.default_bits(), Some(size as u16 * 8));
        }
    }
}

//! [`CellType`]: the field that a Rust type is stored as.

use bytes::Bytes;

use crate::types::{Primitive, Type};

/// A Rust type whose values are stored in one field; [`Cell`](crate::Cell) writes and
/// [`FromCell`](crate::FromCell) reads them.
///
/// Implemented for numbers, truth values, strings, shared bytes, `Vec`, `Option`, arrays and, by
/// [`row!`](crate::row), structures of these.
pub trait CellType {
    /// Columns of the field and its subfields.
    const COLUMNS: usize;

    /// The type of the field.
    fn cell_type() -> Type;
}

macro_rules! primitive_cell_types {
    ($($rust:ty => $primitive:ident),*) => {$(
        impl CellType for $rust {
            const COLUMNS: usize = 1;

            fn cell_type() -> Type {
                Type::Primitive(Primitive::$primitive)
            }
        }
    )*};
}

primitive_cell_types!(
    bool => Bool, i8 => Int8, u8 => UInt8, i16 => Int16, u16 => UInt16, i32 => Int32,
    u32 => UInt32, i64 => Int64, u64 => UInt64, f32 => Float32, f64 => Float64
);

impl CellType for Bytes {
    const COLUMNS: usize = 2;

    fn cell_type() -> Type {
        <Vec<u8>>::cell_type()
    }
}

impl CellType for String {
    const COLUMNS: usize = 2;

    fn cell_type() -> Type {
        Type::String
    }
}

impl<T: CellType> CellType for Vec<T> {
    const COLUMNS: usize = 1 + T::COLUMNS;

    fn cell_type() -> Type {
        Type::List(T::cell_type().into())
    }
}

impl<T: CellType> CellType for Option<T> {
    const COLUMNS: usize = 1 + T::COLUMNS;

    fn cell_type() -> Type {
        Type::Optional(T::cell_type().into())
    }
}

impl<T: CellType, const SIZE: usize> CellType for [T; SIZE] {
    const COLUMNS: usize = T::COLUMNS;

    fn cell_type() -> Type {
        Type::Array { item: T::cell_type().into(), size: SIZE as u64 }
    }
}

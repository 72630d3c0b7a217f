//! [`row!`](crate::row), which declares Rust structures as entries: it implements
//! [`CellType`](crate::CellType), [`Cell`](crate::Cell) and [`FromCell`](crate::FromCell) for them.

/// Declares a structure whose values are written and read as entries, or as records within entries.
///
/// ```
/// rntuple::row! {
///     /// A reconstructed muon.
///     pub struct Muon { pub pt: f32, pub charge: i32 }
/// }
/// ```
#[macro_export]
macro_rules! row {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$member_attribute:meta])* $member_visibility:vis $member:ident : $of:ty),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[$member_attribute])* $member_visibility $member: $of),*
        }

        impl $crate::CellType for $name {
            const COLUMNS: usize = 0 $(+ <$of as $crate::CellType>::COLUMNS)*;

            fn cell_type() -> $crate::Type {
                $crate::Type::Record {
                    class: ::std::string::String::new(),
                    members: ::std::vec![
                        $((stringify!($member).to_owned(), <$of as $crate::CellType>::cell_type())),*
                    ],
                }
            }
        }

        impl $crate::Cell for $name {
            const IS_RENUMBERED: bool = false $(|| <$of as $crate::Cell>::IS_RENUMBERED)*;

            #[inline]
            fn visit_renumbered(&self, visit: &mut impl ::core::ops::FnMut(u32)) {
                $($crate::Cell::visit_renumbered(&self.$member, visit);)*
            }

            #[inline]
            fn put(&self, row: &mut $crate::RowWriter<'_>) -> $crate::Result<()> {
                $($crate::Cell::put(&self.$member, row)?;)*
                Ok(())
            }
        }

        impl $crate::FromCell for $name {
            #[inline]
            fn get(row: &mut $crate::RowReader<'_>, index: u64) -> $crate::Result<Self> {
                ::std::result::Result::Ok($name {
                    $($member: <$of as $crate::FromCell>::get(row, index)?),*
                })
            }
        }
    };
}

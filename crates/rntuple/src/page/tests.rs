//! Whole pages: sealed and opened, and the errors of damaged ones.

use proptest::prelude::*;

use super::*;
use crate::ErrorKind;
use crate::column::ColumnType;
use crate::encoding::tests::hex;

fn column(column_type: ColumnType) -> Column {
    let bits = column_type.default_bits().unwrap_or(20);
    let range = (column_type == ColumnType::Real32Quant).then_some((0.0, 1e3));
    Column { column_type, bits, field: 0, representation: 0, first_element: None, range }
}

fn open(column: &Column, elements: usize, stored: &[u8]) -> Result<Vec<u8>> {
    let mut out = vec![0; elements * column.column_type.element().unwrap().size()];
    open_page(column, elements, true, 1000, stored, &mut PageBuffers::default(), &mut out)?;
    Ok(out)
}

/// The bytes and the checksum are those of a page that ROOT 6.40 wrote.
#[test]
fn a_page_that_root_wrote_opens_and_seals_to_the_same_bytes() {
    let column = column(ColumnType::SplitInt16);
    let numbers = [0i16, -1000, 2000, -3000, 4000, -5000, 6000, -7000, 8000, -9000, 10000];
    let values = numbers.map(i16::to_le_bytes).as_flattened().to_vec();
    let stored = hex("00cfa06f400fe0af804f2000070f171f272e363e464ed0a6a97bbfacebfe");
    assert_eq!(open(&column, 11, &stored).unwrap(), values);
    let mut sealed = Vec::new();
    let mut buffers = PageBuffers::default();
    seal_page(&column, &values, Compression::None, &mut buffers).unwrap().append_to(&mut sealed);
    assert_eq!(sealed, stored);
}

#[test]
fn a_plain_page_without_compression_borrows_the_values() {
    let values: Vec<u8> = (0..80).collect();
    let mut buffers = PageBuffers::default();
    let sealed =
        seal_page(&column(ColumnType::Int32), &values, Compression::None, &mut buffers).unwrap();
    assert_eq!(sealed.payload.as_ptr(), values.as_ptr());
    assert_eq!(sealed.payload.len(), values.len());
}

#[test]
fn errors_of_damaged_pages_have_the_offset_in_the_file() {
    let column = column(ColumnType::Int32);
    let mut stored = Vec::new();
    let values = [5; 4000];
    for compression in [Compression::None, Compression::Zstd { level: 1 }] {
        stored.clear();
        let mut buffers = PageBuffers::default();
        seal_page(&column, &values, compression, &mut buffers).unwrap().append_to(&mut stored);
        assert_eq!(open(&column, 1000, &stored).unwrap(), values);
        stored[3] ^= 1;
        let error = open(&column, 1000, &stored).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().starts_with("page at byte 1000: checksum "), "{error}");
    }
    assert_eq!(open(&column, 1, &[0; 7]).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut buffers = PageBuffers::default();
    let mut out = [0; 8];
    let error = open_page(&column, 2, false, 1000, &[0; 7], &mut buffers, &mut out).unwrap_err();
    assert!(error.to_string().starts_with("compressed bytes at byte 1000: "), "{error}");
}

proptest! {
    #[test]
    fn sealed_pages_of_every_type_open(
        code in 0..30u16,
        numbers in prop::collection::vec(0..1000u16, 0..500),
        compression in prop::sample::select(vec![
            Compression::None,
            Compression::Lz4 { level: 1 },
            Compression::Lz4 { level: 9 },
            Compression::Zstd { level: 1 },
        ]),
    ) {
        use crate::column::Element;
        let column = column(ColumnType::from_code(code));
        let element = column.column_type.element().unwrap();
        let mut values = Vec::new();
        for number in &numbers {
            match element {
                Element::F32 => values.extend(f32::from(*number).to_le_bytes()),
                Element::F64 => values.extend(f64::from(*number).to_le_bytes()),
                _ if column.column_type == ColumnType::Bit => values.push(*number as u8 & 1),
                other => values.extend(&u128::from(*number).to_le_bytes()[..other.size()]),
            }
        }
        let mut buffers = PageBuffers::default();
        let mut stored = Vec::new();
        seal_page(&column, &values, compression, &mut buffers).unwrap().append_to(&mut stored);
        let size = encoded_size(column.column_type, column.bits, numbers.len()).unwrap();
        prop_assert!(stored.len() <= size + CHECKSUM_SIZE);
        let opened = open(&column, numbers.len(), &stored).unwrap();
        if column.column_type == ColumnType::Real32Quant {
            for (value, opened) in values.as_chunks().0.iter().zip(opened.as_chunks().0) {
                prop_assert!((f64::from_le_bytes(*value) - f64::from_le_bytes(*opened)).abs() < 1e-3);
            }
        } else {
            prop_assert_eq!(opened, values);
        }
    }

    #[test]
    fn stored_bytes_of_any_content_never_panic(
        code in 0..40u16,
        elements in 0..300usize,
        has_checksum in any::<bool>(),
        stored in prop::collection::vec(any::<u8>(), 0..400),
        room in 0..2400usize,
    ) {
        let column_type = ColumnType::from_code(code);
        let column = column(column_type);
        let room = column_type.element().map_or(room, |element| element.size() * elements);
        let buffers = &mut PageBuffers::default();
        let _ = open_page(&column, elements, has_checksum, 0, &stored, buffers, &mut vec![0; room]);
    }
}

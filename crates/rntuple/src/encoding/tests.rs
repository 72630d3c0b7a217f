//! Pages that ROOT wrote, the specification written out bit by bit, and damage.

use proptest::prelude::*;

use super::*;

/// Range of the quantised columns in the file that ROOT wrote for these tests.
const RANGE: (f64, f64) = (-1.5, 10.0);

fn column(column_type: ColumnType, bits: u16) -> Column {
    let range = (column_type == ColumnType::Real32Quant).then_some(RANGE);
    Column { column_type, bits, field: 0, representation: 0, first_element: None, range }
}

fn encoded(column: &Column, values: &[u8]) -> Vec<u8> {
    let mut out = vec![0xAA];
    encode(column, values, &mut out).unwrap();
    out.split_off(1)
}

fn decoded(column: &Column, page: &[u8], elements: usize) -> Vec<u8> {
    let mut out = vec![0xAA; elements * column.column_type.element().unwrap().size()];
    decode(column, page, elements, &mut out).unwrap();
    out
}

/// The bytes that hexadecimal digits stand for.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    digits
        .as_bytes()
        .as_chunks()
        .0
        .iter()
        .map(|[high, low]| digit(*high) << 4 | digit(*low))
        .collect()
}

fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

mod vectors {
    //! Pages of eleven elements of a file that ROOT 6.40 wrote without compression.

    use super::*;

    fn check(column_type: ColumnType, bits: u16, page: &str, written: &[u8], read: &[u8]) {
        let column = column(column_type, bits);
        let page = hex(page);
        assert_eq!(decoded(&column, &page, 11), read, "decode {column_type:?} {bits}");
        assert_eq!(encoded(&column, written), page, "encode {column_type:?} {bits}");
    }

    fn lossless<T: bytemuck::NoUninit>(column_type: ColumnType, page: &str, value: fn(i64) -> T) {
        let values = bytes(&(0..11).map(value).collect::<Vec<_>>());
        check(column_type, column_type.default_bits().unwrap(), page, &values, &values);
    }

    const fn alternate(i: i64) -> i64 {
        if i % 2 == 1 { -i } else { i }
    }

    /// The page `sr32` as ROOT wrote it and read it back.
    const REALS: &str = "0000c0bf3433b3becccc4c3fdb0f494066664640000088\
        40ccccac409a99d1406666f64099990d4100002041";

    fn single(i: i64) -> f32 {
        bytemuck::pod_read_unaligned(&hex(REALS)[4 * i as usize..][..4])
    }

    #[test]
    fn split_integers() {
        use ColumnType::*;
        lossless(SplitInt16, "00cfa06f400fe0af804f2000070f171f272e363e464e", |i| {
            alternate(i) as i16 * 1000
        });
        lossless(SplitUInt16, "0070e050c030a01080f06000172e465d758ca4bbd2ea", |i| i as u16 * 6000);
        let page = "00ff00ff00ff00ff00ff0000c1844508c98c4d10d19400ebd7c3af9a86725e4935000b17232f3b\
            47535f6b77";
        lossless(SplitInt32, page, |i| alternate(i) as i32 * 100_000_000);
        let page = "00000000000000000000000084088c1094189c20a42800d7af865e350de4bc936b00172f475f77\
            8fa6bed6ee";
        lossless(SplitUInt32, page, |i| i as u32 * 400_000_000);
        let page = "00ff00ff00ff00ff00ff0000ff00ff00ff00ff00ff0000b3681bd08338eba05308009327bb4ee2\
            76099d31c50076ed63da50c73eb42ba100e2c4a7896c4e3113f6d800faf5f0ebe6e1dcd7d1cc001831\
            4a637c95aec7e0f9";
        lossless(SplitInt64, page, |i| alternate(i) * 900_000_000_000_000_000);
        let page = "0000000000000000000000000000000000000000000000b4681cd08438eca05408009327bb4ee2\
            76099d31c50076ed63da50c73eb42ba100e2c4a7896c4e3113f6d800faf5f0ebe6e1dcd7d1cc001831\
            4a637c95aec7e0f9";
        lossless(SplitUInt64, page, |i| i as u64 * 1_800_000_000_000_000_000);
    }

    #[test]
    fn split_reals() {
        let page = "0034ccdb6600cc9a6699000033cc0f6600cc99669900c0b34c494688acd1f60d20bfbe3f404040\
            4040404141";
        lossless(ColumnType::SplitReal32, page, single);
        let page = "481080bfe4b37435f65b3c1435f3f18303c5874805e667606d6b6a495c70844c5500808060c000\
            8040c02000006699fbcc009933cc330000669921cc009933ccb300f8d6e9090811151a1e2124bfbf3f\
            4040404040404040";
        lossless(ColumnType::SplitReal64, page, |i| f64::from(single(i)) * 1.000000001);
    }

    #[test]
    fn indexes_and_switches() {
        const OFFSETS: [u64; 11] = [0, 1, 3, 6, 6, 7, 9, 12, 12, 13, 15];
        let offset = |i: i64| OFFSETS[i as usize];
        let first_plane = "0001020300010203000102";
        lossless(ColumnType::SplitIndex32, &format!("{first_plane}{:066}", 0), offset);
        lossless(ColumnType::SplitIndex64, &format!("{first_plane}{:0154}", 0), offset);
        let page = "000000000100000003000000060000000600000007000000090000000c0000000c0000000d0000\
            000f000000";
        lossless(ColumnType::Index32, page, offset);
        let page = "000000000000000001000000000000000000000002000000010000000000000001000000010000\
            000000000002000000020000000000000001000000020000000000000002000000030000000000\
            000001000000030000000000000002000000040000000000000001000000040000000000000002\
            000000050000000000000001000000";
        lossless(ColumnType::Switch, page, |i| [i as u32 / 2, 0, 1 + i as u32 % 2]);
    }

    #[test]
    fn truth_values() {
        lossless(ColumnType::Bit, "4902", |i| u8::from(i % 3 == 0));
        // ROOT leaves whatever was there in the bits after the last element.
        let page = hex("494a");
        assert_eq!(
            decoded(&column(ColumnType::Bit, 1), &page, 11),
            [1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0]
        );
    }

    #[test]
    fn half_precision() {
        let written = bytes(&(0..11).map(|i| single(i) * 100.0).collect::<Vec<_>>());
        let read = hex("000016c300000cc20000a04200209d4300009b430080d4430000074400c023440080404\
            400405d4400007a44");
        check(
            ColumnType::Real16,
            16,
            "b0d860d00055e95cd85ca45e38601e610462ea62d063",
            &written,
            &read,
        );
    }

    #[test]
    fn truncated() {
        let value = |i| if i % 2 == 1 { -single(i) } else { single(i) } * 1.234_567_8;
        let written = bytes(&(0..11).map(value).collect::<Vec<_>>());
        for (bits, page, read) in [
            (
                10,
                "ffeed34fc001093c10c104115c10",
                "0000c0bf0000c03e0000403f000040c000004040000080c00000c040000000c100000041000000c1\
                 00004041",
            ),
            (
                13,
                "fd77fbbc9f07ec8028b00602c123a804a320",
                "0000e8bf0000d83e0000783f000078c0000070400000a0c00000d040000000c100001841000028c1\
                 00004041",
            ),
            (
                24,
                "09edbf3cdd3ed67c3f3978c0f07440e6a7c055d5406101c1191841d02ec1874541",
                "0009edbf003cdd3e00d67c3f003978c000f0744000e6a7c00055d540006101c10019184100d02ec1\
                 00874541",
            ),
            (
                31,
                "bd84f65f034fb7cfdc9aefe79783078c81a703da9a9f02a7aaaa81f86101c1a30c8ca025b44bb0fc\
                 b02808",
                "7a09edbf0c3cdd3ee6d67c3f7e3978c030f07440b6e6a7c05255d540f86101c14619184196d02ec1\
                 e4874541",
            ),
        ] {
            check(ColumnType::Real32Trunc, bits, page, &written, &hex(read));
        }
    }

    #[test]
    fn quantised() {
        let written = hex(REALS);
        for (bits, page, read) in [
            (
                1,
                "e007",
                "0000c0bf0000c0bf0000c0bf0000c0bf0000c0bf0000204100002041000020410000204100002041\
                 00002041",
            ),
            (
                7,
                "80466636fb31b366f91f",
                "0000c0bf954aa5be0e87433f1e8f47401e8f47401a8d86407138ac40c8e3d1401e8ff740552a0d41\
                 00002041",
            ),
            (
                20,
                "000090991933336353676666f6ff7f99993933b3cccc5c66e6ffff0f",
                "0000c0bfeb33b3becdcc4c3fc70f494066664640f4ff8740cdccac40a599d1406666f64094990d41\
                 00002041",
            ),
            (
                32,
                "000000009199991921333333906d536742666666000000800b9999997a3333b385cccccc906566e6\
                 ffffffff",
                "0000c0bf3433b3becccc4c3fdb0f49406666464000008840ccccac409a99d1406666f64099990d41\
                 00002041",
            ),
        ] {
            let column = column(ColumnType::Real32Quant, bits);
            assert_eq!(singles(&decoded(&column, &hex(page), 11)), hex(read), "decode {bits}");
            assert_eq!(encoded(&column, &doubles(&written)), hex(page), "encode {bits}");
        }
    }
}

/// The file's field was of single precision; quantised columns are of double precision in memory.
fn doubles(singles: &[u8]) -> Vec<u8> {
    let widen = |bytes: &[u8; 4]| f64::from(f32::from_le_bytes(*bytes)).to_le_bytes();
    singles.as_chunks().0.iter().flat_map(widen).collect()
}

fn singles(doubles: &[u8]) -> Vec<u8> {
    let narrow = |bytes: &[u8; 8]| (f64::from_le_bytes(*bytes) as f32).to_le_bytes();
    doubles.as_chunks().0.iter().flat_map(narrow).collect()
}

/// The specification, one bit at a time: element `i` of `words`, `bits` wide, least significant
/// bit first.
fn packed(words: &[u64], bits: usize) -> Vec<u8> {
    let mut page = vec![0; (words.len() * bits).div_ceil(8)];
    for (index, word) in words.iter().enumerate() {
        for bit in 0..bits {
            let at = index * bits + bit;
            page[at / 8] |= ((word >> bit & 1) as u8) << (at % 8);
        }
    }
    page
}

/// The specification, one byte at a time.
fn planes(words: &[u64], size: usize) -> Vec<u8> {
    (0..size).flat_map(|byte| words.iter().map(move |word| (word >> (8 * byte)) as u8)).collect()
}

fn zigzag(value: i64) -> u64 {
    if value >= 0 { 2 * value as u64 } else { (-(2 * i128::from(value) + 1)) as u64 }
}

/// Any values; the lengths cover no, some and many whole blocks, with and without a rest.
fn any_values<T: Arbitrary>() -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(any::<T>(), 0..300)
}

fn check_both(column: &Column, values: &[u8], page: &[u8]) {
    assert_eq!(encoded(column, values), page, "{column:?}");
    let elements = values.len() / column.column_type.element().unwrap().size();
    assert_eq!(decoded(column, page, elements), values, "{column:?}");
}

proptest! {
    #[test]
    fn split_words_follow_the_specification(values in any_values::<u64>()) {
        use ColumnType::*;
        let narrow16: Vec<u16> = values.iter().map(|value| *value as u16).collect();
        let narrow32: Vec<u32> = values.iter().map(|value| *value as u32).collect();
        check_both(&column(SplitUInt16, 16), &bytes(&narrow16), &planes(&values, 2));
        check_both(&column(SplitUInt32, 32), &bytes(&narrow32), &planes(&values, 4));
        check_both(&column(SplitReal32, 32), &bytes(&narrow32), &planes(&values, 4));
        check_both(&column(SplitUInt64, 64), &bytes(&values), &planes(&values, 8));
        check_both(&column(SplitReal64, 64), &bytes(&values), &planes(&values, 8));
        let zigzag16: Vec<u64> = narrow16.iter().map(|v| zigzag(i64::from(*v as i16))).collect();
        let zigzag32: Vec<u64> = narrow32.iter().map(|v| zigzag(i64::from(*v as i32))).collect();
        let zigzag64: Vec<u64> = values.iter().map(|v| zigzag(*v as i64)).collect();
        check_both(&column(SplitInt16, 16), &bytes(&narrow16), &planes(&zigzag16, 2));
        check_both(&column(SplitInt32, 32), &bytes(&narrow32), &planes(&zigzag32, 4));
        check_both(&column(SplitInt64, 64), &bytes(&values), &planes(&zigzag64, 8));
    }

    #[test]
    fn indexes_follow_the_specification(values in any_values::<u64>()) {
        use ColumnType::*;
        let differences = |values: &[u64]| -> Vec<u64> {
            let before = [0].into_iter().chain(values.iter().copied());
            values.iter().zip(before).map(|(value, before)| value.wrapping_sub(before)).collect()
        };
        check_both(&column(SplitIndex64, 64), &bytes(&values), &planes(&differences(&values), 8));
        let narrow: Vec<u64> = values.iter().map(|value| value & 0xFFFF_FFFF).collect();
        check_both(&column(SplitIndex32, 32), &bytes(&narrow), &planes(&differences(&narrow), 4));
        check_both(&column(Index32, 32), &bytes(&narrow), &packed(&narrow, 32));
    }

    #[test]
    fn plain_pages_are_the_elements_in_memory(values in any_values::<[u8; 24]>()) {
        let values = values.as_flattened();
        for column_type in ColumnType::ALL.iter().filter(|column_type| column_type.is_plain()) {
            check_both(&column(*column_type, column_type.default_bits().unwrap()), values, values);
        }
    }

    #[test]
    fn truth_values_follow_the_specification(values in any_values::<bool>()) {
        let words: Vec<u64> = values.iter().map(|value| u64::from(*value)).collect();
        let values: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
        check_both(&column(ColumnType::Bit, 1), &values, &packed(&words, 1));
    }

    #[test]
    fn truncated_numbers_keep_their_uppermost_bits(values in any_values::<u32>(), bits in 10..=31u16) {
        let column = column(ColumnType::Real32Trunc, bits);
        let kept: Vec<u64> = values.iter().map(|value| u64::from(value >> (32 - bits))).collect();
        let page = encoded(&column, &bytes(&values));
        prop_assert_eq!(&page, &packed(&kept, usize::from(bits)));
        let read: Vec<u32> = kept.iter().map(|kept| (*kept as u32) << (32 - bits)).collect();
        prop_assert_eq!(decoded(&column, &page, values.len()), bytes(&read));
    }

    #[test]
    fn quantised_numbers_stay_within_half_a_step(
        values in prop::collection::vec(RANGE.0..=RANGE.1, 0..300),
        bits in 1..=32u16,
    ) {
        let column = column(ColumnType::Real32Quant, bits);
        let page = encoded(&column, &bytes(&values));
        let read = decoded(&column, &page, values.len());
        let steps = ((1u64 << bits) - 1) as f64;
        let step = (RANGE.1 - RANGE.0) / steps;
        let nearest = |value: &f64| ((value - RANGE.0) * (steps / (RANGE.1 - RANGE.0)) + 0.5) as u64;
        let integers: Vec<u64> = values.iter().map(nearest).collect();
        prop_assert_eq!(page, packed(&integers, usize::from(bits)));
        for (value, read) in values.iter().zip(read.as_chunks().0) {
            let read = f64::from_le_bytes(*read);
            prop_assert!((value - read).abs() <= step / 2.0 + 1e-14);
        }
    }

    #[test]
    fn pages_of_any_bytes_never_panic(
        page in prop::collection::vec(any::<u8>(), 0..600),
        code in 0..40u16,
        bits in 0..80u16,
        elements in 0..300usize,
        room in 0..2400usize,
        range in any::<Option<(f64, f64)>>(),
    ) {
        let column_type = ColumnType::from_code(code);
        for bits in [bits, column_type.default_bits().unwrap_or(20)] {
            let column = Column { range, ..column(column_type, bits) };
            let _ = decode(&column, &page, elements, &mut vec![0; room]);
            let Ok(size) = encoded_size(column_type, bits, elements) else { continue };
            let page: Vec<u8> = page.iter().copied().cycle().take(size).collect();
            let mut out = vec![0; elements * column_type.element().unwrap().size()];
            let _ = decode(&column, &page, elements, &mut out);
            let _ = encode(&column, &out, &mut Vec::new());
        }
    }
}

#[test]
fn every_half_precision_number_survives() {
    let page: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let column16 = column(ColumnType::Real16, 16);
    let singles = decoded(&column16, &page, 1 << 16);
    for (half, single) in (0..=u16::MAX).map(half::f16::from_bits).zip(singles.as_chunks().0) {
        let single = f32::from_le_bytes(*single);
        assert!(single == f32::from(half) || (single.is_nan() && half.is_nan()));
    }
    let again = encoded(&column16, &singles);
    for (before, after) in page.as_chunks().0.iter().zip(again.as_chunks().0) {
        let is_nan = half::f16::from_le_bytes(*before).is_nan();
        assert!(before == after || (is_nan && half::f16::from_le_bytes(*after).is_nan()));
    }
    let words: Vec<u64> =
        again.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b).into()).collect();
    let split = column(ColumnType::SplitReal16, 16);
    assert_eq!(encoded(&split, &singles), planes(&words, 2));
    let split_singles = decoded(&split, &planes(&words, 2), 1 << 16);
    assert_eq!(split_singles, decoded(&column16, &again, 1 << 16));
}

#[test]
fn nonzero_truth_values_are_true() {
    assert_eq!(encoded(&column(ColumnType::Bit, 1), &[0, 2, 0x80, 255, 0, 0, 0, 1, 3]), [0x8E, 1]);
}

#[test]
fn encoding_fails_for_values_that_do_not_fit_and_writes_nothing() {
    let quantised = column(ColumnType::Real32Quant, 12);
    for value in [f64::NAN, f64::INFINITY, -1.6, 10.01] {
        let mut out = vec![7];
        let error = encode(&quantised, &bytes(&[0.0, value]), &mut out).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Invalid);
        assert!(
            error.to_string().ends_with("is outside the quantised range -1.5 to 10"),
            "{error}"
        );
        assert_eq!(out, [7]);
    }
    for column_type in [ColumnType::Index32, ColumnType::SplitIndex32] {
        let error = encode(&column(column_type, 32), &bytes(&[1u64 << 32]), &mut Vec::new());
        assert_eq!(error.unwrap_err().kind(), crate::ErrorKind::Invalid);
    }
}

#[test]
fn sizes_that_do_not_match_are_refused() {
    use crate::ErrorKind::*;
    let reals = column(ColumnType::SplitReal32, 32);
    let kind = |column: &Column, page: usize, elements: usize, room: usize| {
        decode(column, &vec![0; page], elements, &mut vec![0; room]).unwrap_err().kind()
    };
    assert_eq!(kind(&reals, 11, 3, 12), Corrupt);
    assert_eq!(kind(&reals, 12, 3, 16), Invalid);
    assert_eq!(kind(&column(ColumnType::Real32, 31), 12, 3, 12), Corrupt);
    assert_eq!(kind(&column(ColumnType::Real32Trunc, 9), 12, 3, 12), Corrupt);
    assert_eq!(kind(&column(ColumnType::Unknown(77), 32), 12, 3, 12), Unsupported);
    let endless = Column { range: None, ..column(ColumnType::Real32Quant, 32) };
    assert_eq!(kind(&endless, 12, 3, 24), Corrupt);
    assert_eq!(encode(&reals, &[0; 6], &mut Vec::new()).unwrap_err().kind(), Invalid);
    assert_eq!(encoded_size(ColumnType::Real64, 64, usize::MAX).unwrap_err().kind(), Invalid);
}

#[test]
fn pages_decode_alike_with_and_without_vector_instructions() {
    for &column_type in ColumnType::ALL {
        let (bits, range) = match column_type {
            ColumnType::Real32Trunc => (20, None),
            ColumnType::Real32Quant => (20, Some((-1.0, 2.0))),
            other => (other.default_bits().unwrap(), None),
        };
        let column = Column { range, ..column(column_type, bits) };
        let encoded: Vec<u8> = (0..encoded_size(column_type, bits, 1000).unwrap())
            .map(|at| ((at * at * 31) >> 3) as u8)
            .collect();
        let size = 1000 * column_type.element().unwrap().size();
        let (mut out, mut expected) = (vec![1; size], vec![2; size]);
        decode(&column, &encoded, 1000, &mut out).unwrap();
        decode_checked(&column, &encoded, &mut expected).unwrap();
        assert_eq!(out, expected, "{column_type:?}");
    }
}

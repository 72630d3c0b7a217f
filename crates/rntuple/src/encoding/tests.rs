use super::*;

fn column(column_type: ColumnType, bits: u16) -> Column {
    let range = (column_type == ColumnType::Real32Quant).then_some((-1.5, 10.0));
    Column { column_type, bits, field: 0, representation: 0, first_element: None, range }
}

fn hex(digits: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    digits.as_bytes().as_chunks::<2>().0.iter().map(|[a, b]| digit(*a) << 4 | digit(*b)).collect()
}

/// Checks both directions of eleven elements; `values` as text of 32-bit words.
fn check(column_type: ColumnType, bits: u16, encoded: &str, values: &[u8]) {
    let column = column(column_type, bits);
    let encoded = hex(encoded);
    let mut decoded = vec![0; values.len()];
    decode(&column, &encoded, 11, &mut decoded).unwrap();
    assert_eq!(decoded, values, "decode {column_type:?} {bits}");
    let mut out = Vec::new();
    encode(&column, values, &mut out).unwrap();
    assert_eq!(out, encoded, "encode {column_type:?} {bits}");
}

fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

#[test]
fn pages_that_root_wrote_decode_and_encode_to_the_same_bytes() {
    use ColumnType::*;
    let sign = |i: i64| if i % 2 == 1 { -1 } else { 1 };
    let each = |f: &dyn Fn(i64) -> i64| (0..11).map(f).collect::<Vec<_>>();
    let int16: Vec<i16> = each(&|i| sign(i) * i * 1000).iter().map(|v| *v as i16).collect();
    check(SplitInt16, 16, "00cfa06f400fe0af804f2000070f171f272e363e464e", &bytes(&int16));
    let uint16: Vec<u16> = each(&|i| i * 6000).iter().map(|v| *v as u16).collect();
    check(SplitUInt16, 16, "0070e050c030a01080f06000172e465d758ca4bbd2ea", &bytes(&uint16));
    let offsets: Vec<u64> = vec![0, 1, 3, 6, 6, 7, 9, 12, 12, 13, 15];
    check(SplitIndex32, 32, &format!("0001020300010203000102{:066}", 0), &bytes(&offsets));
    check(SplitIndex64, 64, &format!("0001020300010203000102{:0154}", 0), &bytes(&offsets));
    let truths: Vec<u8> = (0..11).map(|i| u8::from(i % 3 == 0)).collect();
    check(Bit, 1, "4902", &truths);
}

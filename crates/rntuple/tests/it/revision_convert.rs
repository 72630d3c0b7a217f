//! Conversion of arrays to another type, and back if values fit.

use proptest::prelude::*;

use rntuple::{
    Array, ChangeKind, Conversion, Nesting, NewMember, Precision, Primitive, Type, Value,
    WriteOptions, convert_array,
};

use crate::evolution::{number, record, written};
use crate::revision_model::{Random, change_members};
use crate::round_trips::{members_of, tables};
use crate::values::{array_of, assert_agree, cases};
use crate::versions::reader;

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn converted_arrays_match_the_model((of, rows) in tables(0..15), seed: u64) {
        // Read back first, so that numbers of low precision are already rounded.
        let (memory, header, footer) = written(&of, &rows, WriteOptions::default());
        let reader = reader(&memory, &header, &footer);
        let array = reader.read(&reader.select_all(), 0..reader.entries()).unwrap();
        let (members, rules, value) = change_members(members_of(&of), false, &mut Random(seed));
        let new = Type::Record { class: String::new(), members };
        let converted = convert_array(&array, &of, &rules).unwrap();
        converted.validate(&new).unwrap();
        for (entry, _) in rows.iter().enumerate() {
            let old = array.value(entry).unwrap();
            assert_agree(&new, &value(&old), &converted.value(entry).unwrap());
        }
    }
}

fn list(of: Type) -> Type {
    Type::List(of.into())
}

fn optional(of: Type) -> Type {
    Type::Optional(of.into())
}

/// Converts values of one member `x`.
fn convert(old: Type, values: &[Value], new: Type) -> rntuple::Result<Vec<Value>> {
    convert_by(old, values, NewMember::same("x", new))
}

fn convert_by(old: Type, values: &[Value], member: NewMember) -> rntuple::Result<Vec<Value>> {
    let of = record(&[("x", old)]);
    let row = |x: &Value| Value::Record(vec![("x".to_owned(), x.clone())]);
    let array = array_of(&of, &values.iter().map(row).collect::<Vec<_>>());
    let new = record(&[("x", member.of.clone())]);
    let converted = Conversion::new(&of, &[member])?.apply(&array)?;
    converted.validate(&new)?;
    let x = |at| Ok(converted.value(at)?.member("x").unwrap().clone());
    (0..converted.len()).map(x).collect()
}

fn ints(values: &[i64]) -> Vec<Value> {
    values.iter().map(|&value| Value::Int(value)).collect()
}

#[test]
fn values_that_fit_convert_to_narrower_types() {
    use Primitive::{Float32, Float64, Int8, Int16, Int32, UInt8};
    let floats =
        |values: &[f64]| values.iter().map(|&value| Value::Float(value)).collect::<Vec<_>>();
    let of_lists =
        |lists: &[&[i64]]| lists.iter().map(|items| Value::List(ints(items))).collect::<Vec<_>>();
    let narrow = |old, values: Vec<Value>, new| convert(old, &values, new).unwrap();
    assert_eq!(narrow(number(Int32), ints(&[1, -128]), number(Int8)), ints(&[1, -128]));
    assert_eq!(narrow(number(Float64), floats(&[3.0, -1.0]), number(Int16)), ints(&[3, -1]));
    assert_eq!(
        narrow(number(Float64), floats(&[0.1]), number(Float32)),
        floats(&[f64::from(0.1_f32)])
    );
    let (one, pair) = (of_lists(&[&[4], &[5]]), of_lists(&[&[1, 2], &[3, 4]]));
    assert_eq!(narrow(list(number(Int32)), one.clone(), number(Int16)), ints(&[4, 5]));
    assert_eq!(narrow(list(number(Int32)), one.clone(), optional(number(Int32))), ints(&[4, 5]));
    assert_eq!(narrow(optional(number(Int32)), ints(&[7]), number(Int8)), ints(&[7]));
    let array = Type::Array { item: number(Int8).into(), size: 2 };
    assert_eq!(narrow(list(number(Int32)), pair.clone(), array.clone()), pair);
    assert_eq!(narrow(array, pair.clone(), list(number(Int32))), pair);
    let absent = vec![Value::Null, Value::Int(1)];
    assert_eq!(narrow(list(number(Int8)), of_lists(&[&[], &[1]]), optional(number(Int8))), absent);
    assert_eq!(
        narrow(
            list(list(number(Int32))),
            vec![Value::List(of_lists(&[&[9], &[8]]))],
            list(number(UInt8))
        ),
        [Value::Bytes(vec![9, 8].into())]
    );
}

#[test]
fn lists_wrap_into_single_items_and_unwrap_again() {
    let plain = list(record(&[("n", number(Primitive::Int32))]));
    let nested = list(plain.clone());
    let row = |n: i64| Value::Record(vec![("n".to_owned(), Value::Int(n))]);
    let values = [Value::List(vec![row(1), row(2)]), Value::List(vec![])];
    let wrapped = values.clone().map(|value| Value::List(vec![value]));
    let with = |old: &Type, new: &Type, nesting, values: &[Value]| {
        let member = NewMember::same("x", new.clone()).nested(nesting);
        convert_by(old.clone(), values, member)
    };
    assert_eq!(with(&plain, &nested, Nesting::Wrapped, &values).unwrap(), wrapped);
    assert_eq!(with(&nested, &plain, Nesting::Unwrapped, &wrapped).unwrap(), values);
    let text = with(&nested, &plain, Nesting::Unwrapped, &[Value::List(vec![])]).unwrap_err();
    assert!(text.to_string().contains("value 0 has 0 items, not one"), "{text}");
}

#[test]
fn conversion_fails_with_the_first_value_that_does_not_fit() {
    use Primitive::{Bool, Float32, Float64, Int8, Int32, Int64, UInt8};
    let quantised = Type::Reduced(Float32, Precision::Quantised { bits: 8, min: 0.0, max: 1.0 });
    let half = Type::Reduced(Float32, Precision::Half);
    let lists = vec![Value::List(ints(&[1])), Value::List(ints(&[1, 2]))];
    let refused = [
        (number(Int32), ints(&[1, 300, 400]), number(Int8), "300, value 1, is not a std::int8_t"),
        (number(Int32), ints(&[-1]), number(UInt8), "-1, value 0, is not a std::uint8_t"),
        (number(Int32), ints(&[0, 2]), number(Bool), "2, value 1, is not a bool"),
        (number(Int64), ints(&[(1 << 53) + 1]), number(Float64), "is not a double"),
        (
            number(Float64),
            vec![Value::Float(0.5)],
            number(Int32),
            "0.5, value 0, is not a std::int32_t",
        ),
        (number(Float64), vec![Value::Float(1e300)], number(Float32), "is not a float"),
        (number(Float32), vec![Value::Float(2.0)], quantised, "outside the quantised range"),
        (number(Float32), vec![Value::Float(65_520.0)], half, "65520 is too large for half"),
        (list(number(Int8)), lists.clone(), number(Int8), "value 1 has 2 items, not one"),
        (list(number(Int8)), lists.clone(), optional(number(Int8)), "2 items, not at most one"),
        (optional(number(Int8)), vec![Value::Null], number(Int8), "value 0 has 0 items, not one"),
        (
            list(number(Int8)),
            lists,
            Type::Array { item: number(Int8).into(), size: 1 },
            "value 1 has 2 items, not 1",
        ),
        (number(Int8), ints(&[1]), Type::String, "cannot change from std::int8_t to std::string"),
    ];
    for (old, values, new, reason) in refused {
        let text = convert(old, &values, new).unwrap_err().to_string();
        assert!(text.starts_with("field \"x\": ") && text.contains(reason), "{text}");
    }
}

#[test]
fn a_conversion_lists_the_fields_that_it_narrows() {
    let old = record(&[("a", number(Primitive::Int32)), ("b", list(Type::String))]);
    let new = [NewMember::same("a", number(Primitive::Int8)), NewMember::same("b", Type::String)];
    let conversion = Conversion::new(&old, &new).unwrap();
    assert!(conversion.changes().iter().all(|change| change.kind == ChangeKind::Narrowed));
    assert_eq!(conversion.changes().len(), 2);
    rntuple::plan(&old, &new).unwrap_err();
}

/// Sliced arrays have offsets that do not start at 0, and items outside their lists.
#[test]
fn items_outside_all_lists_need_not_fit() {
    let of = record(&[("x", list(number(Primitive::Int32)))]);
    let content = Array::primitive(Primitive::Int32, vec![1000_i32, 1, 2, 3, 1000]);
    let lists = Array::List {
        offsets: rntuple::bytes_of(vec![1_i64, 3, 4]),
        content: content.into(),
        optional: false,
    };
    let array = Array::Record { length: 2, members: vec![("x".to_owned(), lists)] };
    array.validate(&of).unwrap();
    let new = NewMember::same("x", list(number(Primitive::Int8)));
    let converted = convert_array(&array, &of, &[new]).unwrap();
    let second = Value::Record(vec![("x".to_owned(), Value::List(ints(&[3])))]);
    assert_eq!(converted.value(1).unwrap(), second);
}

#[test]
fn an_array_of_another_type_is_refused() {
    let of = record(&[("x", list(number(Primitive::Int32)))]);
    let new = [NewMember::same("x", list(number(Primitive::Int8)))];
    let broken = Array::List {
        offsets: rntuple::bytes_of(vec![0_i64, 9]),
        content: Array::primitive(Primitive::Int32, vec![0_i32]).into(),
        optional: false,
    };
    let number = Array::primitive(Primitive::Int32, vec![0_i32]);
    for x in [broken, number.clone()] {
        let array = Array::Record { length: 1, members: vec![("x".to_owned(), x)] };
        convert_array(&array, &of, &new).unwrap_err();
    }
    convert_array(&number, &of, &new).unwrap_err();
}

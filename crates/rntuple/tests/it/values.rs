//! Random types and values of every kind, their arrays, and the comparison with values that are read.
//!
//! The tests of the engine use this module too. It converts values to arrays without the crate's code, to
//! check the crate's conversion of arrays to values.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::{collection::vec, option, sample};

use rntuple::{Array, Precision, Primitive, Type, Value, bytes_of};

pub(crate) const PRIMITIVES: [Primitive; 13] = {
    use Primitive::*;
    [Bool, Byte, Char, Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Float32, Float64]
};

/// Number of random cases of a test: few, or many if `FEMTOBARN_LONG` is set.
pub(crate) fn cases(few: u32) -> ProptestConfig {
    let many = if std::env::var_os("FEMTOBARN_LONG").is_some() { 50 } else { 1 };
    ProptestConfig { cases: few * many, ..ProptestConfig::default() }
}

/// Any type that can be written.
pub(crate) fn types() -> impl Strategy<Value = Type> {
    // Only lists and records hold records without a class name.
    typed().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|item| Type::List(item.into())),
            vec(inner, 0..4).prop_map(|members| record("", members)),
        ]
    })
}

/// The top-level fields of an RNTuple.
pub(crate) fn members() -> impl Strategy<Value = Vec<(String, Type)>> {
    vec(types(), 1..5).prop_map(numbered)
}

fn typed() -> impl Strategy<Value = Type> {
    let leaf = prop_oneof![
        6 => sample::select(&PRIMITIVES[..]).prop_map(Type::Primitive),
        3 => reduced(),
        2 => Just(Type::String),
        1 => (1..80u64).prop_map(|size| Type::Bitset { size }),
    ];
    leaf.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            2 => inner.clone().prop_map(|item| Type::List(item.into())),
            1 => (inner.clone(), 1..4u64).prop_map(|(item, size)| Type::Array { item: item.into(), size }),
            1 => inner.clone().prop_map(|item| Type::Optional(item.into())),
            1 => vec(inner.clone(), 1..4).prop_map(Type::Variant),
            1 => vec(inner, 0..3).prop_map(|members| record("Point", members)),
        ]
    })
}

fn reduced() -> impl Strategy<Value = Type> {
    let of = sample::select(&[Primitive::Float32, Primitive::Float64][..]);
    let precision = prop_oneof![
        Just(Precision::Half),
        (10..32u16).prop_map(|bits| Precision::Truncated { bits }),
        (1..33u16, -100.0..0.0, 1.0..100.0).prop_map(|(bits, min, max)| Precision::Quantised {
            bits,
            min,
            max
        }),
    ];
    prop_oneof![
        9 => (of, precision).prop_map(|(of, precision)| Type::Reduced(of, precision)),
        1 => Just(Type::Reduced(Primitive::Float64, Precision::Single)),
    ]
}

fn record(class: &str, members: Vec<Type>) -> Type {
    Type::Record { class: class.to_owned(), members: numbered(members) }
}

fn numbered(types: Vec<Type>) -> Vec<(String, Type)> {
    types.into_iter().enumerate().map(|(at, of)| (format!("f{at}"), of)).collect()
}

/// Any value of a type.
pub(crate) fn values(of: &Type) -> BoxedStrategy<Value> {
    match of {
        Type::Primitive(primitive) => primitives(*primitive),
        Type::Reduced(primitive, Precision::Quantised { min, max, .. }) => {
            // Still within the range after rounding to single precision.
            let single = *primitive == Primitive::Float32;
            let rounded = move |x| if single { f64::from(x as f32) } else { x };
            (min * 0.999..max * 0.999).prop_map(move |x| Value::Float(rounded(x))).boxed()
        }
        Type::Reduced(_, Precision::Half) => reals(true).prop_map(within_halves).boxed(),
        Type::Reduced(..) => reals(true),
        Type::String => ".{0,12}".prop_map(Value::String).boxed(),
        Type::List(item) => match (&**item, values(item)) {
            (Type::Primitive(Primitive::UInt8), _) => {
                vec(any::<u8>(), 0..9).prop_map(|b| Value::Bytes(Bytes::from(b))).boxed()
            }
            (_, items) => vec(items, 0..5).prop_map(Value::List).boxed(),
        },
        Type::Array { item, size } => {
            vec(values(item), *size as usize).prop_map(Value::List).boxed()
        }
        Type::Bitset { size } => {
            vec(any::<bool>().prop_map(Value::Bool), *size as usize).prop_map(Value::List).boxed()
        }
        Type::Optional(item) => {
            option::of(values(item)).prop_map(|value| value.unwrap_or(Value::Null)).boxed()
        }
        Type::Record { members, .. } => records(members),
        Type::Variant(alternatives) => variants(alternatives),
        Type::Cardinality(_) => Just(Value::Null).boxed(),
    }
}

fn primitives(of: Primitive) -> BoxedStrategy<Value> {
    match of {
        Primitive::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Primitive::Float32 => reals(true),
        Primitive::Float64 => reals(false),
        _ => {
            let range = of.integer_range().unwrap();
            let (least, most) = (*range.start(), *range.end());
            let any = prop_oneof![8 => least..=most, 1 => Just(least), 1 => Just(most)];
            any.prop_map(move |x| match least {
                0 => Value::UInt(x as u64),
                _ => Value::Int(x as i64),
            })
            .boxed()
        }
    }
}

/// Real numbers, among them NaN, infinities and tiny numbers.
fn reals(single: bool) -> BoxedStrategy<Value> {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-310, f64::MAX];
    let any = prop_oneof![8 => -1e9..1e9, 4 => -1.0..1.0, 1 => sample::select(odd.to_vec())];
    any.prop_map(move |x: f64| Value::Float(if single { f64::from(x as f32) } else { x })).boxed()
}

/// A number in the range of half precision.
fn within_halves(value: Value) -> Value {
    match value {
        Value::Float(x) if x.is_finite() && x.abs() >= 65_520.0 => Value::Float(x / 65_536.0),
        other => other,
    }
}

fn records(members: &[(String, Type)]) -> BoxedStrategy<Value> {
    let names: Vec<String> = members.iter().map(|(name, _)| name.clone()).collect();
    let strategies: Vec<_> = members.iter().map(|(_, of)| values(of)).collect();
    strategies
        .prop_map(move |values| Value::Record(names.iter().cloned().zip(values).collect()))
        .boxed()
}

fn variants(alternatives: &[Type]) -> BoxedStrategy<Value> {
    let chosen = alternatives
        .iter()
        .enumerate()
        .map(|(at, of)| values(of).prop_map(move |value| Value::Variant(at, value.into())).boxed());
    let none = Just(Value::Null).boxed();
    prop::strategy::Union::new(chosen.chain([none])).boxed()
}

/// Values of a type as an array.
pub(crate) fn array_of(of: &Type, values: &[Value]) -> Array {
    match of {
        Type::Primitive(primitive) | Type::Reduced(primitive, _) => numbers(*primitive, values),
        Type::String => {
            let texts: Vec<&str> = values.iter().map(text).collect();
            let bytes = texts.concat().into_bytes().into();
            Array::String { offsets: offsets(texts.iter().map(|text| text.len())), bytes }
        }
        Type::List(item) => lists(item, values.iter().map(items), false),
        Type::Optional(item) => {
            let some = |value: &Value| match value {
                Value::Null => vec![],
                some => vec![some.clone()],
            };
            lists(item, values.iter().map(some), true)
        }
        Type::Array { item, size } => fixed(item, *size, values),
        Type::Bitset { size } => fixed(&Type::Primitive(Primitive::Bool), *size, values),
        Type::Record { members, .. } => Array::Record {
            length: values.len(),
            members: members
                .iter()
                .map(|(name, of)| (name.clone(), column(name, of, values)))
                .collect(),
        },
        Type::Variant(alternatives) => variant(alternatives, values),
        Type::Cardinality(_) => unreachable!("cardinalities are not written"),
    }
}

fn column(name: &str, of: &Type, values: &[Value]) -> Array {
    let values: Vec<Value> =
        values.iter().map(|value| value.member(name).unwrap().clone()).collect();
    array_of(of, &values)
}

fn lists(item: &Type, lists: impl Iterator<Item = Vec<Value>>, optional: bool) -> Array {
    let lists: Vec<Vec<Value>> = lists.collect();
    Array::List {
        offsets: offsets(lists.iter().map(Vec::len)),
        content: array_of(item, &lists.concat()).into(),
        optional,
    }
}

fn fixed(item: &Type, size: u64, values: &[Value]) -> Array {
    let content: Vec<Value> = values.iter().flat_map(items).collect();
    Array::Fixed { size, length: values.len(), content: array_of(item, &content).into() }
}

fn variant(alternatives: &[Type], values: &[Value]) -> Array {
    let mut contents: Vec<Vec<Value>> = vec![vec![]; alternatives.len()];
    let (mut tags, mut positions) = (vec![], vec![]);
    for value in values {
        match value {
            Value::Variant(chosen, value) => {
                tags.push(*chosen as i8);
                positions.push(contents[*chosen].len() as i64);
                contents[*chosen].push((**value).clone());
            }
            _ => {
                tags.push(-1);
                positions.push(0_i64);
            }
        }
    }
    let contents = alternatives.iter().zip(&contents);
    Array::Variant {
        tags: bytes_of(tags),
        positions: bytes_of(positions),
        contents: contents.map(|(of, values)| array_of(of, values)).collect(),
    }
}

fn numbers(of: Primitive, values: &[Value]) -> Array {
    fn integers<T: TryFrom<i128>>(values: &[Value]) -> Vec<T> {
        let integer = |value: &Value| T::try_from(value.as_integer().unwrap()).ok().unwrap();
        values.iter().map(integer).collect()
    }
    let reals = || values.iter().map(|value| value.as_float().unwrap());
    match of {
        Primitive::Bool | Primitive::Byte | Primitive::Char | Primitive::UInt8 => {
            Array::primitive(of, integers::<u8>(values))
        }
        Primitive::Int8 => Array::primitive(of, integers::<i8>(values)),
        Primitive::Int16 => Array::primitive(of, integers::<i16>(values)),
        Primitive::UInt16 => Array::primitive(of, integers::<u16>(values)),
        Primitive::Int32 => Array::primitive(of, integers::<i32>(values)),
        Primitive::UInt32 => Array::primitive(of, integers::<u32>(values)),
        Primitive::Int64 => Array::primitive(of, integers::<i64>(values)),
        Primitive::UInt64 => Array::primitive(of, integers::<u64>(values)),
        Primitive::Float32 => Array::primitive(of, reals().map(|x| x as f32).collect()),
        Primitive::Float64 => Array::primitive(of, reals().collect()),
    }
}

fn offsets(sizes: impl Iterator<Item = usize>) -> Bytes {
    let mut offsets = vec![0_i64];
    for size in sizes {
        offsets.push(offsets[offsets.len() - 1] + size as i64);
    }
    bytes_of(offsets)
}

fn text(value: &Value) -> &str {
    match value {
        Value::String(text) => text,
        other => panic!("{other:?} is not text"),
    }
}

/// The items of a list of values or bytes.
fn items(value: &Value) -> Vec<Value> {
    match value {
        Value::List(items) => items.clone(),
        Value::Bytes(bytes) => bytes.iter().map(|&byte| Value::UInt(byte.into())).collect(),
        other => panic!("{other:?} is not a list"),
    }
}

/// Fails unless `read` equals `written`, up to the rounding of its type.
pub(crate) fn assert_agree(of: &Type, written: &Value, read: &Value) {
    assert!(agree(of, written, read), "{written:?} came back as {read:?}, of {of:?}");
}

fn agree(of: &Type, written: &Value, read: &Value) -> bool {
    match (of, written, read) {
        (Type::Primitive(Primitive::Float32 | Primitive::Float64), _, Value::Float(read)) => {
            is_same(written.as_float().unwrap(), *read)
        }
        (Type::Primitive(_), _, _) => written.as_integer() == read.as_integer(),
        (Type::Reduced(of, precision), _, Value::Float(read)) => {
            rounds_to(*of, *precision, written.as_float().unwrap(), *read)
        }
        (Type::List(item) | Type::Array { item, .. }, _, Value::List(_) | Value::Bytes(_)) => {
            all_agree(item, written, read)
        }
        (Type::Bitset { .. }, _, Value::List(_)) => {
            all_agree(&Type::Primitive(Primitive::Bool), written, read)
        }
        (Type::Optional(_) | Type::Variant(_), Value::Null, _) => *read == Value::Null,
        (Type::Optional(item), some, _) => agree(item, some, read),
        (Type::Record { members, .. }, Value::Record(a), Value::Record(b)) => {
            let each = members.iter().zip(a.iter().zip(b));
            a.len() == b.len()
                && each.into_iter().all(|((name, of), (a, b))| {
                    (&a.0, &b.0) == (name, name) && agree(of, &a.1, &b.1)
                })
        }
        (Type::Variant(alternatives), Value::Variant(a, written), Value::Variant(b, read)) => {
            a == b && agree(&alternatives[*a], written, read)
        }
        _ => written == read,
    }
}

fn all_agree(item: &Type, written: &Value, read: &Value) -> bool {
    let (written, read) = (items(written), items(read));
    written.len() == read.len() && written.iter().zip(&read).all(|(a, b)| agree(item, a, b))
}

fn is_same(written: f64, read: f64) -> bool {
    written.to_bits() == read.to_bits() || written.is_nan() && read.is_nan()
}

fn rounds_to(of: Primitive, precision: Precision, written: f64, read: f64) -> bool {
    let single = written as f32;
    match precision {
        Precision::Single => is_same(single.into(), read),
        Precision::Half => is_same(half::f16::from_f32(single).to_f64(), read),
        Precision::Truncated { bits } => {
            let kept = single.to_bits() & (u32::MAX << (32 - bits));
            is_same(f32::from_bits(kept).into(), read)
        }
        Precision::Quantised { bits, min, max } => {
            let step = (max - min) / ((1_u64 << bits) - 1) as f64;
            let rounding = if of == Primitive::Float32 { 1e-7 } else { 1e-15 };
            (written - read).abs() <= step / 2.0 + (max - min) * rounding
        }
    }
}

//! Fields of every type that the crate writes, and nestings that readers get wrong. Names are those of the
//! equal fields that the judges write, if any.

use rntuple::{Precision, Primitive, Type};

type Members = Vec<(String, Type)>;

const PRIMITIVES: [(&str, Primitive); 13] = [
    ("bool", Primitive::Bool),
    ("byte", Primitive::Byte),
    ("char", Primitive::Char),
    ("int8", Primitive::Int8),
    ("uint8", Primitive::UInt8),
    ("int16", Primitive::Int16),
    ("uint16", Primitive::UInt16),
    ("int32", Primitive::Int32),
    ("uint32", Primitive::UInt32),
    ("int64", Primitive::Int64),
    ("uint64", Primitive::UInt64),
    ("float", Primitive::Float32),
    ("double", Primitive::Float64),
];
const FLOAT: Type = Type::Primitive(Primitive::Float32);
const DOUBLE: Type = Type::Primitive(Primitive::Float64);
const BOOL: Type = Type::Primitive(Primitive::Bool);
const INT16: Type = Type::Primitive(Primitive::Int16);
const INT32: Type = Type::Primitive(Primitive::Int32);
const DOUBLE32: Type = Type::Reduced(Primitive::Float64, Precision::Single);

/// All lossless types.
pub(crate) fn everything() -> Members {
    let mut fields: Members =
        PRIMITIVES.map(|(name, of)| (name.into(), Type::Primitive(of))).into();
    fields.extend(named([("string", Type::String), ("double32", DOUBLE32)]));
    let lists = fields.iter().map(|(name, of)| (format!("vector_{name}"), list(of.clone())));
    let arrays = fields.iter().map(|(name, of)| (format!("array_{name}"), array(of.clone(), 3)));
    let optionals =
        fields.iter().map(|(name, of)| (format!("optional_{name}"), optional(of.clone())));
    let all: Members = lists.chain(arrays).chain(optionals).collect();
    fields.extend(all);
    fields.extend(nested());
    fields.extend(records());
    fields.extend(variants());
    fields
}

/// A few fields, for files of many entries.
pub(crate) fn few() -> Members {
    named([("id", INT32), ("values", list(FLOAT)), ("text", Type::String), ("flag", BOOL)])
}

fn nested() -> Members {
    named([
        ("vector_vector_float", list(list(FLOAT))),
        ("vector_vector_string", list(list(Type::String))),
        ("vector_vector_vector_int16", list(list(list(INT16)))),
        ("vector_vector_bool", list(list(BOOL))),
        ("array_array_int32", array(array(INT32, 2), 3)),
        ("array_vector_double", array(list(DOUBLE), 2)),
        ("vector_array_int16", list(array(INT16, 2))),
        ("vector_array_array_float", list(array(array(FLOAT, 2), 2))),
        ("vector_optional_int32", list(optional(INT32))),
        ("optional_vector_point", optional(list(point()))),
        ("optional_array_string", optional(array(Type::String, 2))),
        ("bitset_1", Type::Bitset { size: 1 }),
        ("bitset_9", Type::Bitset { size: 9 }),
        ("bitset_70", Type::Bitset { size: 70 }),
        ("vector_bitset", list(Type::Bitset { size: 5 })),
    ])
}

fn records() -> Members {
    let inner = record("", [("d", Type::String), ("e", list(INT16))]);
    let outer = record("", [("a", INT32), ("b", DOUBLE), ("c", inner.clone())]);
    let vertex =
        record("Vertex", [("x", FLOAT), ("tracks", list(record("Track", [("pt", FLOAT)])))]);
    let pair = record("std::pair<std::int32_t,double>", [("_0", INT32), ("_1", DOUBLE)]);
    let tuple = [("_0", FLOAT), ("_1", Type::String), ("_2", list(INT16))];
    let empty = record("judge::Empty", []);
    let tuple = record("std::tuple<float,std::string,std::vector<std::int16_t>>", tuple);
    named([
        ("record", outer.clone()),
        ("vector_record", list(outer)),
        ("vector_vector_record", list(list(inner))),
        ("point", point()),
        ("vector_point", list(point())),
        ("array_point", array(point(), 2)),
        ("vertex", vertex.clone()),
        ("vector_vertex", list(vertex)),
        ("pair", pair.clone()),
        ("vector_pair", list(pair)),
        ("tuple", tuple.clone()),
        ("vector_tuple", list(tuple)),
        ("empty", empty.clone()),
        ("array_empty", array(empty.clone(), 2)),
        ("vector_empty", list(empty)),
        ("vector_vector_untyped_empty", list(list(record("", [])))),
    ])
}

fn variants() -> Members {
    let three = Type::Variant(vec![FLOAT, list(INT16), point()]);
    named([
        ("variant_int32_string", Type::Variant(vec![INT32, Type::String])),
        ("variant_three", three),
        ("vector_variant", list(Type::Variant(vec![DOUBLE, Type::String, BOOL]))),
        ("optional_variant", optional(Type::Variant(vec![FLOAT, list(INT32)]))),
    ])
}

/// Fields of less than single precision, each with the relative error that it may have.
pub(crate) fn lossy() -> Vec<(String, Type, f64)> {
    let mut precisions = vec![("half".to_owned(), Precision::Half, 2f64.powi(-11))];
    for bits in [10, 16, 23, 31] {
        let kept_of_mantissa = i32::from(bits) - 9;
        let precision = Precision::Truncated { bits };
        precisions.push((format!("truncated_{bits}"), precision, 2f64.powi(-kept_of_mantissa)));
    }
    for bits in [1, 7, 8, 12, 20, 24, 32] {
        let (min, max) = (-10.0, 30.0);
        let step = (max - min) / ((1u64 << bits) - 1) as f64;
        let precision = Precision::Quantised { bits, min, max };
        precisions.push((format!("quantised_{bits}"), precision, step));
    }
    let mut fields = vec![];
    for (name, precision, loss) in precisions {
        // Half a step may be less than the precision of single-precision numbers.
        let single_loss = loss.max(2f64.powi(-24));
        let float = Type::Reduced(Primitive::Float32, precision);
        let double = Type::Reduced(Primitive::Float64, precision);
        fields.push((format!("vector_float_{name}"), list(float.clone()), single_loss));
        fields.push((format!("float_{name}"), float, single_loss));
        fields.push((format!("array_double_{name}"), array(double.clone(), 2), loss));
        fields.push((format!("double_{name}"), double, loss));
    }
    fields
}

/// A class that the judges declare.
fn point() -> Type {
    record("judge::Point", [("x", FLOAT), ("y", DOUBLE), ("hits", list(INT32))])
}

fn record<const N: usize>(class: &str, members: [(&str, Type); N]) -> Type {
    Type::Record { class: class.to_owned(), members: named(members) }
}

fn named<const N: usize>(members: [(&str, Type); N]) -> Members {
    members.map(|(name, of)| (name.to_owned(), of)).into()
}

fn list(item: Type) -> Type {
    Type::List(item.into())
}

fn array(item: Type, size: u64) -> Type {
    Type::Array { item: item.into(), size }
}

fn optional(item: Type) -> Type {
    Type::Optional(item.into())
}

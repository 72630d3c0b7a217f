//! Every type of field, written and read as values and arrays.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample};

use femtobarn::{Class, ContainerOptions, ErrorKind, Federation, Field, FieldType, Profile, View};
use rntuple::{Precision, Primitive, Type, Value};

use crate::support::{begin, federation, reopened};
use crate::values::{array_of, assert_agree, cases, values};

/// Any type of field but links.
fn field_types() -> impl Strategy<Value = FieldType> {
    use FieldType::*;
    let simple = sample::select(vec![
        Bool, Byte, Char, Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Float16,
        Float32, Float64, Double32, String,
    ]);
    let leaf = prop_oneof![
        12 => simple,
        1 => (10..32_u16).prop_map(|bits| Truncated { bits }),
        1 => (1..33_u16).prop_map(|bits| Quantised { bits, min: -10.0, max: 30.0 }),
        1 => (1..70_u64).prop_map(Bitset),
    ];
    let typed = leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            2 => inner.clone().prop_map(|of| List(of.into())),
            1 => (inner.clone(), 1..4_u64).prop_map(|(of, size)| Array { of: of.into(), size }),
            1 => inner.clone().prop_map(|of| Optional(of.into())),
            1 => vec(inner, 1..4).prop_map(Variant),
        ]
    });
    typed.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            2 => inner.clone().prop_map(|of| List(of.into())),
            1 => inner.clone().prop_map(|of| Optional(of.into())),
            2 => vec(inner, 1..4).prop_map(|members| {
                Record { class: std::string::String::new(), fields: fields(members) }
            }),
        ]
    })
}

fn fields(types: Vec<FieldType>) -> Vec<Field> {
    let field = |(at, of)| Field {
        name: format!("f{at}"),
        of,
        description: String::new(),
        was: String::new(),
        default: None,
    };
    types.into_iter().enumerate().map(field).collect()
}

fn class(types: Vec<FieldType>) -> Class {
    Class { name: "Anything".to_owned(), version: 1, fields: fields(types) }
}

/// The type of a class's objects as users see them.
pub(crate) fn type_of_class(class: &Class) -> Type {
    record(&class.fields)
}

fn record(fields: &[Field]) -> Type {
    let members = fields.iter().map(|field| (field.name.clone(), type_of(&field.of))).collect();
    Type::Record { class: String::new(), members }
}

fn type_of(of: &FieldType) -> Type {
    let reduced = |precision| Type::Reduced(Primitive::Float32, precision);
    Type::Primitive(match of {
        FieldType::Bool => Primitive::Bool,
        FieldType::Byte => Primitive::Byte,
        FieldType::Char => Primitive::Char,
        FieldType::Int8 => Primitive::Int8,
        FieldType::UInt8 => Primitive::UInt8,
        FieldType::Int16 => Primitive::Int16,
        FieldType::UInt16 => Primitive::UInt16,
        FieldType::Int32 => Primitive::Int32,
        FieldType::UInt32 => Primitive::UInt32,
        FieldType::Int64 => Primitive::Int64,
        FieldType::UInt64 => Primitive::UInt64,
        FieldType::Float32 => Primitive::Float32,
        FieldType::Float64 => Primitive::Float64,
        FieldType::Float16 => return reduced(Precision::Half),
        FieldType::Double32 => return Type::Reduced(Primitive::Float64, Precision::Single),
        FieldType::Truncated { bits } => return reduced(Precision::Truncated { bits: *bits }),
        FieldType::Quantised { bits, min, max } => {
            return reduced(Precision::Quantised { bits: *bits, min: *min, max: *max });
        }
        FieldType::String => return Type::String,
        FieldType::List(item) => return Type::List(type_of(item).into()),
        FieldType::Array { of, size } => {
            return Type::Array { item: type_of(of).into(), size: *size };
        }
        FieldType::Bitset(size) => return Type::Bitset { size: *size },
        FieldType::Optional(item) => return Type::Optional(type_of(item).into()),
        FieldType::Record { fields, .. } => return record(fields),
        FieldType::Meaning { of, .. } => return type_of(of),
        FieldType::Variant(of) => return Type::Variant(of.iter().map(type_of).collect()),
        FieldType::Link(_) | FieldType::ElementLink(_) => panic!("links have tests of their own"),
    })
}

fn options() -> impl Strategy<Value = ContainerOptions> {
    let profiles = [Profile::Plain, Profile::Fast, Profile::Archive];
    // The smallest there are, so that even small tests have several pages and clusters.
    let sizes = sample::select(vec![(4096, 4096), (4096, 10_000), (5000, 1 << 20)]);
    (sample::select(profiles.to_vec()), sizes).prop_map(
        |(compression, (page_size, cluster_size))| ContainerOptions {
            compression,
            page_size,
            cluster_size,
            ..Default::default()
        },
    )
}

/// Writes rows to `db/c`: some as values, some as an array, in two transactions.
fn write(federation: &Federation, class: &Class, options: ContainerOptions, rows: &[Value]) {
    let of = type_of_class(class);
    let (first, second) = rows.split_at(rows.len() / 2);
    let mut transaction = begin(federation);
    let database = transaction.create_database("db").unwrap();
    let key = transaction.create_container(database, "c", class, options).unwrap();
    for (entry, row) in (0..).zip(first) {
        assert_eq!(transaction.append_value(key, row.clone()).unwrap().entry, entry);
    }
    transaction.commit().unwrap();
    let mut transaction = begin(federation);
    let key = transaction.container(database, "c").unwrap();
    let oid = transaction.extend(key, array_of(&of, second)).unwrap();
    assert_eq!(oid.entry, first.len() as u64);
    transaction.commit().unwrap();
}

pub(crate) fn assert_holds(view: &View, of: &Type, rows: &[Value]) {
    assert_eq!(view.entries(), rows.len() as u64);
    let all = view.read(&view.select_all(), 0..view.entries()).unwrap();
    for (entry, row) in rows.iter().enumerate() {
        assert_agree(of, row, &all.value(entry).unwrap());
        assert_agree(of, row, &view.value(entry as u64).unwrap());
    }
}

proptest! {
    #![proptest_config(cases(30))]

    #[test]
    fn objects_of_any_class_come_back(
        (class, rows) in vec(field_types(), 1..5).prop_flat_map(|types| {
            let class = class(types);
            let rows = vec(values(&type_of_class(&class)), 0..30);
            (Just(class), rows)
        }),
        options in options(),
        picked in vec(any::<sample::Index>(), 0..20),
    ) {
        let (folder, federation) = federation();
        write(&federation, &class, options, &rows);
        let of = type_of_class(&class);
        let view = federation.snapshot(None).unwrap().view("db/c").unwrap();
        assert_holds(&view, &of, &rows);
        prop_assert_eq!(view.class(), &class);

        // The same from the sealed file, in another federation.
        federation.seal("db", Duration::ZERO).unwrap();
        let other = Federation::create(&folder.path().join("other.fed"), "other").unwrap();
        other.attach(&folder.path().join("test.fed/databases/db.root"), None).unwrap();
        let attached = other.snapshot(None).unwrap().view("db/c").unwrap();
        assert_holds(&attached, &of, &rows);
        prop_assert_eq!(attached.class(), &class);

        // Any entries in any order, some of them twice, and single fields.
        let view = reopened(&folder).snapshot(None).unwrap().view("db/c").unwrap();
        let picked: Vec<u64> = match rows.len() {
            0 => vec![],
            count => picked.iter().map(|index| index.index(count) as u64).collect(),
        };
        for field in &class.fields {
            let selection = view.select(&[&field.name]).unwrap();
            let fetched = view.fetch(&selection, &picked).unwrap();
            prop_assert_eq!(fetched.len(), picked.len());
            for (at, &entry) in picked.iter().enumerate() {
                let written = rows[entry as usize].member(&field.name).unwrap();
                let read = fetched.value(at).unwrap();
                assert_agree(&type_of(&field.of), written, read.member(&field.name).unwrap());
            }
        }
    }
}

#[test]
fn reading_past_the_last_entry_is_not_found() {
    let (_folder, federation) = federation();
    let class = class(vec![FieldType::Int32]);
    let rows = vec![Value::Record(vec![("f0".to_owned(), Value::Int(1))]); 4];
    write(&federation, &class, ContainerOptions::default(), &rows);
    let view = federation.snapshot(None).unwrap().view("db/c").unwrap();
    let all = view.select_all();
    for entry in [4, 1 << 40, u64::MAX] {
        assert_eq!(view.value(entry).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(view.fetch(&all, &[0, entry]).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(
            view.read(&all, 2..entry + u64::from(entry == 4)).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        let oid = view.oid(entry);
        let error = view.snapshot().object(oid).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    assert_eq!(view.read(&all, 4..4).unwrap().len(), 0);
}

#[test]
fn huge_and_empty_collections_come_back() {
    let class = class(vec![
        FieldType::List(FieldType::Float64.into()),
        FieldType::String,
        FieldType::List(FieldType::List(FieldType::UInt8.into()).into()),
    ]);
    let of = type_of_class(&class);
    let row = |numbers: usize, letters: usize, lists: usize| {
        let numbers = (0..numbers).map(|n| Value::Float(n as f64)).collect();
        let lists = (0..lists).map(|n| Value::Bytes(vec![n as u8; n % 3].into())).collect();
        let values = [Value::List(numbers), Value::String("ä".repeat(letters)), Value::List(lists)];
        Value::Record((0..).map(|at| format!("f{at}")).zip(values).collect())
    };
    let rows =
        [row(0, 0, 0), row(200_000, 0, 0), row(0, 1 << 20, 0), row(1, 1, 70_000), row(0, 0, 0)];
    for compression in [Profile::Plain, Profile::Archive] {
        let (_folder, federation) = federation();
        let options = ContainerOptions {
            page_size: 4096,
            cluster_size: 4096,
            compression,
            ..Default::default()
        };
        write(&federation, &class, options, &rows);
        let view = federation.snapshot(None).unwrap().view("db/c").unwrap();
        assert_holds(&view, &of, &rows);
    }
}

/// A refused object changes nothing, and the transaction continues.
#[test]
fn objects_that_do_not_match_their_class_are_refused() {
    let (_folder, federation) = federation();
    let quantised = FieldType::Quantised { bits: 8, min: 0.0, max: 1.0 };
    let class = class(vec![
        FieldType::UInt8,
        quantised,
        FieldType::Array { of: FieldType::Int32.into(), size: 2 },
        FieldType::Optional(FieldType::String.into()),
        FieldType::Variant(vec![FieldType::Int8, FieldType::String]),
    ]);
    let of = type_of_class(&class);
    let mut transaction = begin(&federation);
    let database = transaction.create_database("db").unwrap();
    let key = transaction.create_container(database, "c", &class, Default::default()).unwrap();
    let good = [
        Value::UInt(255),
        Value::Float(0.5),
        Value::List(vec![Value::Int(1), Value::Int(-1)]),
        Value::Null,
        Value::Variant(1, Value::String("x".into()).into()),
    ];
    let object = |values: &[Value]| {
        Value::Record((0..).map(|at| format!("f{at}")).zip(values.iter().cloned()).collect())
    };
    let bad = [
        (0, Value::UInt(256)),
        (0, Value::Int(-1)),
        (0, Value::Float(1.0)),
        (0, Value::Null),
        (1, Value::Float(f64::NAN)),
        (1, Value::Float(1.5)),
        (1, Value::Float(f64::NEG_INFINITY)),
        (2, Value::List(vec![Value::Int(1)])),
        (2, Value::Null),
        (3, Value::UInt(1)),
        (4, Value::Variant(2, Value::UInt(1).into())),
        (4, Value::Variant(0, Value::String("x".into()).into())),
    ];
    for (at, value) in bad {
        let mut values = good.clone();
        values[at] = value;
        let error = transaction.append_value(key, object(&values)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(&format!("f{at}")), "{error}");
        if at == 1 {
            let error = transaction.extend(key, array_of(&of, &[object(&values)])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        transaction.append_value(key, object(&good)).unwrap();
    }
    for missing in [object(&good[..4]), Value::Null, Value::UInt(1)] {
        let error = transaction.append_value(key, missing).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("db/c").unwrap();
    assert_holds(&view, &of, &vec![object(&good); 12]);
}

#[test]
fn classes_that_cannot_be_stored_are_refused() {
    let (_folder, federation) = federation();
    let mut transaction = begin(&federation);
    let database = transaction.create_database("db").unwrap();
    let record =
        || FieldType::Record { class: String::new(), fields: fields(vec![FieldType::Bool]) };
    let quantised = |bits, min, max| FieldType::Quantised { bits, min, max };
    let bad = [
        class(vec![]),
        class(vec![FieldType::Truncated { bits: 9 }]),
        class(vec![FieldType::Truncated { bits: 32 }]),
        class(vec![quantised(0, 0.0, 1.0)]),
        class(vec![quantised(33, 0.0, 1.0)]),
        class(vec![quantised(8, 1.0, 1.0)]),
        class(vec![quantised(8, 0.0, f64::INFINITY)]),
        class(vec![quantised(8, f64::NAN, 1.0)]),
        class(vec![FieldType::Bitset(0)]),
        class(vec![FieldType::Array { of: FieldType::Bool.into(), size: 0 }]),
        class(vec![FieldType::Array { of: record().into(), size: 2 }]),
        class(vec![FieldType::Variant(vec![])]),
        class(vec![FieldType::Variant(vec![FieldType::Bool; 126])]),
        Class { version: 0, ..class(vec![FieldType::Bool]) },
        Class {
            fields: [fields(vec![FieldType::Bool]), fields(vec![FieldType::Bool])].concat(),
            ..class(vec![])
        },
    ];
    for bad in bad {
        let error = transaction.create_container(database, "c", &bad, Default::default());
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{bad:?}: {error}");
    }
    let json = r#"{"name": "A", "version": 1, "fields": [{"name": "x", "type": "flaot"}]}"#;
    assert_eq!(Class::from_json(json).unwrap_err().kind(), ErrorKind::Invalid);
}

/// The conflict was once detected only after all data had been written.
#[test]
fn another_definition_of_a_class_is_refused_at_once() {
    let (_folder, federation) = federation();
    write(&federation, &class(vec![FieldType::Bool]), ContainerOptions::default(), &[]);
    let mut transaction = begin(&federation);
    let database = transaction.database("db").unwrap();
    let other = class(vec![FieldType::Int8]);
    let error = transaction.create_container(database, "d", &other, Default::default());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Exists);
    let next = Class { version: 2, ..other };
    transaction.create_container(database, "d", &next, Default::default()).unwrap();
    transaction.commit().unwrap();
}

//! Schemas that claim more than a file stores: records without members, and long names of base classes.

use std::sync::Arc;

use rntuple::{Array, Reader, Structure, Type, Value, bytes_of};

use crate::parts::{Parts, read_all};

/// Three entries, each with 2^40 items for which no bytes are stored. In an array they need no memory; a value
/// would list them.
#[test]
fn values_with_too_many_records_without_members_are_refused() {
    let of = Type::Record {
        class: String::new(),
        members: vec![("x".to_owned(), Type::Primitive(rntuple::Primitive::Int32))],
    };
    let row = Value::Record(vec![("x".to_owned(), Value::Int(1))]);
    for (size, is_shown) in [(4, true), (1 << 40, false), (1 << 58, false)] {
        let mut parts = Parts::of(&of, &vec![row.clone(); 3], rntuple::WriteOptions::default());
        let field = |structure, parent, repetition| rntuple::Field {
            structure,
            parent,
            repetition,
            name: "empty".to_owned(),
            ..parts.header.schema.fields[0].clone()
        };
        let fields = [field(Structure::Leaf, 1, Some(size)), field(Structure::Record, 1, None)];
        parts.header.schema.fields.extend(fields);
        let anchor = parts.anchor();
        let reader = Reader::from_anchor(Arc::new(parts.blobs), &anchor).unwrap();
        let array = reader.read(&reader.select_all(), 0..3).unwrap();
        assert_eq!(array.member("empty").unwrap().len(), 3);
        assert_eq!(array.value(2).is_ok(), is_shown, "{size}");
        read_all(&reader);
    }
}

/// Each list once had a bound of its own, so a value of a few bytes took gigabytes.
#[test]
fn lists_of_records_without_members_share_one_bound() {
    let value = |lists: i64, items: i64| {
        let list = |ends: Vec<i64>, content: Array| Array::List {
            offsets: bytes_of(ends),
            content: Box::new(content),
            optional: false,
        };
        let length = (lists * items) as usize;
        let empty = Array::Record { length, members: vec![] };
        let inner = list((0..=lists).map(|list| list * items).collect(), empty);
        list(vec![0, lists], inner).value(0)
    };
    assert!(value(2, 1 << 10).is_ok());
    assert!(value(3, 1 << 19).is_err());
}

/// A reader of a schema with these records after its first field: parent, name and name of the type.
fn with_records(records: &[(u32, &str, &str)]) -> Reader {
    let of = Type::Record {
        class: String::new(),
        members: vec![("first".to_owned(), Type::Primitive(rntuple::Primitive::Int32))],
    };
    let mut parts = Parts::of(&of, &[], rntuple::WriteOptions::default());
    let field = |(parent, name, type_name): &(u32, &str, &str)| rntuple::Field {
        structure: Structure::Record,
        parent: *parent,
        name: (*name).to_owned(),
        type_name: (*type_name).to_owned(),
        ..parts.header.schema.fields[0].clone()
    };
    let fields: Vec<_> = records.iter().map(field).collect();
    parts.header.schema.fields.extend(fields);
    let anchor = parts.anchor();
    Reader::from_anchor(Arc::new(parts.blobs), &anchor).unwrap()
}

#[test]
fn inherited_members_of_equal_names_are_qualified() {
    let records =
        [(1, "d", "D"), (1, ":_0", "B"), (2, ":_0", "A"), (3, "x", ""), (2, "x", ""), (1, "y", "")];
    let members = with_records(&records).members();
    let Type::Record { members, .. } = &members[1].1 else { panic!("{members:?}") };
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["A::x", "x", "y"]);
}

/// A header of a megabyte once took gigabytes: each inherited member was qualified by all its base classes.
#[test]
fn long_names_of_base_classes_take_bounded_memory() {
    let long = "B".repeat(1 << 20);
    let of = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
        let mut records = vec![(1, "d", "D"), (1, ":_0", &*long), (1, ":_1", &*long)];
        for base in [2, 3] {
            records.extend(names.iter().map(|name| (base, &**name, "")));
        }
        with_records(&records)
    };
    // Each member is qualified by its base class, which takes 16 MiB in all.
    assert_eq!(of(8).members().len(), 2);
    let refused = of(9);
    assert_eq!((refused.members().len(), &*refused.ignored()[0].0), (1, "d"));
}

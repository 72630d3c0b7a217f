//! Every type of member of Rust rows.

use femtobarn::{Class, ContainerOptions, ErrorKind, Profile};
use rntuple::{Value, row};

use crate::support::{begin, federation};
use crate::types::{assert_holds, type_of_class};

row! {
    #[derive(Clone)]
    struct Hit { x: f32, cells: Vec<u16> }
}

row! {
    struct Everything {
        yes: bool,
        a: i8, b: u8, c: i16, d: u16, e: i32, f: u32, g: i64, h: u64,
        x: f32, y: f64,
        text: String,
        hits: Vec<Hit>,
        matrix: [f32; 6],
        deep: Vec<Vec<Option<i32>>>,
        maybe: Option<f64>,
        first: Hit,
    }
}

const EVERYTHING: &str = r#"{"name": "Everything", "version": 1, "fields": [
    {"name": "yes", "type": "bool"},
    {"name": "a", "type": "int8"}, {"name": "b", "type": "uint8"},
    {"name": "c", "type": "int16"}, {"name": "d", "type": "uint16"},
    {"name": "e", "type": "int32"}, {"name": "f", "type": "uint32"},
    {"name": "g", "type": "int64"}, {"name": "h", "type": "uint64"},
    {"name": "x", "type": "float32"}, {"name": "y", "type": "float64"},
    {"name": "text", "type": "string"},
    {"name": "hits", "type": {"list": {"record": {"class": "Hit", "fields": [
        {"name": "x", "type": "float32"}, {"name": "cells", "type": {"list": "uint16"}}]}}}},
    {"name": "matrix", "type": {"array": {"of": "float32", "size": 6}}},
    {"name": "deep", "type": {"list": {"list": {"optional": "int32"}}}},
    {"name": "maybe", "type": {"optional": "float64"}},
    {"name": "first", "type": {"record": {"fields": [
        {"name": "x", "type": "float32"}, {"name": "cells", "type": {"list": "uint16"}}]}}}]}"#;

fn everything(n: u64) -> Everything {
    let hit = |k: u64| Hit { x: (n + k) as f32, cells: (0..k as u16 % 3).collect() };
    Everything {
        yes: n.is_multiple_of(3),
        a: n as i8,
        b: n as u8,
        c: -(n as i16),
        d: n as u16,
        e: i32::MIN + n as i32,
        f: u32::MAX - n as u32,
        g: i64::MIN + n as i64,
        h: u64::MAX - n,
        x: if n.is_multiple_of(5) { f32::NAN } else { n as f32 / 3.0 },
        y: if n.is_multiple_of(7) { f64::NEG_INFINITY } else { n as f64 / 3.0 },
        text: "µ".repeat(n as usize % 4),
        hits: (0..n % 5).map(hit).collect(),
        matrix: [n as f32; 6],
        deep: vec![vec![None, Some(n as i32)]; n as usize % 3],
        maybe: (n.is_multiple_of(2)).then_some(n as f64),
        first: hit(n),
    }
}

fn everything_as_value(row: &Everything) -> Value {
    let float = |x: f32| Value::Float(x.into());
    let hit = |hit: &Hit| {
        let cells = hit.cells.iter().map(|&cell| Value::UInt(cell.into())).collect();
        Value::Record(vec![
            ("x".to_owned(), float(hit.x)),
            ("cells".to_owned(), Value::List(cells)),
        ])
    };
    let maybe = |x: &Option<i32>| x.map_or(Value::Null, |x| Value::Int(x.into()));
    let inner = |list: &Vec<Option<i32>>| Value::List(list.iter().map(maybe).collect());
    let members = [
        ("yes", Value::Bool(row.yes)),
        ("a", Value::Int(row.a.into())),
        ("b", Value::UInt(row.b.into())),
        ("c", Value::Int(row.c.into())),
        ("d", Value::UInt(row.d.into())),
        ("e", Value::Int(row.e.into())),
        ("f", Value::UInt(row.f.into())),
        ("g", Value::Int(row.g)),
        ("h", Value::UInt(row.h)),
        ("x", float(row.x)),
        ("y", Value::Float(row.y)),
        ("text", Value::String(row.text.clone())),
        ("hits", Value::List(row.hits.iter().map(hit).collect())),
        ("matrix", Value::List(row.matrix.iter().map(|&x| float(x)).collect())),
        ("deep", Value::List(row.deep.iter().map(inner).collect())),
        ("maybe", row.maybe.map_or(Value::Null, Value::Float)),
        ("first", hit(&row.first)),
    ];
    Value::Record(members.map(|(name, value)| (name.to_owned(), value)).to_vec())
}

#[test]
fn rows_of_every_type_are_read_back_from_many_clusters() {
    let class = Class::from_json(EVERYTHING).unwrap();
    let of = type_of_class(&class);
    for compression in [Profile::Plain, Profile::Fast, Profile::Archive] {
        let (_folder, federation) = federation();
        let options = ContainerOptions {
            page_size: 4096,
            cluster_size: 20_000,
            compression,
            ..Default::default()
        };
        let mut transaction = begin(&federation);
        let database = transaction.create_database("db").unwrap();
        let key = transaction.create_container(database, "c", &class, options).unwrap();
        let mut rows = transaction.rows::<Everything>(key).unwrap();
        for n in 0..600 {
            assert_eq!(rows.append(&everything(n)).unwrap().entry, n);
        }
        // Rows and values can be mixed in one transaction.
        transaction.append_value(key, everything_as_value(&everything(600))).unwrap();
        transaction.commit().unwrap();
        let view = federation.snapshot(None).unwrap().view("db/c").unwrap();
        assert!(view.reader().clusters() > 3);
        let all: Vec<Value> = (0..601).map(|n| everything_as_value(&everything(n))).collect();
        assert_holds(&view, &of, &all);
    }
}

#[test]
fn rows_of_another_class_are_refused() {
    let (_folder, federation) = federation();
    let mut transaction = begin(&federation);
    let database = transaction.create_database("db").unwrap();
    let json = r#"{"name": "Other", "version": 1, "fields": [{"name": "x", "type": "float32"}]}"#;
    let class = Class::from_json(json).unwrap();
    let key = transaction.create_container(database, "c", &class, Default::default()).unwrap();
    let error = transaction.rows::<Everything>(key).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

//! The seeds of the fuzzers in `fuzz/corpus` are small files and envelopes that this crate writes.
//! `FEMTOBARN_WRITE_SEEDS=1 cargo test -p rntuple seeds` writes them anew.

use std::io::Cursor;
use std::path::Path;

use rntuple::tfile::{FileWriter, Sealing, gap_header, seal};
use rntuple::{
    Anchor, Appender, Compression, EnvelopeKind, ExtraTypeInfo, Footer, Header, PageList,
    Precision, Primitive, Type, Value, WriteOptions, open_envelope,
};

use crate::sample;

#[test]
fn seeds_equal_the_output_of_the_writer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let write = std::env::var_os("FEMTOBARN_WRITE_SEEDS").is_some();
    for (target, name, bytes) in seeds() {
        let path = folder.join(target).join(name);
        if write {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{} is out of date", path.display());
    }
}

fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), sample::identity()).unwrap();
    let anchor = sample::write_numbers(&mut writer);
    let envelope =
        |kind, tag: u8, bytes: Vec<u8>| [&[tag][..], open_envelope(kind, &bytes).unwrap()].concat();
    vec![
        ("anchors", "numbers", sample::file()),
        ("anchors", "hole", file_with_a_hole()),
        ("read_file", "plain", file_of_all_types(Compression::None)),
        ("read_file", "compressed", file_of_all_types(Compression::Lz4 { level: 1 })),
        ("envelopes", "header", envelope(EnvelopeKind::Header, 0, header().encode())),
        ("envelopes", "footer", envelope(EnvelopeKind::Footer, 1, footer().encode())),
        ("envelopes", "page_list", envelope(EnvelopeKind::PageList, 2, page_list().encode())),
        ("envelopes", "anchor", [&[3][..], &anchor.encode()].concat()),
    ]
}

/// Several clusters of one member of each kind of type.
fn file_of_all_types(compression: Compression) -> Vec<u8> {
    let mut file = FileWriter::create(Cursor::new(Vec::new()), sample::identity()).unwrap();
    let options = WriteOptions { compression, page_size: 64, cluster_size: 512 };
    let (mut appender, header) = Appender::create(&mut file, "all", &members(), options).unwrap();
    for entry in 0..12 {
        appender.append_value(&mut file, &entry_value(entry)).unwrap();
    }
    let version = appender.finish_version(&mut file, &Vec::new()).unwrap();
    let anchor = Anchor::new(header, version.footer);
    file.finish(&[("all".into(), anchor)], sample::time()).unwrap().into_inner()
}

fn members() -> Vec<(String, Type)> {
    let number = |primitive| Type::Primitive(primitive);
    let quantised = Precision::Quantised { bits: 11, min: 0.0, max: 100.0 };
    let point = Type::Record {
        class: String::new(),
        members: vec![("x".into(), number(Primitive::Float32)), ("tag".into(), Type::String)],
    };
    let types = [
        number(Primitive::Bool),
        number(Primitive::Int16),
        number(Primitive::UInt64),
        Type::Reduced(Primitive::Float32, quantised),
        Type::Reduced(Primitive::Float32, Precision::Truncated { bits: 17 }),
        Type::Bitset { size: 9 },
        Type::Array { item: Box::new(number(Primitive::Float64)), size: 2 },
        Type::Optional(Box::new(number(Primitive::Int32))),
        Type::List(Box::new(Type::List(Box::new(point)))),
        Type::Variant(vec![number(Primitive::Int32), Type::String]),
    ];
    types.into_iter().enumerate().map(|(number, of)| (format!("m{number}"), of)).collect()
}

fn entry_value(entry: usize) -> Value {
    let even = entry.is_multiple_of(2);
    let (integer, float) = (Value::Int(entry as i64), Value::Float(entry as f64));
    let text = Value::String("t".repeat(entry % 4));
    let point = Value::Record(vec![("x".into(), float.clone()), ("tag".into(), text.clone())]);
    let values = [
        Value::Bool(even),
        integer.clone(),
        Value::UInt(entry as u64),
        float.clone(),
        float.clone(),
        Value::List((0..9).map(|bit| Value::Bool(bit == entry % 9)).collect()),
        Value::List(vec![float; 2]),
        if even { Value::Null } else { integer.clone() },
        Value::List(vec![Value::List(vec![point; entry % 3]); entry % 4]),
        Value::Variant(usize::from(!even), Box::new(if even { integer } else { text })),
    ];
    let named = values.into_iter().enumerate().map(|(number, value)| (format!("m{number}"), value));
    Value::Record(named.collect())
}

fn file_with_a_hole() -> Vec<u8> {
    let identity = sample::identity();
    let mut file = identity.front();
    let hole = file.len() as u64..file.len() as u64 + 64;
    file.extend(gap_header(64).unwrap());
    file.resize(hole.end as usize, 0);
    let anchor = Anchor::new(Default::default(), Default::default());
    let sealing = Sealing {
        identity: &identity,
        end: hole.end,
        anchors: &[("a".into(), anchor), ("b".into(), anchor)],
        gaps: &[hole],
        modified: sample::time(),
    };
    let sealed = seal(&sealing).unwrap();
    file.extend(&sealed.tail);
    file[..sealed.front.len()].copy_from_slice(&sealed.front);
    file
}

/// All optional values are present.
fn header() -> Header {
    let mut schema = sample::schema();
    let mut array = schema.fields[0].clone();
    array.parent = 1;
    array.repetition = Some(3);
    array.source = Some(0);
    array.type_checksum = Some(7);
    schema.fields.push(array);
    let mut column = schema.columns[0].clone();
    column.first_element = Some(2);
    column.range = Some((0.0, 1.0));
    schema.columns.push(column);
    schema.aliases.push(rntuple::AliasColumn { physical: 0, field: 1 });
    schema.extra.push(ExtraTypeInfo {
        content_id: 0,
        type_version: 1,
        type_name: "T".into(),
        content: vec![1, 2, 3],
    });
    Header { name: "n".into(), description: "d".into(), writer: "w".into(), schema }
}

fn footer() -> Footer {
    let group = rntuple::ClusterGroup { clusters: 1, entry_span: 5, ..Default::default() };
    Footer { header_checksum: 1, extension: sample::schema(), cluster_groups: vec![group; 2] }
}

fn page_list() -> PageList {
    let page = rntuple::PageLocation { elements: 5, checksum: true, ..Default::default() };
    let large = rntuple::Locator { offset: 1 << 40, size: 1 << 33 };
    let active = rntuple::ColumnPages {
        element_offset: Some(0),
        compression: 505,
        pages: vec![page, rntuple::PageLocation { locator: large, ..page }],
    };
    let columns = vec![active, rntuple::ColumnPages::default()];
    let cluster = rntuple::Cluster { first_entry: 0, entries: 10, columns };
    PageList { header_checksum: 1, clusters: vec![cluster] }
}

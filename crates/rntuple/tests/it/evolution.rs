//! Evolution: versions with other types over the same pages.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*};

use rntuple::{
    Anchor, Appender, ErrorKind, Nesting, NewMember, Primitive, Reader, Type, Value, ValueOrigin,
    WriteOptions, complete, evolve, plan,
};

use crate::representations::{FEW, expected, file};
use crate::revision_model::{Random, change_members};
use crate::round_trips::{assert_holds, members_of, options, tables};
use crate::values::{array_of, cases};
use crate::versions::reader;

/// Writes rows as one version.
pub(crate) fn written(
    of: &Type,
    rows: &[Value],
    options: WriteOptions,
) -> (Vec<u8>, rntuple::EnvelopeLink, rntuple::EnvelopeLink) {
    let mut memory = Vec::new();
    let (mut appender, header) =
        Appender::create(&mut memory, "t", members_of(of), options).unwrap();
    appender.append(&mut memory, &array_of(of, rows)).unwrap();
    let version = appender.finish_version(&mut memory, &Vec::new()).unwrap();
    (memory, header, version.footer)
}

pub(crate) fn rows_of(reader: &Reader) -> Vec<Value> {
    let array = reader.read(&reader.select_all(), 0..reader.entries()).unwrap();
    (0..array.len()).map(|entry| array.value(entry).unwrap()).collect()
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn random_evolutions_match_the_model(
        (mut of, rows) in tables(0..25),
        options in vec(options(), 4),
        seed: u64,
    ) {
        let (mut memory, mut header, mut footer) = written(&of, &rows, options[0]);
        let (first, first_of) = (reader(&memory, &header, &footer), of.clone());
        // The rows as they are read, since some types round numbers.
        let mut expected = rows_of(&first);
        let mut random = Random(seed);
        for options in &options[1..] {
            let old = reader(&memory, &header, &footer);
            let (members, rules, value) = change_members(members_of(&of), false, &mut random);
            let evolved = evolve(&old, &mut memory, &rules, *options).unwrap();
            of = Type::Record { class: String::new(), members };
            expected = expected.iter().map(value).collect();
            (header, footer) = (evolved.header, evolved.footer);
            let new = reader(&memory, &header, &footer);
            assert_holds(&new, &of, &expected);
            assert_holds(&old, &types_of(&old), &rows_of(&old));

            // Entries appended to the new version give it clusters of different representations.
            let mut appender = Appender::resume(&new, *options).unwrap();
            let more = expected[..expected.len() / 2].to_vec();
            appender.append(&mut memory, &array_of(&of, &more)).unwrap();
            let source = memory.clone();
            footer = appender.finish_version(&mut memory, &source).unwrap().footer;
            expected.extend(more);
            let longer = reader(&memory, &header, &footer);
            assert_holds(&longer, &of, &expected);
            // Numbers of low precision were rounded once more.
            expected = rows_of(&longer);
        }
        assert_holds(&first, &first_of, &rows);
    }
}

fn types_of(reader: &Reader) -> Type {
    Type::Record { class: String::new(), members: reader.members() }
}

pub(crate) fn number(of: Primitive) -> Type {
    Type::Primitive(of)
}

pub(crate) fn record(members: &[(&str, Type)]) -> Type {
    let members = members.iter().map(|(name, of)| ((*name).to_owned(), of.clone())).collect();
    Type::Record { class: String::new(), members }
}

pub(crate) fn tracks() -> Type {
    let track = record(&[("pt", number(Primitive::Float32)), ("hits", number(Primitive::Int8))]);
    record(&[("id", number(Primitive::UInt16)), ("tracks", Type::List(track.into()))])
}

pub(crate) fn event(id: u64) -> Value {
    let track = |at: u64| {
        Value::Record(vec![
            ("pt".to_owned(), Value::Float(at as f64)),
            ("hits".to_owned(), Value::Int(-(at as i64))),
        ])
    };
    let tracks = Value::List((0..id % 5).map(track).collect());
    Value::Record(vec![("id".to_owned(), Value::UInt(id)), ("tracks".to_owned(), tracks)])
}

#[test]
fn evolution_writes_little_for_any_number_of_entries() {
    let rows: Vec<Value> = (0..20_000).map(event).collect();
    let options = WriteOptions { cluster_size: 64 << 10, ..WriteOptions::default() };
    let (mut memory, header, footer) = written(&tracks(), &rows, options);
    let size = memory.len() as u64;
    let old = reader(&memory, &header, &footer);
    let track = record(&[
        ("charge", number(Primitive::Int32)),
        ("p", number(Primitive::Float64)),
        ("hits", number(Primitive::Int64)),
    ]);
    let members = [
        NewMember::same("id", number(Primitive::UInt64)),
        NewMember::same("tracks", Type::List(track.into())).with(vec![
            NewMember::added("charge", number(Primitive::Int32), Some(Value::Int(-1))),
            NewMember::was("p", number(Primitive::Float64), "pt"),
        ]),
        NewMember::added("weight", number(Primitive::Float64), Some(Value::Float(1.0))),
    ];
    let evolved = evolve(&old, &mut memory, &members, options).unwrap();
    assert_eq!(evolved.bytes, memory.len() as u64 - size);
    assert!(evolved.bytes < size / 20, "{} of {size} bytes", evolved.bytes);
    let new = reader(&memory, &evolved.header, &evolved.footer);
    let row = rows_of(&new).swap_remove(14);
    assert_eq!(row.member("weight"), Some(&Value::Float(1.0)));
    let Some(Value::List(tracks)) = row.member("tracks") else { panic!("{row:?}") };
    let of =
        |name: &str| tracks.iter().map(|t| t.member(name).unwrap().clone()).collect::<Vec<_>>();
    assert_eq!(of("p"), [0.0, 1.0, 2.0, 3.0].map(Value::Float));
    assert_eq!(of("hits"), [0, -1, -2, -3].map(Value::Int));
    assert_eq!(of("charge"), [-1; 4].map(Value::Int));
}

#[test]
fn plans_that_lose_values_are_refused_with_the_reason() {
    let old = record(&[
        ("i", number(Primitive::Int32)),
        ("s", Type::String),
        ("l", Type::List(number(Primitive::Int8).into())),
        ("o", Type::Optional(number(Primitive::Int8).into())),
        ("r", record(&[("x", number(Primitive::Int64))])),
    ]);
    let refused = [
        ("i", number(Primitive::Int16), "some numbers of the old type"),
        ("i", number(Primitive::UInt32), "some numbers of the old type"),
        ("i", number(Primitive::Float32), "some numbers of the old type"),
        ("i", Type::String, "strings"),
        ("s", number(Primitive::Int32), "strings"),
        ("l", number(Primitive::Int8), "no item, or several"),
        ("l", Type::Optional(number(Primitive::Int8).into()), "several items"),
        ("o", number(Primitive::Int8), "absent"),
        ("r", number(Primitive::Int64), "a record"),
        ("r", record(&[("x", number(Primitive::Int32))]), "some numbers of the old type"),
    ];
    for (name, of, reason) in refused {
        let error = plan(&old, &[NewMember::same(name, of.clone())]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        assert!(
            text.contains(reason) && text.contains(&format!("{name:?}"))
                || text.contains("\"r.x\""),
            "{text}"
        );
    }
    let text =
        plan(&old, &[NewMember::was("j", number(Primitive::Int32), "k")]).unwrap_err().to_string();
    assert_eq!(text, "field \"j\": old field \"k\" does not exist; there is i, s, l, o, r");
    let wrong = NewMember::added("j", number(Primitive::Int8), Some(Value::Int(1000)));
    assert!(plan(&old, &[wrong]).unwrap_err().to_string().contains("default does not fit"));
    let unknown = NewMember::same("i", number(Primitive::Int32));
    let nested =
        NewMember::same("r", record(&[("x", number(Primitive::Int64))])).with(vec![unknown]);
    assert!(plan(&old, &[nested]).unwrap_err().to_string().contains("no such member"));
}

#[test]
fn a_list_evolves_to_an_optional_list() {
    let rows: Vec<Value> = (0..500).map(event).collect();
    let options = WriteOptions { cluster_size: 4096, ..WriteOptions::default() };
    let (mut memory, header, footer) = written(&tracks(), &rows, options);
    let old = reader(&memory, &header, &footer);
    let track = record(&[("pt", number(Primitive::Float64)), ("hits", number(Primitive::Int8))]);
    let list = Type::Optional(Type::List(track.into()).into());
    let members = [
        NewMember::same("id", number(Primitive::UInt16)),
        NewMember::same("tracks", list).nested(Nesting::Wrapped),
    ];
    let evolved = evolve(&old, &mut memory, &members, options).unwrap();
    // ROOT has no name for an optional list, so it is stored as a list of lists and read as one.
    let wrapped = |row: &Value| {
        let tracks = Value::List(vec![row.member("tracks").unwrap().clone()]);
        let id = row.member("id").unwrap().clone();
        Value::Record(vec![("id".to_owned(), id), ("tracks".to_owned(), tracks)])
    };
    let expected: Vec<Value> = rows.iter().map(wrapped).collect();
    assert_eq!(rows_of(&reader(&memory, &evolved.header, &evolved.footer)), expected);
}

#[test]
fn a_plan_lists_the_changed_fields() {
    let track = record(&[("p", number(Primitive::Float32)), ("q", number(Primitive::Int8))]);
    let members = [
        NewMember::same("id", Type::Optional(number(Primitive::UInt32).into())),
        NewMember {
            from: ValueOrigin::Same("tracks".to_owned()),
            ..NewMember::same("t", Type::List(track.into()))
        }
        .with(vec![NewMember::was("p", number(Primitive::Float32), "pt")]),
    ];
    let plan = plan(&tracks(), &members).unwrap();
    let changes: Vec<String> =
        plan.changes().iter().map(|change| format!("{} {:?}", change.path, change.kind)).collect();
    let expected = [
        "id Wrapped",
        "id Widened",
        "t Renamed(\"tracks\")",
        "t.p Renamed(\"tracks.pt\")",
        "t.q Added",
        "tracks.hits Removed",
    ];
    assert_eq!(changes, expected);
}

#[test]
fn a_member_can_move_out_of_its_record() {
    let old = record(&[("v", record(&[("x", Type::String), ("y", number(Primitive::Int8))]))]);
    let row = |x: &str| {
        let v =
            vec![("x".to_owned(), Value::String(x.to_owned())), ("y".to_owned(), Value::Int(1))];
        Value::Record(vec![("v".to_owned(), Value::Record(v))])
    };
    let (mut memory, header, footer) = written(&old, &[row("a"), row("")], WriteOptions::default());
    let members = [NewMember::was("x", Type::String, "v.x")];
    let old = reader(&memory, &header, &footer);
    let evolved = evolve(&old, &mut memory, &members, WriteOptions::default()).unwrap();
    let rows = rows_of(&reader(&memory, &evolved.header, &evolved.footer));
    let row = |x: &str| Value::Record(vec![("x".to_owned(), Value::String(x.to_owned()))]);
    assert_eq!(rows, [row("a"), row("")]);
}

/// The old pages of a widened field cannot store all values of the new type.
#[test]
fn a_wide_number_replaces_a_narrow_one_in_an_old_cluster() {
    let rows: Vec<Value> = (0..100).map(event).collect();
    let options = WriteOptions { page_size: 64, cluster_size: 512, ..WriteOptions::default() };
    let (mut memory, header, footer) = written(&tracks(), &rows, options);
    let wide = number(Primitive::UInt64);
    let old = reader(&memory, &header, &footer);
    let evolved =
        evolve(&old, &mut memory, &[NewMember::same("id", wide.clone())], options).unwrap();
    let new = reader(&memory, &evolved.header, &evolved.footer);
    let mut appender = Appender::resume(&new, options).unwrap();
    let (values, source) = ([Value::UInt(u64::MAX), Value::UInt(7)], memory.clone());
    let array = array_of(&wide, &values);
    appender.replace(&mut memory, &source, "id", &[3, 60], &array).unwrap();
    let source = memory.clone();
    let version = appender.finish_version(&mut memory, &source).unwrap();
    for (entry, row) in
        rows_of(&reader(&memory, &evolved.header, &version.footer)).iter().enumerate()
    {
        let expected = match entry {
            3 => u64::MAX,
            60 => 7,
            _ => entry as u64,
        };
        assert_eq!(row.member("id"), Some(&Value::UInt(expected)));
    }
    assert_eq!(rows_of(&old), rows);
}

/// ROOT adds fields to RNTuples with entries; earlier clusters have no pages of them.
#[test]
fn evolution_writes_pages_for_fields_added_later() {
    let (bytes, anchor) = file(FEW);
    let mut memory = bytes;
    let old = Reader::from_anchor(Arc::new(memory.clone()), &anchor).unwrap();
    let triple = Type::List(number(Primitive::Int32).into());
    let members = [
        NewMember::same("x", number(Primitive::Int64)),
        NewMember::same("y", number(Primitive::Float64)),
        NewMember::same("z", Type::List(number(Primitive::Int64).into())),
        NewMember::same("w", triple),
        NewMember::same("s", Type::Optional(Type::String.into())),
        NewMember::added("n", number(Primitive::UInt8), Some(Value::UInt(3))),
    ];
    let options = WriteOptions { page_size: 16, ..WriteOptions::default() };
    let evolved = evolve(&old, &mut memory, &members, options).unwrap();
    let new = reader(&memory, &evolved.header, &evolved.footer);
    for (entry, row) in rows_of(&new).iter().enumerate() {
        let was = expected(entry as u64, FEW);
        for name in ["x", "y", "z", "w", "s"] {
            assert_eq!(row.member(name), was.member(name), "entry {entry}");
        }
        assert_eq!(row.member("n"), Some(&Value::UInt(3)));
    }
    let mut anchor = Anchor::new(evolved.header, evolved.footer);
    for dead in [vec![], vec![3..4, 12..19]] {
        let reader = reader(&memory, &anchor.header, &anchor.footer);
        anchor = complete(&reader, &mut memory, &anchor, &dead, options).unwrap().anchor;
    }
    assert_eq!(rows_of(&reader(&memory, &anchor.header, &anchor.footer)).len() as u64, 3 * FEW);
}

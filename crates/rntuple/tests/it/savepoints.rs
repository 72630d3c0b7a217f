//! Savepoints: a rollback discards later changes, as if they had never been made.

use rntuple::{
    Appender, BlobSink, EnvelopeKind, PageList, Primitive, Reader, Result, Type, Value,
    WriteOptions, read_envelope,
};

use crate::round_trips::{assert_holds, members_of};
use crate::store::Store;
use crate::values::array_of;

fn table() -> Type {
    let members = [
        ("i", Type::Primitive(Primitive::UInt64)),
        ("l", Type::List(Type::Primitive(Primitive::UInt16).into())),
        ("v", Type::Variant(vec![Type::String, Type::Primitive(Primitive::Float64)])),
    ];
    let members = members.map(|(name, of)| (name.to_owned(), of)).to_vec();
    Type::Record { class: String::new(), members }
}

fn row(at: u64) -> Value {
    let variant = match at % 3 {
        0 => Value::Null,
        1 => Value::Variant(0, Value::String(format!("{at}")).into()),
        _ => Value::Variant(1, Value::Float(at as f64).into()),
    };
    Value::Record(vec![
        ("i".to_owned(), Value::UInt(at)),
        ("l".to_owned(), Value::List((0..at % 4).map(Value::UInt).collect())),
        ("v".to_owned(), variant),
    ])
}

fn rows(range: std::ops::Range<u64>) -> Vec<Value> {
    range.map(row).collect()
}

const OPTIONS: WriteOptions =
    WriteOptions { page_size: 64, cluster_size: 4096, compression: rntuple::Compression::None };

#[test]
fn a_rollback_discards_entries_changes_and_clusters() {
    let of = table();
    let mut store = Store::default();
    let source = store.clone();
    let (mut appender, header) =
        Appender::create(&mut store, "t", members_of(&of), OPTIONS).unwrap();
    appender.append(&mut store, &array_of(&of, &rows(0..100))).unwrap();
    let savepoint = appender.savepoint(&mut store).unwrap();
    for round in 0..3 {
        // Entries in several clusters, and some in none yet.
        appender.append(&mut store, &array_of(&of, &rows(500..900))).unwrap();
        appender.append_value(&mut store, &row(1)).unwrap();
        let numbers = Type::Primitive(Primitive::UInt64);
        let values = array_of(&numbers, &[Value::UInt(7), Value::UInt(8)]);
        appender.replace(&mut store, &source, "i", &[5, 499], &values).unwrap();
        if round == 1 {
            appender.finish_version(&mut store, &source).unwrap();
        }
        appender.rollback_to(&savepoint);
        assert_eq!(appender.entries(), 100);
    }
    appender.append(&mut store, &array_of(&of, &rows(100..200))).unwrap();
    let version = appender.finish_version(&mut store, &source).unwrap();
    let reader = store.reader(&header, &version.footer);
    assert_holds(&reader, &of, &rows(0..200));
    let summarised: u64 = version.summaries.iter().map(|summary| summary.entries).sum();
    assert_eq!(summarised, 200, "discarded entries have no summaries");
    assert!(version.summaries.iter().all(|summary| !summary.is_widening));

    assert_offsets_continue(&store, &reader);
}

/// Fails unless the element offsets of each cluster are the sums of earlier elements.
fn assert_offsets_continue(store: &Store, reader: &Reader) {
    let mut next = vec![0; reader.schema().columns.len()];
    for group in &reader.footer().cluster_groups {
        let kind = EnvelopeKind::PageList;
        let bytes = read_envelope(store, &group.page_list, kind, u64::MAX).unwrap();
        for cluster in PageList::decode(&bytes).unwrap().clusters {
            for (column, next) in cluster.columns.iter().zip(&mut next) {
                assert_eq!(column.element_offset, Some(*next));
                *next += column.pages.iter().map(|page| u64::from(page.elements)).sum::<u64>();
            }
        }
    }
}

#[test]
fn element_offsets_continue_behind_changed_clusters() {
    let of = table();
    let mut store = Store::default();
    let source = store.clone();
    let options = WriteOptions { cluster_size: 1 << 20, ..OPTIONS };
    let (mut appender, header) =
        Appender::create(&mut store, "t", members_of(&of), options).unwrap();
    let mut expected = rows(0..100);
    appender.append(&mut store, &array_of(&of, &expected)).unwrap();
    let savepoint = appender.savepoint(&mut store).unwrap();
    let mut change = |appender: &mut Appender, rows: &mut [Value]| {
        for (name, of) in members_of(&of) {
            let entries: Vec<u64> = (0..100).step_by(3).collect();
            let value = |at: &u64| row(at * 7 + 1).member(name).unwrap().clone();
            let values: Vec<Value> = entries.iter().map(value).collect();
            let array = array_of(of, &values);
            appender.replace(&mut store, &source, name, &entries, &array).unwrap();
        }
        (0..100).step_by(3).for_each(|at| rows[at] = row(at as u64 * 7 + 1));
    };
    change(&mut appender, &mut expected);
    appender.rollback_to(&savepoint);
    change(&mut appender, &mut expected);
    let mut store = store.clone();
    appender.append(&mut store, &array_of(&of, &rows(100..150))).unwrap();
    expected.extend(rows(100..150));
    // Changed while later entries are in no cluster yet.
    let list = array_of(&members_of(&of)[1].1, &[Value::List(vec![Value::UInt(3); 9])]);
    appender.replace(&mut store, &source, "l", &[1], &list).unwrap();
    let Value::Record(members) = &mut expected[1] else { panic!() };
    members[1].1 = Value::List(vec![Value::UInt(3); 9]);
    let version = appender.finish_version(&mut store, &source).unwrap();
    let reader = store.reader(&header, &version.footer);
    assert_eq!(reader.clusters(), 2);
    assert_holds(&reader, &of, &expected);
    assert_offsets_continue(&store, &reader);
}

/// A store that can be full.
struct Limited {
    store: Store,
    is_full: bool,
}

impl BlobSink for Limited {
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64> {
        if self.is_full {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(rntuple::Error::Io { what: "write".to_owned(), source });
        }
        self.store.write_blob(parts)
    }
}

#[test]
fn rollback_to_a_savepoint_recovers_from_a_failed_write() {
    let of = table();
    let source = Store::default();
    let mut sink = Limited { store: source.clone(), is_full: false };
    let (mut appender, header) =
        Appender::create(&mut sink, "t", members_of(&of), OPTIONS).unwrap();
    appender.append(&mut sink, &array_of(&of, &rows(0..10))).unwrap();
    let savepoint = appender.savepoint(&mut sink).unwrap();
    sink.is_full = true;
    appender.append(&mut sink, &array_of(&of, &rows(10..300))).unwrap_err();
    sink.is_full = false;
    appender.append(&mut sink, &array_of(&of, &rows(10..20))).unwrap_err();
    appender.savepoint(&mut sink).err().unwrap();
    appender.rollback_to(&savepoint);
    appender.append(&mut sink, &array_of(&of, &rows(10..20))).unwrap();

    // A version that cannot be written changes nothing.
    sink.is_full = true;
    appender.finish_version(&mut sink, &source).unwrap_err();
    sink.is_full = false;
    appender.rollback_to(&savepoint);
    appender.append(&mut sink, &array_of(&of, &rows(10..30))).unwrap();
    let savepoint = appender.savepoint(&mut sink).unwrap();
    sink.is_full = true;
    appender.finish_version(&mut sink, &source).unwrap_err();
    sink.is_full = false;
    let version = appender.finish_version(&mut sink, &source).unwrap();
    assert_holds(&source.reader(&header, &version.footer), &of, &rows(0..30));
    appender.rollback_to(&savepoint);
    let version = appender.finish_version(&mut sink, &source).unwrap();
    assert_holds(&source.reader(&header, &version.footer), &of, &rows(0..30));
    assert_eq!(version.summaries.len(), 2);
}

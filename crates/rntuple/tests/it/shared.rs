//! Bytes that rows share with the writer are stored unchanged, among any other elements.

use bytes::Bytes;
use rntuple::{
    Appender, Compression, EnvelopeKind, PageList, Primitive, Type, Value, WriteOptions,
    read_envelope,
};

use crate::round_trips::{assert_holds, members_of};
use crate::store::Store;
use crate::values::array_of;

rntuple::row! {
    struct Blob { id: u64, bytes: Bytes }
}

fn table() -> Type {
    let members = [
        ("id", Type::Primitive(Primitive::UInt64)),
        ("bytes", Type::List(Type::Primitive(Primitive::UInt8).into())),
    ];
    let members = members.map(|(name, of)| (name.to_owned(), of)).to_vec();
    Type::Record { class: String::new(), members }
}

/// Values too short to be shared, values of several pages, and values that end with a page.
fn bytes(at: u64) -> Bytes {
    let size = [10_240, 3, 100_000, 0, 4096, 5000, 16 << 10, 10_240][at as usize % 8];
    (0..size).map(|byte| (byte / 7 + 31 * at) as u8).collect()
}

fn value(at: u64) -> Value {
    Value::Record(vec![
        ("id".to_owned(), Value::UInt(at)),
        ("bytes".to_owned(), Value::Bytes(bytes(at))),
    ])
}

fn options(compression: Compression) -> WriteOptions {
    WriteOptions { page_size: 16 << 10, cluster_size: 300 << 10, compression }
}

fn append(appender: &mut Appender, store: &mut Store, range: std::ops::Range<u64>) {
    for at in range {
        // Uses the three ways to append in turn.
        match at % 5 {
            3 => appender.append_value(store, &value(at)).unwrap(),
            4 => appender.append(store, &array_of(&table(), &[value(at)])).unwrap(),
            _ => appender.append_row(store, &Blob { id: at, bytes: bytes(at) }).unwrap(),
        }
    }
}

#[test]
fn shared_bytes_are_stored_in_their_order() {
    for compression in [Compression::None, Compression::Lz4 { level: 1 }] {
        let (mut store, of) = (Store::default(), table());
        let source = store.clone();
        let (mut appender, header) =
            Appender::create(&mut store, "t", members_of(&of), options(compression)).unwrap();
        append(&mut appender, &mut store, 0..200);
        let version = appender.finish_version(&mut store, &source).unwrap();
        let expected: Vec<Value> = (0..200).map(value).collect();
        assert_holds(&store.reader(&header, &version.footer), &of, &expected);
    }
}

#[test]
fn pages_end_after_large_entries() {
    let (mut store, of) = (Store::default(), table());
    let source = store.clone();
    let options = WriteOptions::default();
    let (mut appender, header) =
        Appender::create(&mut store, "t", members_of(&of), options).unwrap();
    append(&mut appender, &mut store, 0..200);
    // An array of many values makes the same pages as the values one by one.
    let values: Vec<Value> = (0..200).filter(|at| bytes(*at).len() >= 4096).map(value).collect();
    appender.append(&mut store, &array_of(&table(), &values)).unwrap();
    let version = appender.finish_version(&mut store, &source).unwrap();
    let reader = store.reader(&header, &version.footer);
    let sizes = (0..200).chain((0..200).filter(|at| bytes(*at).len() >= 4096));
    let sizes: Vec<u64> = sizes.map(|at| bytes(at).len() as u64).collect();
    let mut pages = vec![];
    for group in &reader.footer().cluster_groups {
        let envelope = read_envelope(&source, &group.page_list, EnvelopeKind::PageList, u64::MAX);
        for cluster in PageList::decode(&envelope.unwrap()).unwrap().clusters {
            let blobs = cluster.columns.last().unwrap();
            pages.extend(blobs.pages.iter().map(|page| u64::from(page.elements)));
        }
    }
    let ends: Vec<u64> = running_sums(&pages);
    let pages_of = |start: u64, end: u64| {
        ends.partition_point(|at| *at < end) - ends.partition_point(|at| *at <= start) + 1
    };
    let mut start = 0;
    for size in sizes {
        let needed = size.div_ceil(options.page_size as u64).max(1) as usize;
        if size >= 4096 {
            assert_eq!(pages_of(start, start + size), needed, "{size} bytes at {start}");
        }
        start += size;
    }
}

fn running_sums(numbers: &[u64]) -> Vec<u64> {
    let sums = numbers.iter().scan(0, |sum, number| {
        *sum += number;
        Some(*sum)
    });
    sums.collect()
}

#[test]
fn a_rollback_discards_shared_bytes() {
    let (mut store, of) = (Store::default(), table());
    let source = store.clone();
    let (mut appender, header) =
        Appender::create(&mut store, "t", members_of(&of), options(Compression::None)).unwrap();
    append(&mut appender, &mut store, 0..8);
    let savepoint = appender.savepoint(&mut store).unwrap();
    for at in 500..509 {
        appender.append_row(&mut store, &Blob { id: at, bytes: bytes(0) }).unwrap();
        appender.rollback_to(&savepoint);
    }
    append(&mut appender, &mut store, 8..40);
    let version = appender.finish_version(&mut store, &source).unwrap();
    let expected: Vec<Value> = (0..40).map(value).collect();
    assert_holds(&store.reader(&header, &version.footer), &of, &expected);
}

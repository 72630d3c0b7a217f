//! Versions of an RNTuple: each stays readable while further versions are appended.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*};

use rntuple::{
    Appender, BlobSink, ByteSource, Compression, EnvelopeLink, Primitive, Reader, Result, Type,
    Value, WriteOptions,
};

use crate::round_trips::{assert_holds, members_of, options, tables};
use crate::values::{array_of, cases};

pub(crate) fn reader(memory: &[u8], header: &EnvelopeLink, footer: &EnvelopeLink) -> Reader {
    Reader::from_links(Arc::new(memory.to_vec()), header, footer).unwrap()
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn earlier_versions_stay_readable_after_appending(
        (of, rows) in tables(0..40),
        options in vec(options(), 1..9),
        cuts in vec(any::<prop::sample::Index>(), 8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(rows.len() + 1)).collect();
        cuts.sort_unstable();
        let mut memory = Vec::new();
        // The encoding is the header's, so the first options decide it.
        let first = options[0];
        let (mut appender, header) =
            Appender::create(&mut memory, "t", members_of(&of), first).unwrap();
        let mut versions = vec![];
        let mut done = 0;
        for (round, cut) in cuts.into_iter().enumerate() {
            appender.append(&mut memory, &array_of(&of, &rows[done..cut])).unwrap();
            done = cut;
            let source = memory.clone();
            let version = appender.finish_version(&mut memory, &source).unwrap();
            prop_assert_eq!(version.entries, done as u64);
            // Some writers continue, others are resumed from the footer.
            if round % 2 == 1 {
                let options = options[round % options.len()];
                appender = Appender::resume(&reader(&memory, &header, &version.footer), options).unwrap();
            }
            versions.push(version);
        }
        for version in &versions {
            let reader = reader(&memory, &header, &version.footer);
            assert_holds(&reader, &of, &rows[..version.entries as usize]);
        }
    }
}

fn counters() -> Vec<(String, Type)> {
    vec![
        ("i".to_owned(), Type::Primitive(Primitive::UInt64)),
        ("l".to_owned(), Type::List(Type::Primitive(Primitive::UInt8).into())),
    ]
}

fn counter(at: u64) -> Value {
    let list = vec![at as u8; at as usize % 4];
    Value::Record(vec![
        ("i".to_owned(), Value::UInt(at)),
        ("l".to_owned(), Value::Bytes(list.into())),
    ])
}

#[test]
fn a_thousand_versions_have_few_cluster_groups_and_all_can_be_read() {
    let mut memory = Vec::new();
    let of = Type::Record { class: String::new(), members: counters() };
    let options = WriteOptions { page_size: 64, cluster_size: 256, ..WriteOptions::default() };
    let (mut appender, header) = Appender::create(&mut memory, "t", &counters(), options).unwrap();
    let rows: Vec<Value> = (0..1000).map(counter).collect();
    let mut footers = vec![];
    for row in &rows {
        appender.append_value(&mut memory, row).unwrap();
        // The source has the bytes written so far; only page lists are read from it.
        let source = std::mem::take(&mut memory);
        let mut sink = Continued { start: source.len() as u64, bytes: vec![] };
        let version = appender.finish_version(&mut sink, &source).unwrap();
        memory = source;
        memory.extend(sink.bytes);
        footers.push(version.footer);
    }
    let source: Arc<dyn ByteSource> = Arc::new(memory);
    for (version, footer) in footers.iter().enumerate() {
        let reader = Reader::from_links(source.clone(), &header, footer).unwrap();
        assert_eq!(reader.entries(), version as u64 + 1);
        assert!(reader.footer().cluster_groups.len() <= 11, "log2 of the versions");
        if version % 97 == 0 || version == 999 {
            assert_holds(&reader, &of, &rows[..=version]);
        }
    }
}

/// A sink that writes blobs after `start` existing bytes.
struct Continued {
    start: u64,
    bytes: Vec<u8>,
}

impl BlobSink for Continued {
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let offset = self.start + self.bytes.len() as u64;
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(offset)
    }
}

/// A sink that fails after some blobs.
struct Failing(usize);

impl BlobSink for Failing {
    fn write_blob(&mut self, _: &[&[u8]]) -> Result<u64> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| rntuple::Error::Io {
            what: "write".to_owned(),
            source: std::io::ErrorKind::StorageFull.into(),
        })?;
        Ok(0)
    }
}

#[test]
fn after_a_failed_write_the_appender_refuses_all_work() {
    let options = WriteOptions { page_size: 8, ..WriteOptions::default() };
    let mut sink = Failing(3);
    let (mut appender, _) = Appender::create(&mut sink, "t", &counters(), options).unwrap();
    let failed = (0..10).find_map(|at| appender.append_value(&mut sink, &counter(at)).err());
    assert_eq!(failed.unwrap().kind(), rntuple::ErrorKind::Io);
    let mut sound = Vec::new();
    appender.append_value(&mut sound, &counter(0)).unwrap_err();
    appender.finish_version(&mut sound, &Vec::new()).unwrap_err();
}

/// The size of a cluster was once measured on disk alone, so bytes that compress a thousandfold filled a
/// cluster with more items than its 32-bit offsets can count.
#[test]
fn clusters_of_compressible_data_end_by_their_size_in_memory() {
    let mut memory = Vec::new();
    let compression = Compression::Zstd { level: 1 };
    let options = WriteOptions { page_size: 4096, cluster_size: 64 << 10, compression };
    let (mut appender, header) = Appender::create(&mut memory, "t", &counters(), options).unwrap();
    let zeros = bytes::Bytes::from(vec![0; 100_000]);
    let row = |at| {
        let zeros = Value::Bytes(zeros.clone());
        Value::Record(vec![("i".to_owned(), Value::UInt(at)), ("l".to_owned(), zeros)])
    };
    (0..200).for_each(|at| appender.append_value(&mut memory, &row(at)).unwrap());
    let source = memory.clone();
    let version = appender.finish_version(&mut memory, &source).unwrap();
    let clusters = reader(&memory, &header, &version.footer).clusters();
    assert!((25..60).contains(&clusters), "{clusters} clusters of 20 MB");
}

/// The number of entries in a cluster once depended on the size of its first entries alone.
#[test]
fn clusters_end_at_their_size_when_entries_grow() {
    let mut memory = Vec::new();
    let options = WriteOptions { page_size: 4096, cluster_size: 64 << 10, ..Default::default() };
    let (mut appender, header) = Appender::create(&mut memory, "t", &counters(), options).unwrap();
    let row = |at: u64| {
        let bytes = Value::Bytes(vec![at as u8; if at < 64 { 0 } else { 10_000 }].into());
        Value::Record(vec![("i".to_owned(), Value::UInt(at)), ("l".to_owned(), bytes)])
    };
    let of = Type::Record { class: String::new(), members: counters() };
    let rows: Vec<Value> = (0..1000).map(row).collect();
    appender.append(&mut memory, &array_of(&of, &rows)).unwrap();
    let source = memory.clone();
    let version = appender.finish_version(&mut memory, &source).unwrap();
    let clusters = reader(&memory, &header, &version.footer).clusters();
    assert!((100..200).contains(&clusters), "{clusters} clusters of 9 MB");
}

//! Many small versions: each costs about as much as the first to write, open and read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rntuple::{
    Appender, Array, ByteSource, Compression, NewMember, Primitive, Reader, Result, Type, Value,
    WriteOptions, evolve,
};

use crate::store::Store;

fn members() -> Vec<(String, Type)> {
    let members = [
        ("i", Type::Primitive(Primitive::UInt64)),
        ("x", Type::Primitive(Primitive::Float32)),
        ("s", Type::String),
    ];
    members.map(|(name, of)| (name.to_owned(), of)).to_vec()
}

fn row(at: u64) -> Value {
    Value::Record(vec![
        ("i".to_owned(), Value::UInt(at)),
        ("x".to_owned(), Value::Float(at as f64)),
        ("s".to_owned(), Value::String(format!("entry {at}"))),
    ])
}

/// A source that counts bytes read.
struct Counting(Store, Arc<AtomicU64>);

impl ByteSource for Counting {
    fn size(&self) -> Result<u64> {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.1.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.0.read_at(offset, buffer)
    }
}

/// A footer once had a link for each version's cluster, or a page list all clusters, so the ten-thousandth
/// commit wrote megabytes.
#[test]
fn the_last_of_10_000_versions_costs_as_much_as_the_first() {
    const VERSIONS: u64 = 10_000;
    const EACH: u64 = 10;
    let mut store = Store::default();
    let compression = Compression::Lz4 { level: 1 };
    let options = WriteOptions { compression, ..WriteOptions::default() };
    let (mut appender, header) = Appender::create(&mut store, "t", &members(), options).unwrap();
    let source = store.clone();
    let (mut written, mut largest, mut footers) = (vec![], 0, vec![]);
    for version in 0..VERSIONS {
        for at in 0..EACH {
            appender.append_value(&mut store, &row(version * EACH + at)).unwrap();
        }
        let before = store.len();
        let finished = appender.finish_version(&mut store, &source).unwrap();
        written.push(store.len() - before);
        largest = largest.max(store.len() - before);
        footers.push(finished.footer);
        // Other processes continue from the footer alone.
        if version % 100 == 99 {
            let reader = store.reader(&header, &finished.footer);
            appender = Appender::resume(&reader, options).unwrap();
        }
    }
    let mean = |versions: &[u64]| versions.iter().sum::<u64>() / versions.len() as u64;
    let (early, late) = (mean(&written[500..1500]), mean(&written[9000..]));
    println!("bytes of a version: {early} early, {late} late, {largest} at most");
    assert!(late < early * 3 / 2, "{late} bytes for a version late, {early} early");
    assert!(largest < 450_000, "{largest} bytes for one version");

    let read = Arc::new(AtomicU64::new(0));
    for version in [0, 1, 777, VERSIONS / 2, VERSIONS - 1] {
        read.store(0, Ordering::Relaxed);
        let start = std::time::Instant::now();
        let counting = Arc::new(Counting(store.clone(), read.clone()));
        let reader = Reader::from_links(counting, &header, &footers[version as usize]).unwrap();
        assert_eq!(reader.entries(), (version + 1) * EACH);
        assert!(reader.footer().cluster_groups.len() < 40);
        let entry = version * EACH / 2;
        let one = reader.read(&reader.select_all(), entry..entry + 1).unwrap();
        assert_eq!(one.value(0).unwrap(), row(entry));
        let read = read.load(Ordering::Relaxed);
        println!("version {version}: {read} bytes to read an entry, {:?}", start.elapsed());
        assert!(read < 410_000, "{read} bytes to open version {version} and read an entry");
    }
}

/// Versions that each change one entry of the first cluster among many.
#[test]
fn a_change_of_one_entry_rewrites_the_page_list_of_its_group() {
    let mut store = Store::default();
    let options = WriteOptions { page_size: 64, cluster_size: 2048, ..WriteOptions::default() };
    let (mut appender, header) = Appender::create(&mut store, "t", &members(), options).unwrap();
    for at in 0..120_000 {
        appender.append_value(&mut store, &row(at)).unwrap();
    }
    let source = store.clone();
    let first = appender.finish_version(&mut store, &source).unwrap();
    let reader = store.reader(&header, &first.footer);
    let groups = reader.footer().cluster_groups.clone();
    assert!(groups.len() > 3, "{} groups of {} clusters", groups.len(), reader.clusters());
    appender = Appender::resume(&reader, options).unwrap();
    let before = store.len();
    let values = Array::primitive(Primitive::UInt64, vec![99_u64]);
    appender.replace(&mut store, &source, "i", &[30_000], &values).unwrap();
    let version = appender.finish_version(&mut store, &source).unwrap();
    assert!(store.len() - before < 450_000);
    let reader = store.reader(&header, &version.footer);
    let now = &reader.footer().cluster_groups;
    let kept = now.iter().filter(|group| groups.contains(group)).count();
    assert_eq!((kept, now.len()), (groups.len() - 1, groups.len()));
    assert_eq!(reader.entries(), 120_000);
}

#[test]
fn a_known_version_spares_the_header_of_one_with_the_same_fields() {
    let mut store = Store::default();
    let options = WriteOptions::default();
    let (mut appender, header) = Appender::create(&mut store, "t", &members(), options).unwrap();
    let source = store.clone();
    let mut version = |at| {
        appender.append_value(&mut store, &row(at)).unwrap();
        appender.finish_version(&mut store, &source).unwrap().footer
    };
    let footers = [version(0), version(1)];
    let known = store.reader(&header, &footers[0]);
    let read = Arc::new(AtomicU64::new(0));
    let counting = || Arc::new(Counting(store.clone(), read.clone()));
    let next = Reader::from_known(counting(), &header, &footers[1], &known).unwrap();
    assert_eq!(read.load(Ordering::Relaxed), footers[1].locator.size);
    assert!(next.has_header_of(&known));
    assert_eq!(next.read(&next.select_all(), 1..2).unwrap().value(0).unwrap(), row(1));

    // Later versions may have more fields, or another header.
    let more = NewMember::added("y", Type::Primitive(Primitive::UInt8), None);
    let members = members().into_iter().map(|(name, of)| NewMember::same(&name, of)).chain([more]);
    let members: Vec<NewMember> = members.collect();
    let mut memory = store.clone();
    let evolved = evolve(&known, &mut memory, &members, options).unwrap();
    let newer = Reader::from_known(counting(), &evolved.header, &evolved.footer, &known).unwrap();
    assert!(!newer.has_header_of(&known));
    assert_eq!((newer.members().len(), known.members().len()), (4, 3));
    let older = Reader::from_known(counting(), &header, &footers[0], &newer).unwrap();
    assert_eq!(older.members().len(), 3);
    let strange = Reader::from_known(counting(), &header, &evolved.footer, &known);
    assert_eq!(strange.is_err(), evolved.header != header);
}

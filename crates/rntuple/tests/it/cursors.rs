//! Entries read as Rust structures equal those read as values.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rntuple::{
    Appender, ByteSource, CellType, ErrorKind, FieldCursor, FieldValue, PageCache, Primitive,
    Reader, Type, Value, WriteOptions, Writer, row,
};

use crate::representations::{FEW, expected, file};
use crate::store::Store;

row! {
    #[derive(Clone, Debug, PartialEq)]
    struct Muon { pt: f32, hits: Vec<u16>, track: [f64; 3] }
}
row! {
    #[derive(Clone, Debug, PartialEq)]
    struct Event {
        id: u64,
        good: bool,
        name: String,
        blob: Bytes,
        muons: Vec<Muon>,
        weight: Option<f64>,
        flags: [bool; 3],
    }
}
row! {
    #[derive(Debug, PartialEq)]
    struct Part { pt: f32 }
}
row! {
    #[derive(Debug, PartialEq)]
    struct Chosen { muons: Vec<Part>, id: u64 }
}

fn event(id: u64) -> Event {
    let muon = |n: u64| Muon {
        pt: (id + n) as f32,
        hits: (0..n as u16 * 3).collect(),
        track: [id as f64, n as f64, 0.5],
    };
    Event {
        id,
        good: id.is_multiple_of(3),
        name: "é".repeat(id as usize % 5),
        blob: vec![id as u8; id as usize * 7 % 300].into(),
        muons: (0..id % 4).map(muon).collect(),
        weight: id.is_multiple_of(2).then_some(id as f64),
        flags: [id.is_multiple_of(5), true, id.is_multiple_of(7)],
    }
}

const ENTRIES: u64 = 3000;

/// Many clusters of many small pages, so that values cross the boundaries of both.
fn written() -> (tempfile::TempDir, Reader) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.root");
    let options = WriteOptions { page_size: 128, cluster_size: 100_000, ..WriteOptions::default() };
    let mut writer = Writer::create::<Event>(&path, "events", options).unwrap();
    (0..ENTRIES).for_each(|id| writer.append_row(&event(id)).unwrap());
    writer.finish().unwrap();
    let file = std::fs::File::open(&path).unwrap();
    (folder, Reader::open(Arc::new(file), "events").unwrap())
}

/// An upper bound of the bytes of one page of each column.
const PAGES_BYTES: u64 = 4096;

#[test]
fn a_cursor_reads_written_entries_in_any_order() {
    let (_folder, reader) = written();
    assert!(reader.clusters() > 3);
    let cached = written().1.with_cache(PageCache::new(1 << 16).into(), 0);
    for (reader, held_max) in [(reader, 64 << 20), (cached, 1 << 15)] {
        let mut cursor = reader.cursor::<Event>().unwrap();
        let mut forward = reader.cursor::<Event>().unwrap().forward();
        for id in 0..ENTRIES {
            let scattered = id * 1237 % ENTRIES;
            assert_eq!(cursor.get(scattered).unwrap(), event(scattered));
            assert_eq!(forward.get(id).unwrap(), event(id));
            assert!(cursor.held_bytes() <= held_max + PAGES_BYTES);
            assert!(forward.held_bytes() <= held_max / 2 + PAGES_BYTES);
        }
    }
}

#[test]
fn a_cursor_holds_no_more_than_half_of_the_cache() {
    let (_folder, reader) = written();
    let reader = reader.with_cache(PageCache::new(20_000).into(), 0);
    let mut cursor = reader.cursor::<Event>().unwrap();
    for id in (0..ENTRIES).rev() {
        let before = cursor.held_bytes();
        cursor.get(id).unwrap();
        assert!(before <= 10_000 || cursor.held_bytes() < before, "{before}");
    }
}

#[test]
fn parallel_reads_equal_those_of_one_thread() {
    let (_folder, reader) = written();
    let all = reader.select_all();
    for entries in [0..ENTRIES, 17..1234, 5..5] {
        let one = reader.read(&all, entries.clone()).unwrap();
        for threads in [0, 1, 2, 3, 100] {
            let several = reader.read_in_parallel(&all, entries.clone(), threads).unwrap();
            assert_eq!(format!("{several:?}"), format!("{one:?}"));
        }
    }
    let beyond = reader.read_in_parallel(&all, 0..ENTRIES + 1, 2).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::NotFound);
}

#[test]
fn field_cursors_read_the_fields_of_structures() {
    let (_folder, reader) = written();
    let cursor = |name| FieldCursor::new(&reader, &[name]).unwrap();
    assert!(
        ["muons", "weight", "flags.0"]
            .iter()
            .all(|name| { FieldCursor::new(&reader, &[name]).ok().flatten().is_none() })
    );
    let mut cursors: Vec<_> =
        ["id", "good", "name", "blob", "flags"].map(|name| cursor(name).unwrap()).into();
    for id in (0..ENTRIES).map(|id| id * 1237 % ENTRIES) {
        let Event { good, name, blob, flags, .. } = event(id);
        let mut truth = [0; 8];
        truth[0] = u8::from(good);
        let expected = [
            FieldValue::Number(Primitive::UInt64, id.to_le_bytes()),
            FieldValue::Number(Primitive::Bool, truth),
            FieldValue::Text(name.into()),
            FieldValue::List(Primitive::UInt8, blob),
            FieldValue::Fixed(Primitive::Bool, flags.map(u8::from).to_vec().into()),
        ];
        for (cursor, expected) in cursors.iter_mut().zip(expected) {
            assert!(cursor.held(id).is_none_or(|held| held == expected));
            assert_eq!(cursor.get(id).unwrap(), expected);
            // A value that crosses the end of a page is not in memory in one piece.
            let is_whole = matches!(expected, FieldValue::Number(..));
            assert!(!is_whole || cursor.held(id) == Some(expected));
        }
    }
    assert!(cursors.iter().all(|cursor| cursor.held_bytes() > 0));
    cursors.iter_mut().for_each(FieldCursor::release);
    assert!(cursors.iter_mut().all(|cursor| cursor.held_bytes() == 0 && cursor.held(7).is_none()));
    assert_eq!(cursors[0].get(ENTRIES).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_structure_may_have_fewer_members_in_another_order() {
    let (_folder, reader) = written();
    let mut cursor = reader.cursor::<Chosen>().unwrap();
    let expected =
        Chosen { muons: vec![Part { pt: 7.0 }, Part { pt: 8.0 }, Part { pt: 9.0 }], id: 7 };
    assert_eq!(cursor.get(7).unwrap(), expected);
}

row! {
    struct NoSuchField { mass: f64 }
}
row! {
    struct OtherType { id: u32 }
}

#[test]
fn structures_with_missing_or_unlike_fields_are_refused() {
    let (_folder, reader) = written();
    let kind = |result: rntuple::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(reader.cursor::<NoSuchField>().map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(reader.cursor::<OtherType>().map(drop)), ErrorKind::Invalid);
    assert_eq!(kind(reader.cursor::<u64>().map(drop)), ErrorKind::Invalid);
    let mut cursor = reader.cursor::<Event>().unwrap();
    assert_eq!(kind(cursor.get(ENTRIES).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(cursor.get(u64::MAX).map(drop)), ErrorKind::NotFound);
    assert_eq!(cursor.get(1).unwrap(), event(1));
}

row! {
    #[derive(Debug, PartialEq)]
    struct Later { x: i32, y: f32, z: Vec<i32>, w: [i32; 2], s: String }
}

#[test]
fn added_fields_read_as_zeros_in_any_representation() {
    let (bytes, anchor) = file(FEW);
    let reader = Reader::from_anchor(Arc::new(bytes), &anchor).unwrap();
    let mut cursor = reader.cursor::<Later>().unwrap();
    for entry in 0..3 * FEW {
        let Later { x, y, z, w, s } = cursor.get(entry).unwrap();
        let ints = |ints: &[i32]| Value::List(ints.iter().map(|&n| Value::Int(n.into())).collect());
        let members = [
            ("x", Value::Int(x.into())),
            ("y", Value::Float(y.into())),
            ("z", ints(&z)),
            ("w", ints(&w)),
            ("s", Value::String(s)),
        ];
        let read = Value::Record(members.map(|(name, value)| (name.to_owned(), value)).to_vec());
        assert_eq!(read, expected(entry, FEW));
    }
}

/// Reads all entries of a file in which one byte was changed: values or errors, never a panic.
#[test]
fn a_flipped_byte_never_panics() {
    let mut store = Store::default();
    let Type::Record { members, .. } = Event::cell_type() else { panic!() };
    let options = WriteOptions { page_size: 64, ..WriteOptions::default() };
    let (mut appender, header) = Appender::create(&mut store, "events", &members, options).unwrap();
    (0..6).for_each(|id| appender.append_row(&mut store, &event(id)).unwrap());
    let version = appender.finish_version(&mut store, &Vec::new()).unwrap();
    let mut bytes = vec![0; store.len() as usize];
    store.read_at(0, &mut bytes).unwrap();
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        let Ok(reader) = Reader::from_links(Arc::new(damaged), &header, &version.footer) else {
            continue;
        };
        let mut cursor = reader.cursor::<Event>().unwrap();
        refused += usize::from((0..6).any(|id| cursor.get(id).is_err()));
    }
    assert!(refused > 100, "{refused}");
}

/// A source that records announced ranges.
struct Listening(Vec<u8>, Mutex<Vec<std::ops::Range<u64>>>);

impl ByteSource for Listening {
    fn size(&self) -> rntuple::Result<u64> {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn will_need(&self, ranges: &[std::ops::Range<u64>]) {
        self.1.lock().unwrap().extend_from_slice(ranges);
    }
}

#[test]
fn scattered_pages_are_announced_before_they_are_read() {
    let (folder, reader) = written();
    let bytes = std::fs::read(folder.path().join("events.root")).unwrap();
    let source = Arc::new(Listening(bytes, Mutex::default()));
    let listened = Reader::open(source.clone(), "events").unwrap();
    let all = reader.select_all();
    let runs: Vec<_> = (0..ENTRIES / 10).map(|run| run * 10..run * 10 + 2).collect();
    let read = listened.read_runs(&all, &runs).unwrap();
    let announced = source.1.lock().unwrap().len();
    assert!(announced > runs.len(), "{announced}");
    let whole = reader.read(&all, 0..ENTRIES).unwrap();
    for (position, entry) in runs.iter().cloned().flatten().enumerate() {
        assert_eq!(read.value(position).unwrap(), whole.value(entry as usize).unwrap());
    }
    assert!(listened.read_runs(&all, &[0..1, 5..ENTRIES + 1]).is_err());
    // A read of one range announces nothing, since its pages follow each other.
    listened.read(&all, 0..ENTRIES).unwrap();
    assert_eq!(source.1.lock().unwrap().len(), announced);
}

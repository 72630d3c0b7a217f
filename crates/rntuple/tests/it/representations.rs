//! Fields with several representations, one for each cluster, and fields that were added later. ROOT writes
//! both; this crate reads and continues them.

use std::sync::Arc;

use rntuple::{
    Anchor, Appender, Cluster, ClusterGroup, Column, ColumnPages, ColumnType, EnvelopeLink, Field,
    Footer, Header, Locator, PageCache, PageList, PageLocation, Reader, Schema, Structure, Type,
    Value, WriteOptions, encode,
};

use crate::round_trips::assert_holds;
use crate::sample;
use crate::store::Store;
use crate::values::array_of;

/// Entries of each of three clusters: few, or enough that the memory of arrays is recycled.
pub(crate) const FEW: u64 = 10;
const MANY: u64 = 50_000;

/// The first entry with the added fields, in the middle of the second cluster.
fn later(cluster: u64) -> u64 {
    cluster + cluster / 3
}

fn field(name: &str, type_name: &str, parent: u32, structure: Structure) -> Field {
    Field {
        name: name.into(),
        type_name: type_name.into(),
        parent,
        structure,
        ..sample::schema().fields[0].clone()
    }
}

fn column(column_type: ColumnType, field: u32, representation: u16, first: Option<u64>) -> Column {
    Column {
        column_type,
        bits: column_type.default_bits().unwrap(),
        field,
        representation,
        first_element: first.map(|first| first as i64),
        range: None,
    }
}

/// `x` in two encodings.
fn first_schema() -> Schema {
    let fields = vec![field("x", "std::int32_t", 0, Structure::Leaf)];
    let columns =
        vec![column(ColumnType::Int32, 0, 0, None), column(ColumnType::SplitInt32, 0, 1, None)];
    Schema { fields, columns, ..Schema::default() }
}

/// A number, a list, an array and a string, added later.
fn extension(later: u64) -> Schema {
    let fields = vec![
        field("y", "float", 1, Structure::Leaf),
        field("z", "std::vector<std::int32_t>", 2, Structure::Collection),
        field("_0", "std::int32_t", 2, Structure::Leaf),
        Field {
            repetition: Some(2),
            ..field("w", "std::array<std::int32_t,2>", 4, Structure::Leaf)
        },
        field("_0", "std::int32_t", 4, Structure::Leaf),
        field("s", "std::string", 6, Structure::Leaf),
    ];
    let columns = vec![
        column(ColumnType::Real32, 1, 0, Some(later)),
        column(ColumnType::SplitIndex32, 2, 0, Some(later)),
        column(ColumnType::Int32, 3, 0, None),
        column(ColumnType::Int32, 5, 0, Some(2 * later)),
        column(ColumnType::Index64, 6, 0, Some(later)),
        column(ColumnType::Char, 6, 0, None),
    ];
    Schema { fields, columns, ..Schema::default() }
}

fn items(entry: u64) -> Vec<i32> {
    vec![entry as i32; entry as usize % 3]
}

fn text(entry: u64) -> String {
    "t".repeat(entry as usize % 4)
}

/// The elements in memory of a column for entries that have it.
fn elements(column: usize, entries: std::ops::Range<u64>) -> Vec<u8> {
    let ends = |size: &dyn Fn(u64) -> usize| {
        let mut end = 0;
        let ends = entries.clone().flat_map(|entry| {
            end += size(entry) as u64;
            end.to_le_bytes()
        });
        ends.collect()
    };
    match column {
        0 | 1 => entries.flat_map(|entry| (-(entry as i32)).to_le_bytes()).collect(),
        2 => entries.flat_map(|entry| (entry as f32).to_le_bytes()).collect(),
        3 => ends(&|entry| items(entry).len()),
        4 => entries.flat_map(items).flat_map(i32::to_le_bytes).collect(),
        5 => entries.flat_map(|e| [e as i32, -(e as i32)]).flat_map(i32::to_le_bytes).collect(),
        6 => ends(&|entry| text(entry).len()),
        _ => entries.map(text).collect::<String>().into_bytes(),
    }
}

/// Three clusters of `size` entries each, and the links to header and footer.
pub(crate) fn file(size: u64) -> (Vec<u8>, Anchor) {
    let extension = extension(later(size));
    let mut bytes = vec![0; 64];
    let mut write = |payload: &[u8], checksum: bool| {
        let offset = bytes.len() as u64;
        bytes.extend_from_slice(payload);
        if checksum {
            bytes.extend(twox_hash::XxHash3_64::oneshot(payload).to_le_bytes());
        }
        let size = payload.len() as u64;
        EnvelopeLink { length: size, locator: Locator { offset, size } }
    };
    let header = Header { name: "t".into(), schema: first_schema(), ..Header::default() }.encode();
    let header_checksum = rntuple::envelope_checksum(&header);
    let header = write(&header, false);
    let columns = [first_schema().columns, extension.columns.clone()].concat();
    let mut clusters = vec![];
    for cluster in 0..3_u64 {
        let entries = cluster * size..(cluster + 1) * size;
        let has = |entry: u64| entries.start.max(entry)..entries.end;
        let pages = columns.iter().enumerate().map(|(id, column)| {
            // The first field alternates between its encodings.
            if id < 2 && id as u64 != cluster % 2 {
                return ColumnPages::default();
            }
            let values = elements(id, has(if id < 2 { 0 } else { later(size) }));
            let count = values.len() / column.column_type.element().unwrap().size();
            let mut encoded = vec![];
            encode(column, &values, &mut encoded).unwrap();
            let locator = write(&encoded, true).locator;
            let page = PageLocation { elements: count as u32, checksum: true, locator };
            let pages = if count == 0 { vec![] } else { vec![page] };
            ColumnPages { element_offset: Some(0), compression: 0, pages }
        });
        let known = if cluster == 0 { 2 } else { columns.len() };
        let columns = pages.take(known).collect();
        clusters.push(Cluster { first_entry: entries.start, entries: size, columns });
    }
    let page_list = write(&PageList { header_checksum, clusters }.encode(), false);
    let group = ClusterGroup { min_entry: 0, entry_span: 3 * size, clusters: 3, page_list };
    let footer = Footer { header_checksum, extension, cluster_groups: vec![group] };
    let footer = write(&footer.encode(), false);
    (bytes, Anchor::new(header, footer))
}

pub(crate) fn expected(entry: u64, size: u64) -> Value {
    let is_later = entry >= later(size);
    let ints = |ints: Vec<i32>| Value::List(ints.iter().map(|&n| Value::Int(n.into())).collect());
    let pair = [entry as i32, -(entry as i32)];
    let members = [
        ("x", Value::Int(-(entry as i64))),
        ("y", Value::Float(if is_later { entry as f64 } else { 0.0 })),
        ("z", ints(if is_later { items(entry) } else { vec![] })),
        ("w", ints(if is_later { pair.to_vec() } else { vec![0, 0] })),
        ("s", Value::String(if is_later { text(entry) } else { String::new() })),
    ];
    Value::Record(members.map(|(name, value)| (name.to_owned(), value)).to_vec())
}

#[test]
fn every_range_of_entries_is_read_in_any_representation() {
    let (bytes, anchor) = file(FEW);
    let source = Arc::new(bytes);
    let reader = Reader::from_anchor(source.clone(), &anchor).unwrap();
    let cache = Arc::new(PageCache::new(1 << 20));
    let cached = Reader::from_anchor(source, &anchor).unwrap().with_cache(cache, 0);
    assert_eq!(reader.ignored(), []);
    for reader in [reader, cached] {
        let all = reader.select_all();
        for start in 0..=3 * FEW {
            for end in start..=3 * FEW {
                let array = reader.read(&all, start..end).unwrap();
                for entry in start..end {
                    assert_eq!(
                        array.value((entry - start) as usize).unwrap(),
                        expected(entry, FEW)
                    );
                }
            }
        }
    }
}

/// Fields in clusters that store none, some or all of their values, in any representation.
#[test]
fn added_fields_can_be_replaced_in_older_entries() {
    let (bytes, anchor) = file(FEW);
    let mut store = Store::of(bytes);
    let before = store.reader(&anchor.header, &anchor.footer);
    let of = Type::Record { class: String::new(), members: before.members() };
    let mut rows: Vec<Value> = (0..3 * FEW).map(|entry| expected(entry, FEW)).collect();
    let options = WriteOptions { page_size: 16, ..WriteOptions::default() };
    let mut appender = Appender::resume(&before, options).unwrap();
    let source = store.clone();
    for (round, entries) in
        [vec![3], vec![0, 9, 11], vec![12, 13, 14, 19, 20, 28, 29]].into_iter().enumerate()
    {
        for (field, (name, of)) in before.members().iter().enumerate() {
            let value = |entry: &u64| expected(40 + entry % 7 + round as u64, FEW);
            let values: Vec<Value> =
                entries.iter().map(|at| value(at).member(name).unwrap().clone()).collect();
            let array = array_of(of, &values);
            appender.replace(&mut store, &source, name, &entries, &array).unwrap();
            for (&entry, value) in entries.iter().zip(values) {
                let Value::Record(members) = &mut rows[entry as usize] else { panic!() };
                members[field].1 = value;
            }
        }
        appender.append_value(&mut store, &expected(50, FEW)).unwrap();
        rows.push(expected(50, FEW));
        let version = appender.finish_version(&mut store, &source).unwrap();
        assert_holds(&store.reader(&anchor.header, &version.footer), &of, &rows);
    }
    let old: Vec<Value> = (0..3 * FEW).map(|entry| expected(entry, FEW)).collect();
    assert_holds(&before, &of, &old);
}

#[test]
fn single_fields_are_read_in_any_representation() {
    let (bytes, anchor) = file(FEW);
    let reader = Reader::from_anchor(Arc::new(bytes), &anchor).unwrap();
    for name in ["x", "y", "z", "w", "s"] {
        let array = reader.read(&reader.select(&[name]).unwrap(), 5..25).unwrap();
        for entry in 5..25 {
            let value = array.value(entry as usize - 5).unwrap();
            assert_eq!(value.member(name), expected(entry, FEW).member(name));
        }
    }
}

/// Recycled memory of large arrays has old numbers where zeros belong.
#[test]
fn added_fields_read_as_zeros_from_recycled_memory() {
    let (bytes, anchor) = file(MANY);
    let reader = Reader::from_anchor(Arc::new(bytes), &anchor).unwrap();
    let all = reader.select_all();
    for _ in 0..2 {
        let array = reader.read(&all, 0..3 * MANY).unwrap();
        for entry in (0..3 * MANY).step_by(1009) {
            assert_eq!(array.value(entry as usize).unwrap(), expected(entry, MANY));
        }
    }
}

/// ROOT stores pages with equal bytes once, even those of different columns. The page cache once returned
/// the elements that another column had decoded.
#[test]
fn columns_that_share_a_page_decode_it_separately() {
    let (mut bytes, _) = file(FEW);
    let mut write = |payload: &[u8]| {
        let (offset, size) = (bytes.len() as u64, payload.len() as u64);
        bytes.extend_from_slice(payload);
        EnvelopeLink { length: size, locator: Locator { offset, size } }
    };
    let fields = vec![
        field("signed", "std::int32_t", 0, Structure::Leaf),
        field("unsigned", "std::uint32_t", 1, Structure::Leaf),
    ];
    let columns = vec![
        column(ColumnType::SplitInt32, 0, 0, None),
        column(ColumnType::SplitUInt32, 1, 0, None),
    ];
    let mut encoded = vec![];
    let values: Vec<u8> = (0..FEW as u32).flat_map(u32::to_le_bytes).collect();
    encode(&columns[1], &values, &mut encoded).unwrap();
    let schema = Schema { fields, columns, ..Schema::default() };
    let header = Header { name: "t".into(), schema, ..Header::default() }.encode();
    let header_checksum = rntuple::envelope_checksum(&header);
    let header = write(&header);
    let locator = write(&encoded).locator;
    let page = PageLocation { elements: FEW as u32, checksum: false, locator };
    let pages = ColumnPages { element_offset: Some(0), compression: 0, pages: vec![page] };
    let cluster = Cluster { first_entry: 0, entries: FEW, columns: vec![pages; 2] };
    let page_list = PageList { header_checksum, clusters: vec![cluster] };
    let page_list = write(&page_list.encode());
    let group = ClusterGroup { min_entry: 0, entry_span: FEW, clusters: 1, page_list };
    let footer =
        Footer { header_checksum, extension: Schema::default(), cluster_groups: vec![group] };
    let anchor = Anchor::new(header, write(&footer.encode()));

    let cache = Arc::new(PageCache::new(1 << 20));
    let reader = Reader::from_anchor(Arc::new(bytes), &anchor).unwrap().with_cache(cache, 0);
    for entry in 0..FEW {
        let row = reader.read(&reader.select_all(), entry..entry + 1).unwrap().value(0).unwrap();
        let zigzag = [0, -1, 1, -2, 2, -3, 3, -4, 4, -5][entry as usize];
        assert_eq!(row.member("signed"), Some(&Value::Int(zigzag)));
        assert_eq!(row.member("unsigned"), Some(&Value::UInt(entry)));
    }
}

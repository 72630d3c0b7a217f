//! Editing versions whose fields have several representations, of widened numbers.

use rntuple::{
    Appender, BlobSink, Cluster, ClusterGroup, Column, ColumnPages, ColumnType, EnvelopeKind,
    EnvelopeLink, Footer, Header, Locator, PageList, Primitive, Reader, Schema, Type, Value,
    WriteOptions, read_envelope,
};

use crate::round_trips::{assert_holds, members_of};
use crate::store::Store;
use crate::values::array_of;

fn table(integer: Primitive, real: Primitive) -> Type {
    let members = [
        ("i", Type::Primitive(integer)),
        ("r", Type::Primitive(real)),
        ("l", Type::List(Type::Primitive(integer).into())),
        ("s", Type::String),
    ];
    let members = members.map(|(name, of)| (name.to_owned(), of)).to_vec();
    Type::Record { class: String::new(), members }
}

fn row(at: i64) -> Value {
    Value::Record(vec![
        ("i".to_owned(), Value::Int(-at)),
        ("r".to_owned(), Value::Float(at as f64 / 4.0)),
        ("l".to_owned(), Value::List((0..at % 3).map(Value::Int).collect())),
        ("s".to_owned(), Value::String("s".repeat(at as usize % 5))),
    ])
}

fn write(store: &mut Store, envelope: &[u8]) -> EnvelopeLink {
    let (offset, size) = (store.write_blob(&[envelope]).unwrap(), envelope.len() as u64);
    EnvelopeLink { length: size, locator: Locator { offset, size } }
}

/// A schema of 64-bit numbers with 32-bit numbers as a second representation.
fn widened_schema() -> Schema {
    let narrow = Schema::new(
        members_of(&table(Primitive::Int32, Primitive::Float32)),
        rntuple::Encoding::Plain,
    );
    let wide = Schema::new(
        members_of(&table(Primitive::Int64, Primitive::Float64)),
        rntuple::Encoding::Plain,
    );
    let (narrow, mut wide) = (narrow.unwrap(), wide.unwrap());
    let columns = std::mem::take(&mut wide.columns);
    for (wider, narrower) in columns.into_iter().zip(narrow.columns) {
        let second = (wider.column_type != narrower.column_type)
            .then_some(Column { representation: 1, ..narrower });
        wide.columns.push(wider);
        wide.columns.extend(second);
    }
    wide
}

/// A version of 100 narrow entries in two clusters, under a header of wide numbers.
fn widened() -> (Store, EnvelopeLink, EnvelopeLink) {
    let of = table(Primitive::Int32, Primitive::Float32);
    let mut store = Store::default();
    let options = WriteOptions { page_size: 64, ..Default::default() };
    let (mut appender, _) = Appender::create(&mut store, "t", members_of(&of), options).unwrap();
    for first in [0, 50] {
        let rows: Vec<Value> = (first..first + 50).map(row).collect();
        appender.append(&mut store, &array_of(&of, &rows)).unwrap();
        appender.savepoint(&mut store).unwrap();
    }
    let source = store.clone();
    let version = appender.finish_version(&mut store, &source).unwrap();
    let read = |link: &EnvelopeLink, kind| read_envelope(&source, link, kind, u64::MAX).unwrap();
    let footer = Footer::decode(&read(&version.footer, EnvelopeKind::Footer)).unwrap();
    let list = &footer.cluster_groups[0].page_list;
    let list = PageList::decode(&read(list, EnvelopeKind::PageList)).unwrap();
    let header = Header { name: "t".into(), schema: widened_schema(), ..Default::default() };
    let widen = |cluster: Cluster| {
        let mut old = cluster.columns.into_iter();
        let columns = &header.schema.columns;
        let takes = |at: usize| columns.get(at + 1).is_none_or(|next| next.representation == 0);
        let columns = (0..columns.len())
            .map(|at| if takes(at) { old.next().unwrap() } else { ColumnPages::default() })
            .collect();
        Cluster { columns, ..cluster }
    };
    let bytes = header.encode();
    let header_checksum = rntuple::envelope_checksum(&bytes);
    let clusters = list.clusters.into_iter().map(widen).collect();
    let link = write(&mut store, &bytes);
    let page_list = write(&mut store, &PageList { header_checksum, clusters }.encode());
    let group = ClusterGroup { page_list, ..footer.cluster_groups[0] };
    let footer = Footer { header_checksum, cluster_groups: vec![group], ..footer };
    let footer = write(&mut store, &footer.encode());
    (store, link, footer)
}

/// Types of the columns that hold a field in each cluster.
fn active(store: &Store, reader: &Reader, field: &str) -> Vec<ColumnType> {
    let paths = reader.column_paths();
    let columns: Vec<_> = paths.iter().filter(|path| path.path == field && !path.is_size).collect();
    let groups = &reader.footer().cluster_groups;
    let lists = groups.iter().map(|group| {
        let bytes = read_envelope(store, &group.page_list, EnvelopeKind::PageList, u64::MAX);
        PageList::decode(&bytes.unwrap()).unwrap()
    });
    let of_cluster = |cluster: Cluster| {
        let mut active = columns
            .iter()
            .filter(|path| cluster.columns[path.column as usize].element_offset.is_some());
        let column = active.next().unwrap().column;
        assert!(active.next().is_none(), "one representation of {field} is active");
        reader.schema().columns[column as usize].column_type
    };
    lists.flat_map(|list| list.clusters).map(of_cluster).collect()
}

#[test]
fn a_cluster_keeps_its_representation_while_values_fit() {
    use ColumnType::{Int32, Int64, Real32, Real64};
    let (mut store, header, footer) = widened();
    let of = table(Primitive::Int64, Primitive::Float64);
    let mut rows: Vec<Value> = (0..100).map(row).collect();
    let reader = store.reader(&header, &footer);
    assert_holds(&reader, &of, &rows);
    let options = WriteOptions { page_size: 64, ..Default::default() };
    let mut appender = Appender::resume(&reader, options).unwrap();
    let source = store.clone();
    // New entries are wide.
    rows.extend((100..120).map(row));
    appender.append(&mut store, &array_of(&of, &rows[100..110])).unwrap();
    rows[110..].iter().for_each(|row| appender.append_value(&mut store, row).unwrap());
    let mut replace = |field: usize, entry: usize, value: Value| {
        let Value::Record(members) = &mut rows[entry] else { panic!() };
        members[field].1 = value.clone();
        let (name, of) = &members_of(&of)[field];
        let array = array_of(of, &[value]);
        appender.replace(&mut store, &source, name, &[entry as u64], &array).unwrap();
    };
    // The first cluster gets only values that a narrow column holds, so it stays narrow.
    replace(0, 10, Value::Int(i64::from(i32::MIN)));
    replace(1, 11, Value::Float(0.5));
    replace(1, 12, Value::Float(f64::NEG_INFINITY));
    replace(2, 13, Value::List(vec![Value::Int(1); 9]));
    // The second cluster gets values that only wide columns hold.
    replace(0, 60, Value::Int(i64::MAX));
    replace(1, 61, Value::Float(0.1));
    replace(2, 62, Value::List(vec![Value::Int(1 << 40); 3]));
    replace(0, 115, Value::Int(i64::MIN));
    let version = appender.finish_version(&mut store, &source).unwrap();
    let reader = store.reader(&header, &version.footer);
    assert_holds(&reader, &of, &rows);
    assert_eq!(active(&store, &reader, "i"), [Int32, Int64, Int64]);
    assert_eq!(active(&store, &reader, "r"), [Real32, Real64, Real64]);
    assert_eq!(active(&store, &reader, "l"), [Int32, Int64, Int64]);
    // The previous version is unchanged.
    let before: Vec<Value> = (0..100).map(row).collect();
    assert_holds(&store.reader(&header, &footer), &of, &before);
}

#[test]
fn representations_count_their_elements_together() {
    let (mut store, header, footer) = widened();
    let of = table(Primitive::Int64, Primitive::Float64);
    let reader = store.reader(&header, &footer);
    let mut appender = Appender::resume(&reader, WriteOptions::default()).unwrap();
    let source = store.clone();
    appender.append(&mut store, &array_of(&of, &[row(1)])).unwrap();
    let version = appender.finish_version(&mut store, &source).unwrap();
    let reader = store.reader(&header, &version.footer);
    let group = reader.footer().cluster_groups.last().unwrap();
    let bytes = read_envelope(&store, &group.page_list, EnvelopeKind::PageList, u64::MAX).unwrap();
    let last = PageList::decode(&bytes).unwrap().clusters.pop().unwrap();
    assert_eq!(last.first_entry, 100);
    assert_eq!(last.columns[0].element_offset, Some(100));
    assert_eq!(last.columns[1].element_offset, None);
}

//! Versions as others read them: right element offsets, one representation, deletions as a field.

use std::ops::Range;

use proptest::{collection::vec, prelude::*, sample::Index};

use rntuple::{
    Appender, ByteSource, EnvelopeLink, ErrorKind, Member, PageList, Primitive, Reader, Type,
    Value, WriteOptions, complete, evolve,
};

use crate::revising::{event, number, record, rows_of, tracks};
use crate::revising_model::{Random, change_members};
use crate::round_trips::{assert_holds, members_of, options, tables};
use crate::store::Store;
use crate::values::{array_of, cases};

/// An RNTuple in its newest version.
pub struct Made {
    pub store: Store,
    pub header: EnvelopeLink,
    pub footer: EnvelopeLink,
}

impl Made {
    pub fn new(of: &Type, rows: &[Value], options: WriteOptions) -> Self {
        let mut store = Store::default();
        let (mut appender, header) =
            Appender::create(&mut store, "t", members_of(of), options).unwrap();
        appender.append(&mut store, &array_of(of, rows)).unwrap();
        let footer = appender.finish_version(&mut store.clone(), &store).unwrap().footer;
        Made { store, header, footer }
    }

    pub fn reader(&self) -> Reader {
        self.store.reader(&self.header, &self.footer)
    }

    /// Adds rows as one version.
    pub fn append(&mut self, of: &Type, rows: &[Value], options: WriteOptions) {
        let mut appender = Appender::resume(&self.reader(), options).unwrap();
        appender.append(&mut self.store, &array_of(of, rows)).unwrap();
        self.footer = appender.finish_version(&mut self.store.clone(), &self.store).unwrap().footer;
    }

    /// Replaces the tracks of an entry.
    fn replace(&mut self, entry: u64, tracks: &Value, options: WriteOptions) {
        let reader = self.reader();
        let (_, of) = reader.members().into_iter().find(|(name, _)| name == "tracks").unwrap();
        let mut appender = Appender::resume(&reader, options).unwrap();
        let (values, mut store) = (array_of(&of, std::slice::from_ref(tracks)), self.store.clone());
        appender.replace(&mut store, &self.store, "tracks", &[entry], &values).unwrap();
        self.footer = appender.finish_version(&mut store, &self.store).unwrap().footer;
    }
}

/// Fails unless the elements of all columns are counted without a gap, and each field has its first
/// representation alone.
pub fn assert_complete(made: &Made) {
    let reader = made.reader();
    let columns = &reader.schema().columns;
    let mut totals = vec![0; columns.len()];
    for group in &reader.footer().cluster_groups {
        let mut bytes = vec![0; group.page_list.locator.size as usize];
        made.store.read_at(group.page_list.locator.offset, &mut bytes).unwrap();
        for cluster in PageList::decode(&bytes).unwrap().clusters {
            assert_eq!(cluster.columns.len(), columns.len());
            for (id, column) in cluster.columns.iter().enumerate() {
                let expected = (columns[id].representation == 0).then_some(totals[id]);
                assert_eq!(column.element_offset, expected, "column {id}");
                totals[id] += column.pages.iter().map(|page| u64::from(page.elements)).sum::<u64>();
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(25))]

    #[test]
    fn whatever_was_evolved_is_complete_in_the_end(
        (of, rows) in tables(1..25),
        options in vec(options(), 2),
        marked in vec(any::<Index>(), 0..6),
        seed: u64,
    ) {
        let mut made = Made::new(&of, &rows, options[0]);
        let (members, rules, value) = change_members(members_of(&of), false, &mut Random(seed));
        let of = Type::Record { class: String::new(), members };
        let mut expected: Vec<Value> = rows_of(&made.reader()).iter().map(value).collect();
        let evolved = evolve(&made.reader(), &mut made.store, &rules, options[1]).unwrap();
        (made.header, made.footer) = (evolved.header, evolved.footer);
        made.append(&of, &expected, options[1]);
        expected.extend_from_within(..);

        let mut deleted: Vec<u64> = marked.iter().map(|at| at.index(expected.len()) as u64).collect();
        deleted.sort_unstable();
        deleted.dedup();
        let ranges: Vec<_> = deleted.iter().map(|&entry| entry..entry + 1).collect();
        let before = made.reader();
        let revised =
            complete(&before, &mut made.store, made.footer, &ranges, options[1]).unwrap();
        made.footer = revised.footer;
        assert_complete(&made);
        assert_holds(&before, &of, &expected);
        if deleted.is_empty() {
            assert_holds(&made.reader(), &of, &expected);
            return Ok(());
        }
        for (entry, row) in rows_of(&made.reader()).into_iter().enumerate() {
            let is_deleted = deleted.contains(&(entry as u64));
            prop_assert_eq!(row.member("_deleted"), Some(&Value::Bool(is_deleted)));
        }
    }
}

#[test]
fn offsets_behind_an_edited_cluster_are_made_right_and_nothing_else_is_written() {
    let options = WriteOptions { page_size: 64, cluster_size: 1 << 10, ..Default::default() };
    let mut made = Made::new(&tracks(), &(0..2000).map(event).collect::<Vec<_>>(), options);
    let mut rows = rows_of(&made.reader());
    let longer = event(4).member("tracks").unwrap().clone();
    made.replace(1000, &longer, options);
    let Value::Record(members) = &mut rows[1000] else { panic!("a record") };
    members[1].1 = longer;

    let size = made.store.len();
    let revised = complete(&made.reader(), &mut made.store, made.footer, &[], options).unwrap();
    assert_eq!(revised.bytes, made.store.len() - size);
    made.footer = revised.footer;
    assert_complete(&made);
    assert_eq!(rows_of(&made.reader()), rows);

    let size = made.store.len();
    let again = complete(&made.reader(), &mut made.store, made.footer, &[], options).unwrap();
    assert_eq!((again.footer, again.bytes, made.store.len()), (made.footer, 0, size));
}

#[test]
fn marks_take_little_where_few_are_deleted() {
    let options = WriteOptions { page_size: 1 << 10, cluster_size: 1 << 10, ..Default::default() };
    let mut made = Made::new(&tracks(), &(0..20_000).map(event).collect::<Vec<_>>(), options);
    let reader = made.reader();
    let deleted = [3..4, 500..9000, 19_999..20_000];
    let revised = complete(&reader, &mut made.store, made.footer, &deleted, options).unwrap();
    made.footer = revised.footer;
    let reader = made.reader();
    let array = reader.read(&reader.select(&["_deleted"]).unwrap(), 0..20_000).unwrap();
    for entry in 0..20_000 {
        let is_deleted = deleted.iter().any(|range| range.contains(&entry));
        let found = array.value(entry as usize).unwrap();
        assert_eq!(found.member("_deleted"), Some(&Value::Bool(is_deleted)), "entry {entry}");
    }
}

#[test]
fn marks_are_refused_for_entries_that_do_not_exist_and_names_that_do() {
    let options = WriteOptions::default();
    let mut made = Made::new(&tracks(), &(0..10).map(event).collect::<Vec<_>>(), options);
    let (beyond, reversed) = (9..11, Range { start: 5, end: 4 });
    for deleted in [vec![beyond], vec![3..4, 2..3], vec![reversed]] {
        let reader = made.reader();
        let error = complete(&reader, &mut made.store, made.footer, &deleted, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{deleted:?}");
    }
    let of = record(&[("_deleted", number(Primitive::Bool))]);
    let row = Value::Record(vec![("_deleted".to_owned(), Value::Bool(false))]);
    let mut made = Made::new(&of, &[row], options);
    let one = 0..1;
    let error =
        complete(&made.reader(), &mut made.store, made.footer, &[one], options).unwrap_err();
    assert!(error.to_string().contains("there is a field \"_deleted\" already"), "{error}");
}

#[test]
fn an_evolved_version_that_nobody_widened_is_complete() {
    let options = WriteOptions::default();
    let mut made = Made::new(&tracks(), &(0..100).map(event).collect::<Vec<_>>(), options);
    let members = [Member::added("n", number(Primitive::Int8), None)];
    let evolved = evolve(&made.reader(), &mut made.store, &members, options).unwrap();
    (made.header, made.footer) = (evolved.header, evolved.footer);
    let revised = complete(&made.reader(), &mut made.store, made.footer, &[], options).unwrap();
    assert_eq!((revised.footer, revised.bytes), (made.footer, 0));
    assert_complete(&made);
}

//! Completed versions: right element offsets, one representation, deletions as a field.

use std::ops::Range;

use proptest::{collection::vec, prelude::*, sample::Index};

use rntuple::{
    Anchor, Appender, BlobSink, ByteSource, Column, ColumnType, Compaction, Completed, Compression,
    EnvelopeLink, ErrorKind, Footer, Header, Locator, NewMember, PageList, Primitive, Reader,
    Schema, Type, Value, WriteOptions, compact, complete, evolve,
};

use crate::evolution::{event, number, record, rows_of, tracks};
use crate::revision_model::{Random, change_members};
use crate::round_trips::{assert_holds, members_of, options, tables};
use crate::store::Store;
use crate::values::{array_of, cases};

/// An RNTuple in its newest version.
pub(crate) struct Made {
    pub store: Store,
    pub header: EnvelopeLink,
    pub footer: EnvelopeLink,
}

impl Made {
    pub(crate) fn new(of: &Type, rows: &[Value], options: WriteOptions) -> Self {
        let mut store = Store::default();
        let (mut appender, header) =
            Appender::create(&mut store, "t", members_of(of), options).unwrap();
        appender.append(&mut store, &array_of(of, rows)).unwrap();
        let footer = appender.finish_version(&mut store.clone(), &store).unwrap().footer;
        Made { store, header, footer }
    }

    pub(crate) fn reader(&self) -> Reader {
        self.store.reader(&self.header, &self.footer)
    }

    /// Completes it, and continues with the complete version.
    pub(crate) fn complete(
        &mut self,
        deleted: &[Range<u64>],
        options: WriteOptions,
    ) -> rntuple::Result<Completed> {
        let anchor = Anchor::new(self.header, self.footer);
        let reader = self.reader();
        let completed = complete(&reader, &mut self.store, &anchor, deleted, options)?;
        (self.header, self.footer) = (completed.anchor.header, completed.anchor.footer);
        Ok(completed)
    }

    /// Adds rows as one version.
    pub(crate) fn append(&mut self, of: &Type, rows: &[Value], options: WriteOptions) {
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

/// Fails unless all columns are in the header, each once and with 64-bit offsets, all clusters in one
/// group, and the elements of all columns are counted without a gap.
pub(crate) fn assert_complete(made: &Made) {
    let reader = made.reader();
    let columns = &reader.schema().columns;
    assert!(reader.footer().extension.columns.is_empty());
    assert!(columns.iter().all(|column| column.representation == 0));
    assert!(columns.iter().all(|column| column.first_element.is_none()));
    let narrow = [ColumnType::Index32, ColumnType::SplitIndex32];
    assert!(columns.iter().all(|column| !narrow.contains(&column.column_type)));
    assert!(reader.footer().cluster_groups.len() <= 1);
    assert_counted(made);
}

/// Fails unless the elements of all columns are counted without a gap, and each field has its first
/// representation alone.
pub(crate) fn assert_counted(made: &Made) {
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
    fn completion_succeeds_after_any_evolution_and_edit(
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
        made.complete(&ranges, options[1]).unwrap();
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
fn completion_corrects_element_offsets_behind_an_edited_cluster() {
    let options = WriteOptions { page_size: 64, cluster_size: 1 << 10, ..Default::default() };
    let mut made = Made::new(&tracks(), &(0..2000).map(event).collect::<Vec<_>>(), options);
    let mut rows = rows_of(&made.reader());
    let longer = event(4).member("tracks").unwrap().clone();
    made.replace(1000, &longer, options);
    let Value::Record(members) = &mut rows[1000] else { panic!("a record") };
    members[1].1 = longer;

    let size = made.store.len();
    let completed = made.complete(&[], options).unwrap();
    assert_eq!(completed.bytes, made.store.len() - size);
    assert_complete(&made);
    assert_eq!(rows_of(&made.reader()), rows);

    let size = made.store.len();
    let again = made.complete(&[], options).unwrap();
    assert_eq!(again, Completed { anchor: completed.anchor, bytes: 0 });
    assert_eq!(made.store.len(), size);
}

#[test]
fn deletion_marks_are_small_when_few_entries_are_deleted() {
    let options = WriteOptions { page_size: 1 << 10, cluster_size: 1 << 10, ..Default::default() };
    let mut made = Made::new(&tracks(), &(0..20_000).map(event).collect::<Vec<_>>(), options);
    let deleted = [3..4, 500..9000, 19_999..20_000];
    made.complete(&deleted, options).unwrap();
    assert_complete(&made);
    let reader = made.reader();
    let array = reader.read(&reader.select(&["_deleted"]).unwrap(), 0..20_000).unwrap();
    for entry in 0..20_000 {
        let is_deleted = deleted.iter().any(|range| range.contains(&entry));
        let found = array.value(entry as usize).unwrap();
        assert_eq!(found.member("_deleted"), Some(&Value::Bool(is_deleted)), "entry {entry}");
    }
}

#[test]
fn deletion_marks_fail_for_missing_entries_and_taken_names() {
    let options = WriteOptions::default();
    let mut made = Made::new(&tracks(), &(0..10).map(event).collect::<Vec<_>>(), options);
    let (beyond, reversed) = (9..11, Range { start: 5, end: 4 });
    for deleted in [vec![beyond], vec![3..4, 2..3], vec![reversed]] {
        let error = made.complete(&deleted, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{deleted:?}");
    }
    let of = record(&[("_deleted", number(Primitive::Bool))]);
    let row = Value::Record(vec![("_deleted".to_owned(), Value::Bool(false))]);
    let mut made = Made::new(&of, &[row], options);
    let one = 0..1;
    let error = made.complete(&[one], options).unwrap_err();
    assert!(error.to_string().contains("field \"_deleted\" exists already"), "{error}");
}

#[test]
fn an_evolved_version_without_widened_fields_is_complete() {
    let options = WriteOptions::default();
    let mut made = Made::new(&tracks(), &(0..100).map(event).collect::<Vec<_>>(), options);
    let members = [NewMember::added("n", number(Primitive::Int8), None)];
    let evolved = evolve(&made.reader(), &mut made.store, &members, options).unwrap();
    (made.header, made.footer) = (evolved.header, evolved.footer);
    let before = Anchor::new(made.header, made.footer);
    assert_eq!(made.complete(&[], options).unwrap(), Completed { anchor: before, bytes: 0 });
    assert_complete(&made);
}

#[test]
fn versions_of_many_commits_become_one_cluster_group() {
    // JSROOT 7.11 showed 4,000 of 7,000 entries: those of the first group.
    let options = WriteOptions { page_size: 64, ..Default::default() };
    let rows: Vec<Value> = (0..70).map(event).collect();
    let mut made = Made::new(&tracks(), &rows[..10], options);
    for rows in rows[10..].chunks(10) {
        made.append(&tracks(), rows, options);
    }
    let header = made.header;
    assert!(made.reader().footer().cluster_groups.len() > 1);
    made.complete(&[], options).unwrap();
    assert_complete(&made);
    assert_eq!(made.header, header, "the schema is unchanged");
    assert_eq!(rows_of(&made.reader()), rows);
}

/// An RNTuple without entries whose offsets have 32 bits, as this crate wrote them at first.
fn with_narrow_offsets(of: &Type, options: WriteOptions) -> Made {
    let mut schema = Schema::new(members_of(of), options.encoding()).unwrap();
    for column in &mut schema.columns {
        let narrow = match column.column_type {
            ColumnType::Index64 => ColumnType::Index32,
            ColumnType::SplitIndex64 => ColumnType::SplitIndex32,
            _ => continue,
        };
        (column.column_type, column.bits) = (narrow, 32);
    }
    let header = Header { name: "t".to_owned(), schema, ..Header::default() }.encode();
    let (_, header_checksum) = Header::decode(&header).unwrap();
    let footer = Footer { header_checksum, ..Footer::default() }.encode();
    let mut store = Store::default();
    let [header, footer] = [header, footer].map(|envelope| {
        let size = envelope.len() as u64;
        let offset = store.write_blob(&[&envelope]).unwrap();
        EnvelopeLink { length: size, locator: Locator { offset, size } }
    });
    Made { store, header, footer }
}

#[test]
fn rntuples_with_32_bit_offsets_are_continued_and_completed_with_64_bits() {
    for compression in [Compression::None, Compression::Zstd { level: 1 }] {
        let options = WriteOptions { page_size: 256, compression, ..Default::default() };
        let rows: Vec<Value> = (0..200).map(event).collect();
        let mut made = with_narrow_offsets(&tracks(), options);
        made.append(&tracks(), &rows[..150], options);
        made.append(&tracks(), &rows[150..], options);
        let is_narrow = |of: &Column| of.column_type.is_index() && of.bits == 32;
        assert!(made.reader().schema().columns.iter().any(is_narrow));
        assert_eq!(rows_of(&made.reader()), rows);
        let (compaction, last) = (Compaction { options, all: true, dead: &[] }, made.footer);
        let compacted = compact(&made.reader(), &mut made.store, last, &compaction, &mut |_| ());
        made.footer = compacted.unwrap().footer;

        let members = [
            NewMember::same("id", number(Primitive::Float64)),
            NewMember::same("tracks", member_type(&tracks(), "tracks")),
        ];
        let evolved = evolve(&made.reader(), &mut made.store, &members, options).unwrap();
        (made.header, made.footer) = (evolved.header, evolved.footer);
        made.complete(std::slice::from_ref(&(7..9)), options).unwrap();
        assert_complete(&made);
        for (before, after) in rows.iter().zip(rows_of(&made.reader())) {
            assert_eq!(before.member("tracks"), after.member("tracks"));
        }
    }
}

fn member_type(of: &Type, name: &str) -> Type {
    let member = members_of(of).iter().find(|(found, _)| found == name);
    member.expect("the member exists").1.clone()
}

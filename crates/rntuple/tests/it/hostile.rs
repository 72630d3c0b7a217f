//! Files that lie: whatever the metadata say, reading gives an array or an error, without a panic
//! and without memory that the file's bytes do not justify.
//!
//! Checksums are right throughout, so that the lies reach what lies behind them.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample};

use rntuple::{
    Anchor, Appender, Array, BlobSink, ColumnType, EnvelopeKind, EnvelopeLink, Footer, Header,
    Locator, PageList, Reader, Result, Structure, Type, Value, bytes_of, read_envelope,
};

use crate::allocations::largest;
use crate::round_trips::{members_of, options, tables};
use crate::values::{array_of, cases};

/// Far more than reading small files takes, and far less than the lies ask for. Memory that is
/// never touched counts, too.
const ALLOCATION_MAX: usize = 3 << 30;
/// Entries read at either end.
const ENTRIES_MAX: u64 = 50;

/// A file in parts that can be changed one by one.
#[derive(Clone, Debug)]
struct Parts {
    blobs: Vec<u8>,
    header: Header,
    footer: Footer,
    page_lists: Vec<PageList>,
}

impl BlobSink for Parts {
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let offset = self.blobs.len() as u64;
        parts.iter().for_each(|part| self.blobs.extend_from_slice(part));
        Ok(offset)
    }
}

impl Parts {
    fn of(of: &Type, rows: &[Value], options: rntuple::WriteOptions) -> Self {
        let mut parts = Parts {
            blobs: vec![0; 100],
            header: Header::default(),
            footer: Footer::default(),
            page_lists: vec![],
        };
        let (mut appender, header) =
            Appender::create(&mut parts, "t", members_of(of), options).unwrap();
        appender.append(&mut parts, &array_of(of, rows)).unwrap();
        let version = appender.finish_version(&mut parts, &Vec::new()).unwrap();
        let read =
            |link: &EnvelopeLink, kind| read_envelope(&parts.blobs, link, kind, u64::MAX).unwrap();
        let header = Header::decode(&read(&header, EnvelopeKind::Header)).unwrap().0;
        let footer = Footer::decode(&read(&version.footer, EnvelopeKind::Footer)).unwrap();
        let list = |group: &rntuple::ClusterGroup| {
            PageList::decode(&read(&group.page_list, EnvelopeKind::PageList)).unwrap()
        };
        let page_lists = footer.cluster_groups.iter().map(list).collect();
        Parts { header, footer, page_lists, ..parts }
    }

    /// Writes the parts as they are now.
    fn anchor(&mut self) -> Anchor {
        let header = self.header.encode();
        let checksum = rntuple::envelope_checksum(&header);
        for at in 0..self.page_lists.len() {
            self.page_lists[at].header_checksum = checksum;
            let list = self.page_lists[at].encode();
            self.footer.cluster_groups[at].page_list = self.write(&list);
        }
        self.footer.header_checksum = checksum;
        let footer = self.footer.encode();
        Anchor::new(self.write(&header), self.write(&footer))
    }

    fn write(&mut self, envelope: &[u8]) -> EnvelopeLink {
        let offset = self.write_blob(&[envelope]).unwrap();
        let size = envelope.len() as u64;
        EnvelopeLink { length: size, locator: Locator { offset, size } }
    }
}

/// One change of one number.
#[derive(Clone, Copy, Debug)]
struct Lie {
    what: u8,
    places: [sample::Index; 3],
    number: u64,
}

fn lies() -> impl Strategy<Value = Vec<Lie>> {
    let odd = [0, 1, 2, 3, 7, 64, 1000, 1 << 20, 1 << 31, 1 << 32, 1 << 40, 1 << 55, 1 << 62];
    let numbers = prop_oneof![
        3 => sample::select(odd.to_vec()),
        1 => sample::select(odd.to_vec()).prop_map(|odd: u64| odd.wrapping_sub(1)),
        2 => 0..60_u64,
        1 => any::<u64>(),
    ];
    let lie = (0..20_u8, any::<[sample::Index; 3]>(), numbers)
        .prop_map(|(what, places, number)| Lie { what, places, number });
    vec(lie, 1..4)
}

impl Lie {
    fn tell(&self, parts: &mut Parts) {
        match self.what {
            0..=6 => self.tell_of_fields(parts),
            7..=9 => self.tell_of_groups(parts),
            _ => self.tell_of_pages(parts),
        }
    }

    fn tell_of_fields(&self, parts: &mut Parts) {
        let Lie { what, places, number } = *self;
        let schema = &mut parts.header.schema;
        if schema.columns.is_empty() {
            return;
        }
        let field = places[0].index(schema.fields.len());
        let column = places[1].index(schema.columns.len());
        match what {
            0 => schema.columns[column].column_type = ColumnType::from_code(number as u16 % 32),
            1 => schema.columns[column].bits = number as u16,
            2 => schema.columns[column].first_element = Some((number % (1 << 62)) as i64),
            3 => schema.fields[field].repetition = Some(number),
            4 => {
                use Structure::*;
                let structures = [Leaf, Collection, Record, Variant, Streamer];
                schema.fields[field].structure = structures[number as usize % 5];
            }
            5 => schema.columns[column].field = field as u32,
            _ => schema.fields[field].parent = number as u32 % schema.fields.len() as u32,
        }
    }

    fn tell_of_groups(&self, parts: &mut Parts) {
        let Lie { what, places, number } = *self;
        let groups = &mut parts.footer.cluster_groups;
        if groups.is_empty() {
            return;
        }
        let group = places[0].index(groups.len());
        let clusters = &mut parts.page_lists[group].clusters;
        let cluster = places[1].index(clusters.len());
        match what {
            // The same lie in both places, or it would be found out at once.
            7 => {
                let entries = number % (1 << 55);
                groups[group].entry_span = groups[group]
                    .entry_span
                    .wrapping_sub(clusters[cluster].entries)
                    .wrapping_add(entries);
                clusters[cluster].entries = entries;
            }
            8 => groups[group].min_entry = number,
            _ => clusters[cluster].first_entry = number % (1 << 62),
        }
    }

    fn tell_of_pages(&self, parts: &mut Parts) {
        let Lie { what, places, number } = *self;
        let size = parts.blobs.len();
        let Some(list) = parts.page_lists.first_mut() else { return };
        let cluster = places[0].index(list.clusters.len());
        let columns = &mut list.clusters[cluster].columns;
        if columns.is_empty() {
            return;
        }
        let column = places[1].index(columns.len());
        if what == 10 {
            columns.truncate(column);
            return;
        }
        let pages = &mut columns[column];
        if what == 11 {
            pages.element_offset = (number % 2 == 0).then_some(number % (1 << 61));
            return;
        }
        if pages.pages.is_empty() {
            return;
        }
        let page = places[2].index(pages.pages.len());
        let page = &mut pages.pages[page];
        page.checksum = false;
        let offset = page.locator.offset as usize;
        match what {
            12 => page.elements = number as u32 % (1 << 31),
            13 => page.locator.size = number,
            14 => page.locator.offset = number,
            15 => page.locator.offset = number % size as u64,
            // The bytes of the page themselves: offsets, tags, compressed data.
            _ => {
                let place = places[1].index(page.locator.size.max(1) as usize).wrapping_add(offset);
                let bytes = number.to_le_bytes();
                for (at, byte) in bytes[..what as usize % 4 * 2 + 1].iter().enumerate() {
                    if let Some(target) = parts.blobs.get_mut(place.wrapping_add(at)) {
                        *target = *byte;
                    }
                }
            }
        }
    }
}

/// Reads both ends of all fields, as arrays and as values.
fn read_all(reader: &Reader) {
    let entries = reader.entries();
    let all = reader.select_all();
    for range in [
        0..entries.min(ENTRIES_MAX),
        entries.saturating_sub(ENTRIES_MAX)..entries,
        0..entries.min(1),
    ] {
        let Ok(array) = reader.read(&all, range) else { continue };
        (0..array.len()).for_each(|at| drop(array.value(at)));
    }
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn lies_are_errors_and_never_panics(
        (of, rows) in tables(0..20),
        options in options(),
        lies in lies(),
    ) {
        let mut parts = Parts::of(&of, &rows, options);
        lies.iter().for_each(|lie| lie.tell(&mut parts));
        let anchor = parts.anchor();
        let source = Arc::new(std::mem::take(&mut parts.blobs));
        let largest = largest(|| {
            if let Ok(reader) = Reader::from_anchor(source, &anchor) {
                read_all(&reader);
            }
        });
        prop_assert!(largest < ALLOCATION_MAX, "{} bytes were asked for", largest);
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn edits_of_lies_are_errors_and_never_panics(
        (of, rows) in tables(1..20),
        options in options(),
        lies in lies(),
        entries in vec(any::<sample::Index>(), 1..4),
    ) {
        let mut parts = Parts::of(&of, &rows, options);
        lies.iter().for_each(|lie| lie.tell(&mut parts));
        let anchor = parts.anchor();
        let source = Arc::new(parts.blobs.clone());
        let largest = largest(|| {
            if let Ok(reader) = Reader::from_anchor(source.clone(), &anchor) {
                edit_all(&reader, &source, &mut parts, (&of, &rows), &entries, options);
            }
        });
        prop_assert!(largest < ALLOCATION_MAX, "{} bytes were asked for", largest);
    }
}

/// Replaces each field of some entries by values of the rows, and makes a version of it.
fn edit_all(
    reader: &Reader,
    source: &Arc<Vec<u8>>,
    parts: &mut Parts,
    (of, rows): (&Type, &[Value]),
    entries: &[sample::Index],
    options: rntuple::WriteOptions,
) {
    let Ok(mut appender) = Appender::resume(reader, options) else { return };
    let count = appender.entries().min(rows.len() as u64) as usize;
    if count == 0 {
        return;
    }
    let mut entries: Vec<u64> = entries.iter().map(|at| at.index(count) as u64).collect();
    entries.sort_unstable();
    entries.dedup();
    for (name, of) in members_of(of) {
        let values = entries.iter().map(|&at| rows[rows.len() - 1 - at as usize].member(name));
        let values: Vec<Value> = values.map(|value| value.unwrap().clone()).collect();
        // Later edits read what earlier ones wrote.
        let bytes = parts.blobs.clone();
        let _ = appender.replace(parts, &bytes, name, &entries, &array_of(of, &values));
    }
    let _ = appender.append(parts, &array_of(of, rows));
    let entries = appender.entries();
    if let Ok(version) = appender.finish_version(parts, &**source) {
        assert_eq!(version.entries, entries);
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn a_flipped_byte_gives_the_truth_or_an_error(
        (of, rows) in tables(1..20),
        options in options(),
        flips in vec((any::<sample::Index>(), 1..=255_u8), 40),
    ) {
        let mut parts = Parts::of(&of, &rows, options);
        let anchor = parts.anchor();
        let truth: Vec<String> = rows_of(&Reader::from_anchor(Arc::new(parts.blobs.clone()), &anchor).unwrap())
            .into_iter().map(Option::unwrap).collect();
        for (place, bits) in flips {
            let mut damaged = parts.blobs.clone();
            damaged[place.index(parts.blobs.len())] ^= bits;
            let Ok(reader) = Reader::from_anchor(Arc::new(damaged), &anchor) else { continue };
            for (read, truth) in rows_of(&reader).iter().zip(&truth) {
                prop_assert!(read.as_ref().is_none_or(|read| read == truth));
            }
        }
    }

    #[test]
    fn a_truncated_file_gives_the_truth_or_an_error(
        (of, rows) in tables(1..20),
        options in options(),
        lengths in vec(any::<sample::Index>(), 10),
    ) {
        // The envelopes come first here, so that only pages are lost.
        let parts = Parts::of(&of, &rows, options);
        let pages = parts.blobs.clone();
        let (anchor, metadata) = parts.metadata();
        let open = |length| {
            let file = [&metadata, &pages[..length]].concat();
            Reader::from_anchor(Arc::new(file), &anchor).unwrap()
        };
        let truth = rows_of(&open(pages.len()));
        for length in lengths {
            for (read, truth) in rows_of(&open(length.index(pages.len()))).iter().zip(&truth) {
                prop_assert!(read.is_none() || read == truth);
            }
        }
    }
}

impl Parts {
    /// The envelopes alone, for a file in which the pages follow them, and the anchor.
    fn metadata(mut self) -> (Anchor, Vec<u8>) {
        self.blobs = vec![0; 100];
        let mut draft = self.clone();
        draft.anchor();
        // Numbers have fixed sizes, so the envelopes are as long with the right ones.
        let clusters = self.page_lists.iter_mut().flat_map(|list| &mut list.clusters);
        let columns = clusters.flat_map(|cluster| &mut cluster.columns);
        for page in columns.flat_map(|column| &mut column.pages) {
            page.locator.offset += draft.blobs.len() as u64;
        }
        let anchor = self.anchor();
        assert_eq!(self.blobs.len(), draft.blobs.len());
        (anchor, self.blobs)
    }
}

/// Each entry as text, read on its own; none where that is an error.
fn rows_of(reader: &Reader) -> Vec<Option<String>> {
    let all = reader.select_all();
    let row = |entry| {
        let array = reader.read(&all, entry..entry + 1).ok()?;
        Some(format!("{:?}", array.value(0).ok()?))
    };
    (0..reader.entries()).map(row).collect()
}

/// Three entries and nothing to say how many items each has: a read of one entry asked for 2^40. As an array
/// they cost nothing; a value would spell them out.
#[test]
fn records_without_members_are_counted_and_too_many_are_not_spelled_out() {
    let of = Type::Record {
        class: String::new(),
        members: vec![("x".to_owned(), Type::Primitive(rntuple::Primitive::Int32))],
    };
    let row = Value::Record(vec![("x".to_owned(), Value::Int(1))]);
    for (size, is_shown) in [(4, true), (1 << 40, false), (1 << 58, false)] {
        let mut parts = Parts::of(&of, &vec![row.clone(); 3], rntuple::WriteOptions::default());
        let field = |structure, parent, repetition| rntuple::Field {
            structure,
            parent,
            repetition,
            name: "empty".to_owned(),
            ..parts.header.schema.fields[0].clone()
        };
        let fields = [field(Structure::Leaf, 1, Some(size)), field(Structure::Record, 1, None)];
        parts.header.schema.fields.extend(fields);
        let anchor = parts.anchor();
        let reader = Reader::from_anchor(Arc::new(parts.blobs), &anchor).unwrap();
        let array = reader.read(&reader.select_all(), 0..3).unwrap();
        assert_eq!(array.member("empty").unwrap().len(), 3);
        assert_eq!(array.value(2).is_ok(), is_shown, "{size}");
        read_all(&reader);
    }
}

/// Each of the lists was within a bound of its own, so a value of a few bytes took gigabytes.
#[test]
fn lists_of_records_without_members_share_one_bound() {
    let value = |lists: i64, items: i64| {
        let list = |ends: Vec<i64>, content: Array| Array::List {
            offsets: bytes_of(ends),
            content: Box::new(content),
            optional: false,
        };
        let length = (lists * items) as usize;
        let empty = Array::Record { length, members: vec![] };
        let inner = list((0..=lists).map(|list| list * items).collect(), empty);
        list(vec![0, lists], inner).value(0)
    };
    assert!(value(2, 1 << 10).is_ok());
    assert!(value(3, 1 << 19).is_err());
}

/// The types of a schema with these records besides the first field: parent, name and name of the type.
fn with_records(records: &[(u32, &str, &str)]) -> Reader {
    let of = Type::Record {
        class: String::new(),
        members: vec![("first".to_owned(), Type::Primitive(rntuple::Primitive::Int32))],
    };
    let mut parts = Parts::of(&of, &[], rntuple::WriteOptions::default());
    let field = |(parent, name, type_name): &(u32, &str, &str)| rntuple::Field {
        structure: Structure::Record,
        parent: *parent,
        name: (*name).to_owned(),
        type_name: (*type_name).to_owned(),
        ..parts.header.schema.fields[0].clone()
    };
    let fields: Vec<_> = records.iter().map(field).collect();
    parts.header.schema.fields.extend(fields);
    let anchor = parts.anchor();
    Reader::from_anchor(Arc::new(parts.blobs), &anchor).unwrap()
}

#[test]
fn a_member_that_a_base_class_hides_has_a_name_of_its_own() {
    let records =
        [(1, "d", "D"), (1, ":_0", "B"), (2, ":_0", "A"), (3, "x", ""), (2, "x", ""), (1, "y", "")];
    let members = with_records(&records).members();
    let Type::Record { members, .. } = &members[1].1 else { panic!("{members:?}") };
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["A::x", "x", "y"]);
}

/// A header of a megabyte took gigabytes: each inherited member had the names of its base classes.
#[test]
fn long_names_of_base_classes_take_no_memory_for_each_member() {
    let long = "B".repeat(1 << 20);
    let of = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
        let mut records = vec![(1, "d", "D"), (1, ":_0", &*long), (1, ":_1", &*long)];
        for base in [2, 3] {
            records.extend(names.iter().map(|name| (base, &**name, "")));
        }
        with_records(&records)
    };
    // All have the name of their base class in front, which is 16 MiB in all.
    assert_eq!(of(8).members().len(), 2);
    let refused = of(9);
    assert_eq!((refused.members().len(), &*refused.ignored()[0].0), (1, "d"));
}

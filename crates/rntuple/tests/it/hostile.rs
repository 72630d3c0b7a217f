//! Files with false metadata: reading yields an array or an error, without a panic and without memory that
//! the bytes of the file do not justify.
//!
//! Checksums are right throughout, so that false numbers reach the code behind the checks.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample};

use rntuple::{Appender, ColumnType, Reader, Structure, Type, Value};

use crate::allocations::largest;
use crate::parts::{Parts, read_all};
use crate::round_trips::{members_of, options, tables};
use crate::values::{array_of, cases};

/// Far more than reading small files takes, and far less than the false numbers claim. Memory that is never
/// touched counts too.
const ALLOCATION_MAX: usize = 3 << 30;

/// A change of one number.
#[derive(Clone, Copy, Debug)]
struct Falsehood {
    what: u8,
    places: [sample::Index; 3],
    number: u64,
}

fn falsehoods() -> impl Strategy<Value = Vec<Falsehood>> {
    let odd = [0, 1, 2, 3, 7, 64, 1000, 1 << 20, 1 << 31, 1 << 32, 1 << 40, 1 << 55, 1 << 62];
    let numbers = prop_oneof![
        3 => sample::select(odd.to_vec()),
        1 => sample::select(odd.to_vec()).prop_map(|odd: u64| odd.wrapping_sub(1)),
        2 => 0..60_u64,
        1 => any::<u64>(),
    ];
    let falsehood = (0..20_u8, any::<[sample::Index; 3]>(), numbers)
        .prop_map(|(what, places, number)| Falsehood { what, places, number });
    vec(falsehood, 1..4)
}

impl Falsehood {
    fn apply(&self, parts: &mut Parts) {
        match self.what {
            0..=6 => self.falsify_fields(parts),
            7..=9 => self.falsify_groups(parts),
            _ => self.falsify_pages(parts),
        }
    }

    fn falsify_fields(&self, parts: &mut Parts) {
        let Falsehood { what, places, number } = *self;
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

    fn falsify_groups(&self, parts: &mut Parts) {
        let Falsehood { what, places, number } = *self;
        let groups = &mut parts.footer.cluster_groups;
        if groups.is_empty() {
            return;
        }
        let group = places[0].index(groups.len());
        let clusters = &mut parts.page_lists[group].clusters;
        let cluster = places[1].index(clusters.len());
        match what {
            // Both numbers must agree, or the reader refuses them at once.
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

    fn falsify_pages(&self, parts: &mut Parts) {
        let Falsehood { what, places, number } = *self;
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
            // Bytes of the page: offsets, tags, compressed data.
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

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn reading_false_metadata_never_panics(
        (of, rows) in tables(0..20),
        options in options(),
        falsehoods in falsehoods(),
    ) {
        let mut parts = Parts::of(&of, &rows, options);
        falsehoods.iter().for_each(|falsehood| falsehood.apply(&mut parts));
        let anchor = parts.anchor();
        let source = Arc::new(std::mem::take(&mut parts.blobs));
        let largest = largest(|| {
            if let Ok(reader) = Reader::from_anchor(source, &anchor) {
                read_all(&reader);
            }
        });
        prop_assert!(largest < ALLOCATION_MAX, "{} bytes were allocated at once", largest);
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn edits_over_false_metadata_never_panic(
        (of, rows) in tables(1..20),
        options in options(),
        falsehoods in falsehoods(),
        entries in vec(any::<sample::Index>(), 1..4),
    ) {
        let mut parts = Parts::of(&of, &rows, options);
        falsehoods.iter().for_each(|falsehood| falsehood.apply(&mut parts));
        let anchor = parts.anchor();
        let source = Arc::new(parts.blobs.clone());
        let largest = largest(|| {
            if let Ok(reader) = Reader::from_anchor(source.clone(), &anchor) {
                edit_all(&reader, &source, &mut parts, (&of, &rows), &entries, options);
            }
        });
        prop_assert!(largest < ALLOCATION_MAX, "{} bytes were allocated at once", largest);
    }
}

/// Replaces each field of some entries by values of the rows, and writes a version.
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
        // Later edits read pages that earlier ones wrote.
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
    fn reading_a_flipped_byte_yields_the_written_values_or_an_error(
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
    fn reading_a_truncated_file_yields_the_written_values_or_an_error(
        (of, rows) in tables(1..20),
        options in options(),
        lengths in vec(any::<sample::Index>(), 10),
    ) {
        // The envelopes precede the pages, so that truncation removes only pages.
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

/// Each entry as text, read on its own; `None` if that fails.
fn rows_of(reader: &Reader) -> Vec<Option<String>> {
    let all = reader.select_all();
    let row = |entry| {
        let array = reader.read(&all, entry..entry + 1).ok()?;
        Some(format!("{:?}", array.value(0).ok()?))
    };
    (0..reader.entries()).map(row).collect()
}

#[test]
fn a_page_with_a_checksum_that_ends_beyond_2_to_the_64_is_corrupt() {
    let of = Type::Record {
        class: String::new(),
        members: vec![("x".to_owned(), Type::Primitive(rntuple::Primitive::Int32))],
    };
    let row = Value::Record(vec![("x".to_owned(), Value::Int(1))]);
    let mut parts = Parts::of(&of, &[row], rntuple::WriteOptions::default());
    let page = &mut parts.page_lists[0].clusters[0].columns[0].pages[0];
    (page.locator.offset, page.locator.size) = (0, u64::MAX);
    assert!(page.checksum);
    let anchor = parts.anchor();
    let reader = Reader::from_anchor(Arc::new(parts.blobs), &anchor).unwrap();
    let error = reader.read(&reader.select_all(), 0..1).unwrap_err();
    assert_eq!(error.kind(), rntuple::ErrorKind::Corrupt);
}

//! Round trips: entries of any types read back equal, for any encoding, page size and cluster size.

use std::fs::File;
use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample};

use rntuple::{Compression, Reader, Type, Value, WriteOptions, Writer};

use crate::values::{array_of, assert_agree, cases, members, values};

/// Small sizes, so that values cross the boundaries of pages and clusters.
pub(crate) fn options() -> impl Strategy<Value = WriteOptions> {
    let compressions =
        [Compression::None, Compression::Lz4 { level: 1 }, Compression::Zstd { level: 1 }];
    let page_sizes = sample::select(&[1, 8, 13, 24, 64, 4096][..]);
    let cluster_sizes = sample::select(&[1, 100, 1000, 1 << 20][..]);
    (page_sizes, cluster_sizes, sample::select(compressions.to_vec())).prop_map(
        |(page_size, cluster_size, compression)| WriteOptions {
            page_size,
            cluster_size,
            compression,
        },
    )
}

/// Top-level fields with some entries.
pub(crate) fn tables(entries: std::ops::Range<usize>) -> impl Strategy<Value = (Type, Vec<Value>)> {
    members().prop_flat_map(move |members| {
        let of = Type::Record { class: String::new(), members };
        let rows = vec(values(&of), entries.clone());
        (Just(of), rows)
    })
}

pub(crate) fn members_of(of: &Type) -> &[(String, Type)] {
    match of {
        Type::Record { members, .. } => members,
        _ => panic!("a table is of records"),
    }
}

/// Fails unless the reader has these rows.
pub(crate) fn assert_holds(reader: &Reader, of: &Type, rows: &[Value]) {
    assert_eq!(reader.members(), members_of(of));
    assert_eq!(reader.entries(), rows.len() as u64);
    let array = reader.read(&reader.select_all(), 0..reader.entries()).unwrap();
    for (entry, row) in rows.iter().enumerate() {
        assert_agree(of, row, &array.value(entry).unwrap());
    }
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn values_and_arrays_read_back_equal((of, rows) in tables(0..40), options in options(), cut: sample::Index, range: (sample::Index, sample::Index)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.root");
        let mut writer = Writer::with_members(&path, "t", members_of(&of), options).unwrap();
        // The first rows one by one, the others at once, in two arrays.
        let cut = cut.index(rows.len() + 1);
        let middle = cut + (rows.len() - cut) / 2;
        rows[..cut].iter().for_each(|row| writer.append_value(row).unwrap());
        writer.append(&array_of(&of, &rows[cut..middle])).unwrap();
        writer.append(&array_of(&of, &rows[middle..])).unwrap();
        writer.finish().unwrap();

        let reader = Reader::open(Arc::new(File::open(&path).unwrap()), "t").unwrap();
        assert_holds(&reader, &of, &rows);
        check_part(&reader, &of, &rows, range);
    }

    #[test]
    fn taking_and_concatenating_arrays_keeps_values((of, rows) in tables(1..20), picked in vec(any::<sample::Index>(), 0..30), cut: sample::Index) {
        let whole = array_of(&of, &rows);
        let positions: Vec<usize> = picked.iter().map(|index| index.index(rows.len())).collect();
        let taken = whole.take(&positions).unwrap();
        taken.validate(&of).unwrap();
        for (at, &position) in positions.iter().enumerate() {
            prop_assert_eq!(format!("{:?}", taken.value(at)), format!("{:?}", whole.value(position)));
        }
        let (first, second) = rows.split_at(cut.index(rows.len()));
        let parts = [array_of(&of, first), array_of(&of, second), array_of(&of, &[])];
        let joined = rntuple::Array::concatenate(&parts).unwrap();
        joined.validate(&of).unwrap();
        for at in 0..rows.len() {
            prop_assert_eq!(format!("{:?}", joined.value(at)), format!("{:?}", whole.value(at)));
        }
    }
}

/// Any range of entries and any one field, with and without a page cache.
fn check_part(reader: &Reader, of: &Type, rows: &[Value], range: (sample::Index, sample::Index)) {
    let bounds = [range.0, range.1].map(|index| index.index(rows.len() + 1));
    let (start, end) = (bounds[0].min(bounds[1]), bounds[0].max(bounds[1]));
    for (name, field) in members_of(of) {
        let projection = reader.select(&[name]).unwrap();
        let array = reader.read(&projection, start as u64..end as u64).unwrap();
        assert_eq!(array.len(), end - start);
        for (at, row) in rows[start..end].iter().enumerate() {
            let read = array.value(at).unwrap();
            assert_agree(field, row.member(name).unwrap(), read.member(name).unwrap());
        }
    }
}

#[test]
fn entries_beyond_the_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.root");
    let of = [("x".to_owned(), Type::Primitive(rntuple::Primitive::Int32))];
    Writer::with_members(&path, "t", &of, WriteOptions::default()).unwrap().finish().unwrap();
    let reader = Reader::open(Arc::new(File::open(&path).unwrap()), "t").unwrap();
    let all = reader.select_all();
    assert_eq!(reader.read(&all, 0..0).unwrap().len(), 0);
    for (start, end) in [(0, 1), (1, 1), (u64::MAX, u64::MAX), (1, 0)] {
        let error = reader.read(&all, start..end).unwrap_err();
        assert_eq!(error.kind(), rntuple::ErrorKind::NotFound);
    }
}

/// Empty buffers from other languages may have pointers that are not aligned.
#[test]
fn an_empty_buffer_needs_no_alignment() {
    let empty = bytes::Bytes::from_static(&[0; 9]).slice(1..1);
    let of = Type::Primitive(rntuple::Primitive::Float64);
    let array = rntuple::Array::Primitive { primitive: rntuple::Primitive::Float64, values: empty };
    array.validate(&of).unwrap();
    assert_eq!(rntuple::values_of::<f64>(&bytes::Bytes::new()).unwrap(), &[] as &[f64]);
}

/// ROOT refuses an RNTuple whose name has a blank; this crate once wrote such names.
#[test]
fn names_that_root_refuses_are_refused() {
    let of = |field: &str| [(field.to_owned(), Type::Primitive(rntuple::Primitive::Int32))];
    let folder = tempfile::tempdir().unwrap();
    for name in ["", "a b", "a.b", "a/b", "a\\b", "a\nb"] {
        for (case, ntuple, field) in [("ntuple", name, "x"), ("field", "t", name)] {
            let path = folder.path().join(format!("{}.root", name.len()));
            let written = Writer::with_members(&path, ntuple, &of(field), WriteOptions::default());
            assert_eq!(
                written.err().unwrap().kind(),
                rntuple::ErrorKind::Invalid,
                "{case} {name:?}"
            );
            std::fs::remove_file(path).unwrap();
        }
    }
}

//! Files written by ROOT. They are not part of the repository: `FEMTOBARN_DATA` names their folder; without it these
//! tests do nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use rntuple::tfile::{KeyChain, anchors, list_keys};
use rntuple::{
    Anchor, ByteSource, EnvelopeKind, Footer, Header, PageCache, PageList, Reader, Schema, Value,
    envelope_checksum, read_envelope,
};

/// File (as far as its format version), RNTuple, entries, top-level fields; as uproot 5 and
/// ROOT 6.40 read them.
const FACTS: &[(&str, &str, u64, &str)] = &[
    (
        "Run2012BC_DoubleMuParked_Muons_1000evts",
        "Events",
        1000,
        "_collection0 Muon_pt Muon_eta Muon_phi Muon_mass Muon_charge nMuon",
    ),
    (
        "ntpl001_staff",
        "Staff",
        3354,
        "Category Flag Age Service Children Grade Step Hrweek Cost Division Nation",
    ),
    ("rntviewer-testfile-multiple-rntuples-v1-0-0-0", "A", 100, "f"),
    ("rntviewer-testfile-multiple-rntuples-v1-0-0-0", "B", 100, "g"),
    ("test_extension_columns", "ntuple", 600, "int_field float_field intvec_field"),
    ("test_index_multicluster", "ntuple", 200, "int_vector"),
    ("test_multiple_cluster_groups", "ntuple", 1000, "one int_vector"),
    ("test_nested_structs", "ntuple", 10, "my_struct"),
    (
        "test_stl_containers",
        "ntuple",
        5,
        "string vector_int32 array_float vector_vector_int32 vector_string vector_vector_string \
         variant_int32_string vector_variant_int64_string tuple_int32_string pair_int32_string \
         vector_tuple_int32_string lorentz_vector array_lv",
    ),
];

fn folder() -> Option<PathBuf> {
    std::env::var_os("FEMTOBARN_DATA").map(PathBuf::from)
}

fn real_files() -> Vec<(String, File)> {
    let Some(folder) = folder() else { return Vec::new() };
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "root"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into(), File::open(path).unwrap()))
        .collect()
}

struct Metadata {
    header: Header,
    schema: Schema,
    footer: Footer,
    page_lists: Vec<PageList>,
}

fn metadata(source: &dyn ByteSource, anchor: &Anchor) -> Metadata {
    let read = |link, kind| read_envelope(source, link, kind, anchor.max_key_size).unwrap();
    let (header, checksum) = Header::decode(&read(&anchor.header, EnvelopeKind::Header)).unwrap();
    let footer = Footer::decode(&read(&anchor.footer, EnvelopeKind::Footer)).unwrap();
    assert_eq!(footer.header_checksum, checksum);
    let mut schema = header.schema.clone();
    schema.extend(&footer.extension).unwrap();
    let page_lists: Vec<_> = footer
        .cluster_groups
        .iter()
        .map(|group| PageList::decode(&read(&group.page_list, EnvelopeKind::PageList)).unwrap())
        .collect();
    assert!(page_lists.iter().all(|list| list.header_checksum == checksum));
    Metadata { header, schema, footer, page_lists }
}

#[test]
fn names_entries_and_fields_are_those_that_uproot_reads() {
    let mut found = BTreeMap::new();
    for (file, source) in real_files() {
        for (name, anchor) in anchors(&source).unwrap() {
            let Metadata { schema, footer, .. } = metadata(&source, &anchor);
            let top = schema.fields.iter().enumerate();
            let top = top.filter(|(id, field)| field.parent as usize == *id);
            let fields: Vec<&str> = top.map(|(_, field)| field.name.as_str()).collect();
            let stem = file.trim_end_matches(".root").trim_end_matches("_rntuple_v1-0-0-0");
            found.insert((stem.to_owned(), name), (footer.entries(), fields.join(" ")));
        }
    }
    for (file, name, entries, fields) in FACTS {
        let key = (file.to_string(), name.to_string());
        if let Some(facts) = found.get(&key) {
            assert_eq!(*facts, (*entries, fields.to_string()), "{key:?}");
        }
    }
}

/// Metadata of ROOT are encoded to the same bytes, so the codecs lose nothing, except lists that later
/// versions of the format append to the footer.
#[test]
fn envelopes_encode_to_the_bytes_that_root_wrote() {
    for (file, source) in real_files() {
        for (name, anchor) in anchors(&source).unwrap() {
            let found = metadata(&source, &anchor);
            let read =
                |link, kind| read_envelope(&source, link, kind, anchor.max_key_size).unwrap();
            let header = read(&anchor.header, EnvelopeKind::Header);
            assert_eq!(found.header.encode(), header, "header of {name} in {file}");
            assert_eq!(envelope_checksum(&header), found.footer.header_checksum);
            let footer = read(&anchor.footer, EnvelopeKind::Footer);
            if anchor.version == [1, 0, 0, 0] {
                assert_eq!(found.footer.encode(), footer, "footer of {name} in {file}");
            }
            for (list, group) in found.page_lists.iter().zip(&found.footer.cluster_groups) {
                let bytes = read(&group.page_list, EnvelopeKind::PageList);
                assert_eq!(list.encode(), bytes, "page list of {name} in {file}");
            }
        }
    }
}

#[test]
fn the_keys_of_real_files_are_chains_that_lead_to_every_listed_object() {
    for (file, source) in real_files() {
        let chain: Vec<_> = KeyChain::of_file(&source).unwrap().map(Result::unwrap).collect();
        for key in list_keys(&source).unwrap() {
            assert!(chain.iter().any(|(at, _)| *at == key.position), "{} in {file}", key.path);
        }
    }
}

/// Fields that were added after the first and after the second cluster, of 200 entries each.
#[test]
fn fields_that_root_added_later_read_as_zeros_before() {
    let of_this = |(name, _): &(String, File)| name.starts_with("test_extension_columns");
    let Some((_, file)) = real_files().into_iter().find(of_this) else { return };
    let reader = Reader::open(Arc::new(file), "ntuple").unwrap();
    let array = reader.read(&reader.select_all(), 0..600).unwrap();
    for entry in 0..600_i64 {
        let n = entry % 200;
        let list = if entry < 400 { vec![] } else { vec![Value::Int(n), Value::Int(n + 1)] };
        let members = [
            ("int_field", Value::Int(n)),
            ("float_field", Value::Float(if entry < 200 { 0.0 } else { n as f64 + 0.5 })),
            ("intvec_field", Value::List(list)),
        ];
        let expected = members.map(|(name, value)| (name.to_owned(), value)).to_vec();
        assert_eq!(array.value(entry as usize).unwrap(), Value::Record(expected));
    }
}

#[test]
fn single_entries_equal_those_read_in_ranges() {
    for (name, file) in real_files() {
        let file = Arc::new(file);
        for (rntuple, anchor) in anchors(&*file).unwrap() {
            let reader = Reader::from_anchor(file.clone(), &anchor).unwrap();
            let cache = Arc::new(PageCache::new(1 << 20));
            let reader = reader.with_cache(cache, 1);
            let all = reader.select_all();
            let array = reader.read(&all, 0..reader.entries()).unwrap();
            for entry in (0..reader.entries()).step_by(7) {
                let alone = reader.read(&all, entry..entry + 1).unwrap().value(0).unwrap();
                let among = array.value(entry as usize).unwrap();
                // As text, since NaN is not equal to itself.
                assert_eq!(format!("{alone:?}"), format!("{among:?}"), "{name} {rntuple} {entry}");
            }
        }
    }
}

//! Old versions with false metadata: a revision makes a new version of them, or fails with an error.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample::Index};

use rntuple::{
    Anchor, Compaction, ErrorKind, Footer, NewMember, PageList, Primitive, Reader, Type,
    WriteOptions, compact, complete, evolve,
};

use crate::evolution::{event, number, record, tracks, written};
use crate::values::cases;

/// A change of a page list.
#[derive(Clone, Debug)]
enum Damage {
    Elements(Index, Index, u32),
    ElementOffset(Index, Option<u64>),
    Size(Index, Index, u64),
    Entries(u64),
    /// A page whose location is another one.
    Moved(Index, Index, u64),
    /// A column that loses its pages.
    Lost(Index),
    /// A cluster with fewer columns.
    Short(Index),
}

fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0..200u64, Just(1 << 20), Just(1 << 40), Just((1 << 62) - 1), any::<u64>()]
}

fn damages() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    prop_oneof![
        (at(), at(), numbers()).prop_map(|(c, p, n)| Damage::Elements(c, p, n as u32 >> 1)),
        (at(), proptest::option::of(numbers()))
            .prop_map(|(c, n)| Damage::ElementOffset(c, n.map(|n| n >> 2))),
        (at(), at(), numbers()).prop_map(|(c, p, n)| Damage::Size(c, p, n >> 2)),
        numbers().prop_map(|n| Damage::Entries(n >> 9)),
        (at(), at(), 0..3000u64).prop_map(|(c, p, n)| Damage::Moved(c, p, n)),
        at().prop_map(Damage::Lost),
        at().prop_map(Damage::Short),
    ]
}

fn damaged(
    memory: &mut Vec<u8>,
    footer: &rntuple::EnvelopeLink,
    all: &[Damage],
) -> rntuple::EnvelopeLink {
    let bytes = |memory: &[u8], at: &rntuple::Locator| {
        memory[at.offset as usize..][..at.size as usize].to_vec()
    };
    let mut footer = Footer::decode(&bytes(memory, &footer.locator)).unwrap();
    let group = &mut footer.cluster_groups[0];
    let mut page_list = PageList::decode(&bytes(memory, &group.page_list.locator)).unwrap();
    for damage in all {
        let cluster = &mut page_list.clusters[0];
        let columns = cluster.columns.len();
        if columns == 0 {
            break;
        }
        let page = |cluster: &mut rntuple::Cluster,
                    column: &Index,
                    page: &Index,
                    change: &dyn Fn(&mut rntuple::PageLocation)| {
            let pages = &mut cluster.columns[column.index(columns)].pages;
            if !pages.is_empty() {
                let at = page.index(pages.len());
                change(&mut pages[at]);
            }
        };
        match damage {
            Damage::Elements(c, p, n) => page(cluster, c, p, &|page| page.elements = *n),
            Damage::Size(c, p, n) => page(cluster, c, p, &|page| page.locator.size = *n),
            Damage::Moved(c, p, n) => page(cluster, c, p, &|page| {
                page.locator.offset = *n;
                page.checksum = false;
            }),
            Damage::ElementOffset(c, n) => cluster.columns[c.index(columns)].element_offset = *n,
            Damage::Entries(n) => {
                cluster.entries = *n;
                group.entry_span = *n;
            }
            Damage::Lost(c) => cluster.columns[c.index(columns)].pages.clear(),
            Damage::Short(c) => cluster.columns.truncate(c.index(columns)),
        }
    }
    group.clusters = 1;
    page_list.clusters.truncate(1);
    group.page_list = write(memory, &page_list.encode());
    footer.cluster_groups.truncate(1);
    write(memory, &footer.encode())
}

fn write(memory: &mut Vec<u8>, bytes: &[u8]) -> rntuple::EnvelopeLink {
    let locator = rntuple::Locator { offset: memory.len() as u64, size: bytes.len() as u64 };
    memory.extend_from_slice(bytes);
    rntuple::EnvelopeLink { length: locator.size, locator }
}

/// Adds and changes members at all depths.
fn change() -> Vec<NewMember> {
    let track = record(&[
        ("pt", number(Primitive::Float64)),
        ("hits", Type::List(number(Primitive::Float32).into())),
        ("new", Type::List(Type::String.into())),
    ]);
    vec![
        NewMember::same("id", number(Primitive::Float64)),
        NewMember::same("tracks", Type::List(track.into())),
        NewMember::added("weight", number(Primitive::Float64), None),
    ]
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn false_page_lists_yield_a_new_version_or_an_error(all in vec(damages(), 1..4)) {
        let rows: Vec<_> = (0..60).map(event).collect();
        let options = WriteOptions { page_size: 64, ..Default::default() };
        let (mut memory, header, footer) = written(&tracks(), &rows, options);
        let footer = damaged(&mut memory, &footer, &all);
        let source = Arc::new(std::mem::take(&mut memory));
        let anchor = Anchor::new(header, footer);
        let Ok(reader) = Reader::from_anchor(source, &anchor) else {
            return Ok(());
        };
        let dead = [1..3, 50..51];
        let mut results = vec![
            evolve(&reader, &mut memory, &change(), options).map(|_| ()),
            complete(&reader, &mut memory, &anchor, &dead, options).map(|_| ()),
            complete(&reader, &mut memory, &anchor, &[], options).map(|_| ()),
        ];
        for (dead, all) in [(&dead[..], false), (&[], true)] {
            let compaction = Compaction { options, dead, all };
            results.push(
                compact(&reader, &mut memory, footer, &compaction, &mut |_| ()).map(|_| ()),
            );
        }
        for error in results.into_iter().filter_map(Result::err) {
            prop_assert_ne!(error.kind(), ErrorKind::Io);
        }
        prop_assert!(memory.len() < 1 << 26, "{} bytes of 60 entries", memory.len());
    }
}

#[test]
fn default_arrays_of_too_many_items_are_refused() {
    let huge = Type::Array { item: number(Primitive::Float64).into(), size: 1 << 50 };
    let member = NewMember::added("huge", huge, None);
    let error = rntuple::plan(&tracks(), &[member]).unwrap_err();
    assert!(error.to_string().contains("have no default"), "{error}");
}

//! Any metadata are decoded to the values that were encoded.

use proptest::prelude::*;
use proptest::{collection::vec, option};

use rntuple::{
    AliasColumn, Anchor, Cluster, ClusterGroup, Column, ColumnPages, ColumnType, EnvelopeKind,
    EnvelopeLink, ErrorKind, ExtraTypeInfo, Field, Footer, Header, Locator, PageList, PageLocation,
    Schema, Structure, open_envelope, seal_envelope,
};

fn locators() -> impl Strategy<Value = Locator> {
    let sizes = prop_oneof![0..1u64 << 31, 1u64 << 31..1 << 62];
    (0..1u64 << 62, sizes).prop_map(|(offset, size)| Locator { offset, size })
}

fn links() -> impl Strategy<Value = EnvelopeLink> {
    (any::<u64>(), locators()).prop_map(|(length, locator)| EnvelopeLink { length, locator })
}

fn structures() -> impl Strategy<Value = Structure> {
    use Structure::*;
    prop::sample::select(vec![Leaf, Collection, Record, Variant, Streamer])
}

fn fields() -> impl Strategy<Value = Field> {
    let numbers = (any::<u32>(), any::<u32>(), structures());
    let texts = (".{0,20}", ".{0,20}", ".{0,20}", ".{0,20}");
    let optional = (option::of(any::<u64>()), any::<bool>(), option::of(any::<u32>()));
    (numbers, texts, optional).prop_map(|(numbers, texts, optional)| Field {
        version: numbers.0,
        type_version: numbers.1,
        parent: 0,
        structure: numbers.2,
        name: texts.0,
        type_name: texts.1,
        type_alias: texts.2,
        description: texts.3,
        repetition: optional.0,
        source: optional.1.then_some(0),
        type_checksum: optional.2,
    })
}

fn columns() -> impl Strategy<Value = Column> {
    let range = (-1e300..0.0, 0.0..1e300);
    (0u16..64, any::<u16>(), any::<u16>(), option::of(any::<i64>()), option::of(range)).prop_map(
        |(code, bits, representation, first_element, range)| Column {
            column_type: ColumnType::from_code(code),
            bits,
            field: 0,
            representation,
            first_element,
            range,
        },
    )
}

/// All identifiers refer to field 0 and column 0, which exist.
fn schemas() -> impl Strategy<Value = Schema> {
    let extra = (any::<u32>(), any::<u32>(), ".{0,9}", vec(any::<u8>(), 0..40)).prop_map(
        |(content_id, type_version, type_name, content)| ExtraTypeInfo {
            content_id,
            type_version,
            type_name,
            content,
        },
    );
    let alias = AliasColumn { physical: 0, field: 0 };
    (vec(fields(), 1..6), vec(columns(), 1..6), vec(Just(alias), 0..3), vec(extra, 0..2))
        .prop_map(|(fields, columns, aliases, extra)| Schema { fields, columns, aliases, extra })
}

fn groups() -> impl Strategy<Value = ClusterGroup> {
    (0..1u64 << 62, 0..1u64 << 62, any::<u32>(), links()).prop_map(
        |(min_entry, entry_span, clusters, page_list)| ClusterGroup {
            min_entry,
            entry_span,
            clusters,
            page_list,
        },
    )
}

fn column_pages() -> impl Strategy<Value = ColumnPages> {
    let page = (1..1u32 << 31, any::<bool>(), locators())
        .prop_map(|(elements, checksum, locator)| PageLocation { elements, checksum, locator });
    let active =
        (0..1u64 << 62, any::<u32>(), vec(page, 0..4)).prop_map(|(offset, compression, pages)| {
            ColumnPages { element_offset: Some(offset), compression, pages }
        });
    prop_oneof![9 => active, 1 => Just(ColumnPages::default())]
}

fn clusters() -> impl Strategy<Value = Cluster> {
    (0..1u64 << 62, 0..1u64 << 56, vec(column_pages(), 0..4))
        .prop_map(|(first_entry, entries, columns)| Cluster { first_entry, entries, columns })
}

proptest! {
    #[test]
    fn encoded_headers_decode_unchanged(name in ".{0,30}", description in ".{0,30}", schema in schemas()) {
        let header = Header { name, description, writer: "test".into(), schema };
        let bytes = header.encode();
        let (decoded, checksum) = Header::decode(&bytes).unwrap();
        prop_assert_eq!(decoded, header);
        prop_assert_eq!(checksum, rntuple::envelope_checksum(&bytes));
    }

    #[test]
    fn encoded_footers_decode_unchanged(header_checksum: u64, extension in schemas(), cluster_groups in vec(groups(), 0..5)) {
        let footer = Footer { header_checksum, extension, cluster_groups };
        prop_assert_eq!(Footer::decode(&footer.encode()).unwrap(), footer);
    }

    #[test]
    fn encoded_page_lists_decode_unchanged(header_checksum: u64, clusters in vec(clusters(), 0..4)) {
        let list = PageList { header_checksum, clusters };
        prop_assert_eq!(PageList::decode(&list.encode()).unwrap(), list);
    }

    #[test]
    fn encoded_anchors_decode_unchanged(minor: u16, header in links(), footer in links(), max_key_size: u64) {
        let anchor = Anchor { version: [1, 0, minor, 0], header, footer, max_key_size };
        prop_assert_eq!(Anchor::decode(&anchor.encode()).unwrap(), anchor);
    }

    /// The checksum is right, so that the damage reaches the decoders.
    #[test]
    fn damaged_payloads_never_cause_a_panic(schema in schemas(), clusters in vec(clusters(), 0..3), at: prop::sample::Index, word: u32) {
        let header = Header { schema: schema.clone(), ..Header::default() }.encode();
        let _ = Header::decode(&damage(EnvelopeKind::Header, &header, at, word));
        let footer = Footer { extension: schema, ..Footer::default() }.encode();
        let _ = Footer::decode(&damage(EnvelopeKind::Footer, &footer, at, word));
        let list = PageList { header_checksum: 0, clusters }.encode();
        let _ = PageList::decode(&damage(EnvelopeKind::PageList, &list, at, word));
    }
}

fn damage(kind: EnvelopeKind, envelope: &[u8], at: prop::sample::Index, word: u32) -> Vec<u8> {
    let mut payload = open_envelope(kind, envelope).unwrap().to_vec();
    let start = at.index(payload.len() - 3);
    payload[start..start + 4].copy_from_slice(&word.to_le_bytes());
    seal_envelope(kind, &payload)
}

/// The anchor of an RNTuple that ROOT 6.35 wrote.
#[test]
fn an_anchor_of_root_is_read_and_written() {
    let bytes: Vec<u8> = [
        &[0x40, 0, 0, 0x42, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 1, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0x65, 0, 0, 0, 0, 0, 0, 0, 0xa4],
        &[0, 0, 0, 0, 0, 0, 2, 0xd5, 0, 0, 0, 0, 0, 0, 0, 0x52, 0, 0, 0, 0, 0, 0, 0, 0x94],
        &[0, 0, 0, 0, 0x40, 0, 0, 0, 0x28, 0x42, 0x02, 0x57, 0x8c, 0x9f, 0x48, 0x26],
    ]
    .concat();
    let anchor = Anchor::decode(&bytes).unwrap();
    let link = |offset, size, length| EnvelopeLink { length, locator: Locator { offset, size } };
    assert_eq!(anchor, Anchor::new(link(0x10a, 0x65, 0xa4), link(0x2d5, 0x52, 0x94)));
    assert_eq!(anchor.encode()[..], bytes);
}

#[test]
fn an_anchor_of_a_later_version_is_read_without_its_additions() {
    let anchor = Anchor::new(EnvelopeLink::default(), EnvelopeLink::default());
    let mut members = anchor.encode()[6..70].to_vec();
    members.extend([7; 16]);
    let checksum = twox_hash::XxHash3_64::oneshot(&members).to_be_bytes();
    let bytes = [&[0x40, 0, 0, 0x52, 0, 3][..], &members, &checksum].concat();
    assert_eq!(Anchor::decode(&bytes).unwrap(), anchor);
}

#[test]
fn the_pre_release_of_the_format_is_unsupported() {
    let link = EnvelopeLink::default();
    let anchor = Anchor { version: [0, 2, 0, 0], ..Anchor::new(link, link) };
    assert_eq!(Anchor::decode(&anchor.encode()).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn additions_to_records_and_envelopes_are_ignored() {
    let list = PageList {
        header_checksum: 5,
        clusters: vec![Cluster { first_entry: 3, entries: 4, columns: vec![] }],
    };
    let envelope = list.encode();
    let mut payload = open_envelope(EnvelopeKind::PageList, &envelope).unwrap().to_vec();
    payload.extend([9; 24]);
    let longer = seal_envelope(EnvelopeKind::PageList, &payload);
    assert_eq!(PageList::decode(&longer).unwrap(), list);
    // A record frame of a cluster that is 8 bytes longer, within a list frame that is, too.
    let record = 8 + 12;
    payload.splice(record + 24..record + 24, [1; 8]);
    for (at, size) in [(8, -44i64), (record, 32)] {
        payload[at..at + 8].copy_from_slice(&size.to_le_bytes());
    }
    let longer = seal_envelope(EnvelopeKind::PageList, &payload);
    assert_eq!(PageList::decode(&longer).unwrap(), list);
}

#[test]
fn a_sharded_cluster_is_unsupported() {
    let clusters = vec![Cluster { first_entry: 0, entries: 1 << 56, columns: vec![] }];
    let bytes = PageList { header_checksum: 0, clusters }.encode();
    assert_eq!(PageList::decode(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn references_to_missing_fields_and_columns_are_refused() {
    let sound = crate::sample::schema();
    let mut parent = sound.clone();
    parent.fields[0].parent = 1;
    let mut source = sound.clone();
    source.fields[0].source = Some(1);
    let mut column = sound.clone();
    column.columns[0].field = 1;
    let mut alias = sound.clone();
    alias.aliases.push(AliasColumn { physical: 1, field: 0 });
    for schema in [parent, source, column, alias] {
        let bytes = Header { schema, ..Header::default() }.encode();
        assert_eq!(Header::decode(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn a_tree_deeper_than_the_limit_is_refused() {
    let mut schema = crate::sample::schema();
    for id in 0..1000 {
        let field = Field { parent: id, ..schema.fields[0].clone() };
        schema.fields.push(field);
    }
    assert_eq!(schema.check().unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn an_extension_refers_to_the_header() {
    let mut schema = crate::sample::schema();
    let extension = Schema {
        columns: vec![Column { representation: 1, ..schema.columns[0].clone() }],
        ..Schema::default()
    };
    schema.extend(&extension).unwrap();
    assert_eq!(schema.columns.len(), 2);
}

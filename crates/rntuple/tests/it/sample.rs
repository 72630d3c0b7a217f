//! A small complete file, written with the metadata codecs alone: one RNTuple `numbers` with
//! one field `x`, a 32-bit integer, of the values 0 to 9.

use std::io::Cursor;

use rntuple::tfile::{FileIdentity, FileWriter, Timestamp};
use rntuple::{
    Anchor, BlobSink, Cluster, ClusterGroup, Column, ColumnPages, ColumnType, EnvelopeLink, Field,
    Footer, Header, Locator, PageList, PageLocation, Schema, Structure,
};

pub(crate) const ENTRIES: u64 = 10;

pub(crate) fn time() -> Timestamp {
    Timestamp::from_unix(1_750_000_000)
}

pub(crate) fn identity() -> FileIdentity {
    FileIdentity::new("sample.root", *b"femtobarn-sample", time()).unwrap()
}

pub(crate) fn schema() -> Schema {
    let field = Field {
        version: 0,
        type_version: 0,
        parent: 0,
        structure: Structure::Leaf,
        name: "x".into(),
        type_name: "std::int32_t".into(),
        type_alias: String::new(),
        description: String::new(),
        repetition: None,
        source: None,
        type_checksum: None,
    };
    let column = Column {
        column_type: ColumnType::Int32,
        bits: 32,
        field: 0,
        representation: 0,
        first_element: None,
        range: None,
    };
    Schema { fields: vec![field], columns: vec![column], ..Schema::default() }
}

/// Writes the envelopes and the page of the RNTuple.
pub(crate) fn write_numbers(sink: &mut impl BlobSink) -> Anchor {
    write_numbers_with(sink, |page| page)
}

/// As [`write_numbers`], with the location of the page altered.
pub(crate) fn write_numbers_with(
    sink: &mut impl BlobSink,
    alter: impl FnOnce(PageLocation) -> PageLocation,
) -> Anchor {
    let header = Header {
        name: "numbers".into(),
        description: String::new(),
        writer: "femtobarn test".into(),
        schema: schema(),
    };
    let header = header.encode();
    let checksum = rntuple::envelope_checksum(&header);
    let header = write_envelope(sink, &header);
    let values: Vec<u8> = (0..ENTRIES as i32).flat_map(i32::to_le_bytes).collect();
    let page_checksum = twox_hash::XxHash3_64::oneshot(&values).to_le_bytes();
    let offset = sink.write_blob(&[&values, &page_checksum]).unwrap();
    let page = PageLocation {
        elements: ENTRIES as u32,
        checksum: true,
        locator: Locator { offset, size: values.len() as u64 },
    };
    let columns =
        vec![ColumnPages { element_offset: Some(0), compression: 0, pages: vec![alter(page)] }];
    let clusters = vec![Cluster { first_entry: 0, entries: ENTRIES, columns }];
    let page_list = PageList { header_checksum: checksum, clusters }.encode();
    let page_list = write_envelope(sink, &page_list);
    let group = ClusterGroup { min_entry: 0, entry_span: ENTRIES, clusters: 1, page_list };
    let footer = Footer {
        header_checksum: checksum,
        extension: Schema::default(),
        cluster_groups: vec![group],
    };
    let footer = write_envelope(sink, &footer.encode());
    Anchor::new(header, footer)
}

fn write_envelope(sink: &mut impl BlobSink, envelope: &[u8]) -> EnvelopeLink {
    let size = envelope.len() as u64;
    let offset = sink.write_blob(&[envelope]).unwrap();
    EnvelopeLink { length: size, locator: Locator { offset, size } }
}

/// The whole file.
pub(crate) fn file() -> Vec<u8> {
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), identity()).unwrap();
    let anchor = write_numbers(&mut writer);
    writer.finish(&[("numbers".into(), anchor)], time()).unwrap().into_inner()
}

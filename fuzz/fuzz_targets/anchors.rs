//! Arbitrary bytes as a file: all keys, all anchors, and the metadata that they lead to.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rntuple::tfile::{KeyChain, anchors, list_keys, read_payload};
use rntuple::{
    Anchor, ByteSource, EnvelopeKind, EnvelopeLink, Footer, Header, PageList, Result, read_envelope,
};

/// Page lists read of one file: a footer may name the same one over and over.
const PAGE_LISTS_MAX: usize = 16;
/// Decompressed objects of a file are read up to this size, for speed.
const OBJECT_LENGTH_MAX: u32 = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    let file = bytes.to_vec();
    if let Ok(chain) = KeyChain::of_file(&file) {
        assert!(chain.count() <= file.len(), "every key takes space");
    }
    let Ok(keys) = list_keys(&file) else { return };
    for key in keys.iter().filter(|key| key.length < OBJECT_LENGTH_MAX).take(PAGE_LISTS_MAX) {
        let _ = read_payload(&file, key);
    }
    for (_, anchor) in anchors(&file).unwrap_or_default() {
        let _ = read_rntuple(&file, &anchor);
    }
});

fn read_rntuple(file: &Vec<u8>, anchor: &Anchor) -> Result<()> {
    let (mut header, _) =
        Header::decode(&read(file, anchor, &anchor.header, EnvelopeKind::Header)?)?;
    let footer = Footer::decode(&read(file, anchor, &anchor.footer, EnvelopeKind::Footer)?)?;
    header.schema.extend(&footer.extension)?;
    for group in footer.cluster_groups.iter().take(PAGE_LISTS_MAX) {
        PageList::decode(&read(file, anchor, &group.page_list, EnvelopeKind::PageList)?)?;
    }
    Ok(())
}

fn read(
    file: &dyn ByteSource,
    anchor: &Anchor,
    link: &EnvelopeLink,
    kind: EnvelopeKind,
) -> Result<Vec<u8>> {
    read_envelope(file, link, kind, anchor.max_key_size)
}

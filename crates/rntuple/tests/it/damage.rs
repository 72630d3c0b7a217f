//! Damaged files yield errors or values, never a panic.

use std::io::Cursor;
use std::sync::Arc;

use rntuple::tfile::{FileWriter, KeyChain, anchors};
use rntuple::{
    Anchor, ByteSource, EnvelopeKind, ErrorKind, Footer, Header, Locator, PageList, PageLocation,
    Reader, Result, read_envelope,
};

use crate::sample;

/// Reads all metadata of a file, up to the first error.
fn read_all(file: &Vec<u8>) -> Result<()> {
    if let Ok(chain) = KeyChain::of_file(file) {
        assert!(chain.count() <= file.len());
    }
    anchors(file)?.iter().try_for_each(|(_, anchor)| read_rntuple(file, anchor))
}

fn read_rntuple(source: &dyn ByteSource, anchor: &Anchor) -> Result<()> {
    let read = |link, kind| read_envelope(source, link, kind, anchor.max_key_size);
    let (mut header, _) = Header::decode(&read(&anchor.header, EnvelopeKind::Header)?)?;
    let footer = Footer::decode(&read(&anchor.footer, EnvelopeKind::Footer)?)?;
    header.schema.extend(&footer.extension)?;
    for group in &footer.cluster_groups {
        PageList::decode(&read(&group.page_list, EnvelopeKind::PageList)?)?;
    }
    Ok(())
}

#[test]
fn the_sample_is_sound() {
    read_all(&sample::file()).unwrap();
}

#[test]
fn no_flipped_bit_causes_a_panic() {
    let file = sample::file();
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let _ = read_all(&damaged);
    }
}

#[test]
fn no_truncation_causes_a_panic() {
    let file = sample::file();
    for length in 0..file.len() {
        let _ = read_all(&file[..length].to_vec());
    }
}

/// Extreme values at every position: the limits of counts, sizes and offsets.
#[test]
fn no_extreme_word_causes_a_panic() {
    let file = sample::file();
    let words = [0u32, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF];
    for start in 0..file.len() - 4 {
        for word in words {
            let mut damaged = file.clone();
            damaged[start..start + 4].copy_from_slice(&word.to_be_bytes());
            let _ = read_all(&damaged);
        }
    }
}

/// A fuzzer found that memory was allocated for sizes in a page list before they were compared with the file.
#[test]
fn a_page_outside_the_file_allocates_no_memory() {
    let huge = Locator { offset: 300, size: 8 << 30 };
    let beyond = Locator { offset: u64::MAX - 8, size: 8 };
    for (elements, locator) in [((1 << 31) - 1, huge), ((1 << 31) - 1, beyond), (2, beyond)] {
        let mut file = FileWriter::create(Cursor::new(vec![]), sample::identity()).unwrap();
        let page = PageLocation { elements, checksum: true, locator };
        let anchor = sample::write_numbers_with(&mut file, |_| page);
        let file = file.finish(&[("numbers".into(), anchor)], sample::time()).unwrap();
        let reader = Reader::open(Arc::new(file.into_inner()), "numbers").unwrap();
        let error = reader.read(&reader.select_all(), 0..1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

//! Files written by [`FileWriter`] and by sealing a chain of keys.

use std::io::{Seek, SeekFrom, Write};

use rntuple::tfile::{
    FRONT_SIZE_MIN, FileIdentity, KEY_SIZE_MAX, KeyChain, RBLOB_KEY_LENGTH, Sealing, Timestamp,
    anchors, decode_key_header, encode_key, gap_header, list_keys, rblob_key_header, read_blob,
    seal,
};
use rntuple::{
    Anchor, BlobSink, ByteSource, EnvelopeKind, EnvelopeLink, ErrorKind, Footer, Header, Locator,
    PageList, Result, read_envelope,
};

use crate::sample;

/// Opens an RNTuple and returns its number of entries.
fn entries_of(source: &dyn ByteSource, anchor: &Anchor) -> Result<u64> {
    let read = |link, kind| read_envelope(source, link, kind, anchor.max_key_size);
    let (header, checksum) = Header::decode(&read(&anchor.header, EnvelopeKind::Header)?)?;
    let footer = Footer::decode(&read(&anchor.footer, EnvelopeKind::Footer)?)?;
    assert_eq!(footer.header_checksum, checksum);
    let mut schema = header.schema;
    schema.extend(&footer.extension)?;
    let mut entries = 0;
    for group in &footer.cluster_groups {
        let list = PageList::decode(&read(&group.page_list, EnvelopeKind::PageList)?)?;
        entries += list.clusters.iter().map(|cluster| cluster.entries).sum::<u64>();
    }
    Ok(entries)
}

#[test]
fn a_written_file_lists_and_opens_its_rntuple() {
    let file = sample::file();
    let keys = list_keys(&file).unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!((keys[0].path.as_str(), keys[0].class.as_str()), ("numbers", "ROOT::RNTuple"));
    let anchors = anchors(&file).unwrap();
    assert_eq!(entries_of(&file, &anchors[0].1).unwrap(), sample::ENTRIES);
}

#[test]
fn the_keys_of_a_written_file_are_an_uninterrupted_chain() {
    let file = sample::file();
    let chain: Vec<_> = KeyChain::of_file(&file).unwrap().map(Result::unwrap).collect();
    let classes: Vec<&str> = chain.iter().map(|(_, key)| key.class.as_str()).collect();
    let expected = ["RBlob", "RBlob", "RBlob", "RBlob", "ROOT::RNTuple", "TFile", "TList", "TFile"];
    assert_eq!(classes[0], "TFile");
    assert_eq!(classes[1..], expected);
    assert!(chain.iter().all(|(position, key)| *position == key.position));
    let (position, last) = chain.last().unwrap();
    assert_eq!(position + last.size, file.len() as u64);
}

/// As in the engine: extents of several blobs, one of them abandoned, then sealing in place.
#[test]
fn sealing_completes_a_chain_of_extents_with_a_gap() {
    let identity = sample::identity();
    let mut file = identity.front();
    let hole = file.len() as u64..file.len() as u64 + 1000;
    file.extend(gap_header(1000).unwrap());
    file.resize(hole.end as usize, 0xEE);
    let mut extent = Extent { start: file.len() as u64, bytes: Vec::new() };
    let anchor = sample::write_numbers(&mut extent);
    let size = extent.bytes.len() as u64;
    file.extend(rblob_key_header(extent.start, size, sample::time()).unwrap());
    file.extend(&extent.bytes);

    let sealing = Sealing {
        identity: &identity,
        end: file.len() as u64,
        anchors: &[("numbers".into(), anchor)],
        gaps: &[hole],
        modified: sample::time(),
    };
    let sealed = seal(&sealing).unwrap();
    file.extend(&sealed.tail);
    file[..sealed.front.len()].copy_from_slice(&sealed.front);

    let chain: Vec<_> = KeyChain::of_file(&file).unwrap().map(|key| key.unwrap().1).collect();
    assert!(chain[1].gap && chain[1].size == 1000);
    assert_eq!(chain[2].class, "RBlob");
    let anchors = anchors(&file).unwrap();
    assert_eq!(entries_of(&file, &anchors[0].1).unwrap(), sample::ENTRIES);
}

/// A sink that appends blobs after the header of one key.
struct Extent {
    start: u64,
    bytes: Vec<u8>,
}

impl BlobSink for Extent {
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let offset = self.start + RBLOB_KEY_LENGTH as u64 + self.bytes.len() as u64;
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(offset)
    }
}

/// Seven sparse extents of 1 GiB, then the data: every offset needs more than 32 bits.
#[test]
fn a_file_of_seven_gigabytes_is_sealed_and_read() {
    let identity = sample::identity();
    let mut file = tempfile::tempfile().unwrap();
    let mut put = |offset: u64, bytes: &[u8]| {
        file.seek(SeekFrom::Start(offset)).and_then(|_| file.write_all(bytes)).unwrap();
    };
    let mut end = identity.front_size();
    for _ in 0..7 {
        let payload_size = KEY_SIZE_MAX - RBLOB_KEY_LENGTH as u64;
        put(end, &rblob_key_header(end, payload_size, sample::time()).unwrap());
        end += KEY_SIZE_MAX;
    }
    let mut extent = Extent { start: end, bytes: Vec::new() };
    let anchor = sample::write_numbers(&mut extent);
    let size = extent.bytes.len() as u64;
    put(end, &rblob_key_header(end, size, sample::time()).unwrap());
    put(end + RBLOB_KEY_LENGTH as u64, &extent.bytes);
    end += RBLOB_KEY_LENGTH as u64 + size;
    let sealing = Sealing {
        identity: &identity,
        end,
        anchors: &[("numbers".into(), anchor)],
        gaps: &[],
        modified: sample::time(),
    };
    let sealed = seal(&sealing).unwrap();
    put(end, &sealed.tail);
    put(0, &sealed.front);

    assert_eq!(KeyChain::of_file(&file).unwrap().filter(Result::is_ok).count(), 13);
    let anchors = anchors(&file).unwrap();
    assert_eq!(entries_of(&file, &anchors[0].1).unwrap(), sample::ENTRIES);
}

#[test]
fn an_unsealed_file_has_no_objects() {
    let identity = sample::identity();
    let front = identity.front();
    assert_eq!(front.len() as u64, identity.front_size());
    assert_eq!(list_keys(&front).unwrap(), []);
    let nameless = FileIdentity::new("", [0; 16], Timestamp::default()).unwrap();
    assert_eq!(nameless.front_size(), FRONT_SIZE_MIN);
}

/// Data of an early server at this position were once taken for the file's name and UUID.
#[test]
fn reading_an_identity_fails_without_the_key_of_the_root_directory() {
    let identity = sample::identity();
    let front = identity.front();
    assert_eq!(FileIdentity::read(&front).unwrap(), identity);
    // The file header's position of the first key, and that key's size and own position.
    for at in [11, 100, 125] {
        let mut other = front.clone();
        other[at] ^= 0x80;
        assert!(FileIdentity::read(&other).is_err(), "byte {at}");
    }
}

#[test]
fn names_that_root_could_not_find_are_refused() {
    let link = EnvelopeLink { length: 0, locator: Locator::default() };
    let anchor = Anchor::new(link, link);
    for names in [vec![""], vec!["a/b"], vec!["a", "b", "a"]] {
        let anchors: Vec<_> = names.iter().map(|name| (name.to_string(), anchor)).collect();
        let sealing = Sealing {
            identity: &sample::identity(),
            end: 1000,
            anchors: &anchors,
            gaps: &[],
            modified: Timestamp::default(),
        };
        assert_eq!(seal(&sealing).unwrap_err().kind(), ErrorKind::Invalid, "{names:?}");
    }
    let long = "n".repeat(255);
    assert!(FileIdentity::new(&long, [0; 16], Timestamp::default()).is_err());
}

#[test]
fn long_names_take_the_long_form_of_strings() {
    for length in [0, 1, 254, 255, 256, 60_000] {
        let name = "n".repeat(length);
        let bytes = encode_key("Class", &name, "title", 77, 1 << 40, sample::time()).unwrap();
        let key = decode_key_header(&bytes).unwrap();
        assert_eq!((key.name, key.title.as_str()), (name, "title"));
        assert_eq!(usize::from(key.header_size), bytes.len());
        assert_eq!((key.size - bytes.len() as u64, key.position), (77, 1 << 40));
    }
    assert!(encode_key("Class", &"n".repeat(70_000), "", 0, 0, sample::time()).is_err());
}

#[test]
fn a_key_of_more_than_one_gigabyte_is_refused() {
    let limit = (1 << 30) - RBLOB_KEY_LENGTH as u64;
    assert!(rblob_key_header(100, limit, sample::time()).is_ok());
    assert!(rblob_key_header(100, limit + 1, sample::time()).is_err());
    assert!(gap_header(3).is_err() && gap_header(1 << 31).is_err());
}

/// ROOT spreads a blob of more than `max_key_size` bytes over several keys.
#[test]
fn a_blob_in_several_keys_is_joined() {
    let blob: Vec<u8> = (0..100).collect();
    let mut file = vec![0xEE; 500];
    // Three pieces of at most 40 bytes: 24 and two offsets, 40, 36.
    file[10..34].copy_from_slice(&blob[..24]);
    file[34..50].copy_from_slice(&[100u64, 200].map(u64::to_le_bytes).concat());
    file[100..140].copy_from_slice(&blob[24..64]);
    file[200..236].copy_from_slice(&blob[64..]);
    let joined = read_blob(&file, Locator { offset: 10, size: 100 }, 40).unwrap();
    assert_eq!(joined, blob);
    assert!(read_blob(&file, Locator { offset: 10, size: 100 }, 8).is_err());
    assert!(read_blob(&file, Locator { offset: 10, size: u64::MAX - 10 }, 1).is_err());
}

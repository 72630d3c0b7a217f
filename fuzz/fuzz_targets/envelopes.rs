//! Arbitrary payloads of envelopes with a right checksum: decoded metadata are encoded and decoded to the same
//! metadata again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rntuple::{Anchor, EnvelopeKind, Footer, Header, PageList, seal_envelope};

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, payload)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => header(&seal_envelope(EnvelopeKind::Header, payload)),
        1 => footer(&seal_envelope(EnvelopeKind::Footer, payload)),
        2 => page_list(&seal_envelope(EnvelopeKind::PageList, payload)),
        _ => {
            let _ = Anchor::decode(payload);
        }
    }
});

fn header(envelope: &[u8]) {
    if let Ok((header, _)) = Header::decode(envelope) {
        let again = header.encode();
        let (decoded, _) = Header::decode(&again).expect("our own header is sound");
        // Compared as bytes, since a range of NaN is not equal to itself.
        assert_eq!(decoded.encode(), again);
    }
}

fn footer(envelope: &[u8]) {
    if let Ok(footer) = Footer::decode(envelope) {
        let again = footer.encode();
        assert_eq!(Footer::decode(&again).expect("our own footer is sound").encode(), again);
    }
}

fn page_list(envelope: &[u8]) {
    if let Ok(list) = PageList::decode(envelope) {
        let again = list.encode();
        assert_eq!(PageList::decode(&again).expect("our own page list is sound"), list);
    }
}

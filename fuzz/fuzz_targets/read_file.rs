//! Arbitrary bytes as a file: every RNTuple is opened and the first and last entries of every field
//! that can be read are read, as arrays and as values.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rntuple::Reader;
use rntuple::tfile::anchors;

/// Entries read from either end.
const ENTRIES_MAX: u64 = 100;

fuzz_target!(|bytes: &[u8]| {
    let file = Arc::new(bytes.to_vec());
    for (_, anchor) in anchors(&*file).unwrap_or_default() {
        if let Ok(reader) = Reader::from_anchor(file.clone(), &anchor) {
            read(&reader);
        }
    }
});

fn read(reader: &Reader) {
    let entries = reader.entries();
    let all = reader.select_all();
    let _ = reader.read(&all, 0..entries.min(ENTRIES_MAX));
    let _ = reader.read(&all, entries.saturating_sub(ENTRIES_MAX)..entries);
    for (name, _) in reader.members() {
        if let Ok(projection) = reader.select(&[name]) {
            let _ = reader.read(&projection, 0..entries.min(1));
        }
    }
}

//! Bytes as the output of a command of a site: an answer, or the reason for none, with short and plain texts.

#![no_main]

use femtobarn_archive::stores::CommandAnswer;
use libfuzzer_sys::fuzz_target;

/// Bytes of a text of 1000 characters, shown with escapes, and of what is said about it.
const TEXT_BYTES_MAX: usize = 15_000;

fuzz_target!(|bytes: &[u8]| {
    let texts = match CommandAnswer::decode(bytes) {
        Ok(answer) => [answer.error, answer.checksum, answer.tape].into_iter().flatten().collect(),
        Err(why) => vec![why],
    };
    for text in texts {
        assert!(text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control));
    }
});

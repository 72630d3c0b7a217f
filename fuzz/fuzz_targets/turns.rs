//! Arbitrary bytes in pieces of some size, decoded as the turns of a catalogue's direct connection.
//!
//! A decoded turn decodes to the same turn again.

#![no_main]

use std::fmt::Debug;

use femtobarn_rpc::turns::{TurnDecoder, turn_bytes};
use femtobarn_rpc::v1::{ClientTurn, ServerTurn};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|bytes: &[u8]| {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let size = usize::from(*size).max(1);
    decode::<ClientTurn>(bytes, size);
    decode::<ServerTurn>(bytes, size);
});

fn decode<T: Message + Default + PartialEq + Debug>(bytes: &[u8], size: usize) {
    let mut decoder = TurnDecoder::default();
    for piece in bytes.chunks(size) {
        decoder.push(piece);
        loop {
            match decoder.next_turn::<T>() {
                Ok(Some(turn)) => {
                    let mut again = TurnDecoder::default();
                    again.push(&turn_bytes(&turn).expect("a decoded turn can be encoded"));
                    assert_eq!(again.next_turn::<T>().ok(), Some(Some(turn)));
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

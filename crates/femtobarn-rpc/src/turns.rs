//! Direct connections: how one begins, and where its turns do. `docs/protocol.md` specifies both.
//!
//! Invariants:
//! 1. No bytes make this panic.
//! 2. Memory is taken for bytes that have arrived, not for those that a length announces.

use bytes::{Buf, BytesMut};
use femtobarn_catalog::{Error, Result};
use prost::Message;

use crate::MESSAGE_BYTES_MAX;

/// The path of the request that makes its connection a direct one.
pub const TURNS_PATH: &str = "/femtobarn.catalogue.v1.Catalogue/Turns";
/// The protocol of direct connections in the headers of that request and its answer.
pub const TURNS_PROTOCOL: &str = "femtobarn-turns";

/// Bytes of a turn's length, before it.
const LENGTH_BYTES: usize = 4;

/// The bytes of a turn.
///
/// # Errors
/// [`Error::Invalid`] if it is longer than [`MESSAGE_BYTES_MAX`].
pub fn turn_bytes(turn: &impl Message) -> Result<Vec<u8>> {
    let length = turn.encoded_len();
    let fits = u32::try_from(length).ok().filter(|_| length <= MESSAGE_BYTES_MAX);
    let fits = fits.ok_or_else(|| too_long(length))?;
    let mut bytes = Vec::with_capacity(LENGTH_BYTES + length);
    bytes.extend(fits.to_be_bytes());
    turn.encode(&mut bytes).expect("a vector has room");
    Ok(bytes)
}

/// Turns from the bytes of a direct connection, which arrive in pieces.
#[derive(Debug, Default)]
pub struct TurnDecoder {
    received: BytesMut,
}

impl TurnDecoder {
    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// The next turn; `None` until all of its bytes have arrived.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the turn is longer than [`MESSAGE_BYTES_MAX`], or is not a message of type `T`.
    pub fn next_turn<T: Message + Default>(&mut self) -> Result<Option<T>> {
        let Some(length) = self.received.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(too_long(length));
        }
        if self.received.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.received.advance(LENGTH_BYTES);
        let turn = T::decode(self.received.split_to(length))
            .map_err(|error| Error::Invalid { what: format!("malformed turn: {error}") })?;
        if self.received.is_empty() {
            // A connection that waits holds no buffer.
            self.received = BytesMut::new();
        }
        Ok(Some(turn))
    }
}

fn too_long(length: usize) -> Error {
    let what = format!("turn of {length} bytes: must be at most {MESSAGE_BYTES_MAX}");
    Error::Invalid { what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{ClientTurn, Operation};

    fn turn(operations: usize) -> ClientTurn {
        let operations = vec![Operation { number: 7, ..Operation::default() }; operations];
        ClientTurn { operations, ..ClientTurn::default() }
    }

    #[test]
    fn turns_are_decoded_however_their_bytes_arrive() {
        let turns = [turn(0), turn(3), turn(1000), turn(0), turn(1)];
        let bytes: Vec<u8> = turns.iter().flat_map(|turn| turn_bytes(turn).unwrap()).collect();
        for size in [1, 3, 1000, bytes.len()] {
            let (mut decoder, mut decoded) = (TurnDecoder::default(), vec![]);
            for piece in bytes.chunks(size) {
                decoder.push(piece);
                while let Some(turn) = decoder.next_turn::<ClientTurn>().unwrap() {
                    decoded.push(turn);
                }
            }
            assert_eq!(decoded, turns, "in pieces of {size} bytes");
        }
    }

    #[test]
    fn turns_that_are_malformed_or_too_long_are_refused_and_truncated_ones_awaited() {
        let mut long = TurnDecoder::default();
        long.push(&u32::MAX.to_be_bytes());
        assert!(long.next_turn::<ClientTurn>().is_err(), "before its bytes arrive");
        let mut odd = TurnDecoder::default();
        odd.push(&[0, 0, 0, 2, 0xff, 0xff]);
        assert!(odd.next_turn::<ClientTurn>().is_err());
        let mut half = TurnDecoder::default();
        half.push(&(MESSAGE_BYTES_MAX as u32).to_be_bytes());
        half.push(&[0; 100]);
        assert_eq!(half.next_turn::<ClientTurn>().unwrap(), None);
        assert!(half.received.capacity() < 1024, "memory is for what has arrived");
        let text = "x".repeat(MESSAGE_BYTES_MAX);
        assert!(
            turn_bytes(&crate::v1::ListLocksRequest { federation: text, ..Default::default() })
                .is_err()
        );
    }
}

//! The streamer information: a description of the anchor's class, by which a reader without that class
//! interprets the anchor, and ROOT checks that its own class agrees.
//!
//! The content is a `TList` of one `TStreamerInfo`, whose elements are the members of the anchor.
//! Every object is preceded by its size with [`BYTE_COUNT_MARK`] set. The name of its class is written
//! at the first object of the class; later ones refer to the position of that name, counted from the
//! start of the key (plus 2), with [`CLASS_MARK`] set.

use crate::anchor::ANCHOR_CLASS;
use crate::wire::Writer;

pub(super) const STREAMER_INFO_NAMES: [&str; 3] = ["TList", "StreamerInfo", "Doubly linked list"];

const BYTE_COUNT_MARK: u32 = 0x4000_0000;
const CLASS_MARK: u32 = 0x8000_0000;
const NEW_CLASS: u32 = 0xFFFF_FFFF;
/// ROOT counts positions of classes from 2.
const POSITION_OFFSET: usize = 2;

const ANCHOR_CLASS_VERSION: u32 = 2;
/// ROOT's checksum of the members of version 2 of the class.
const ANCHOR_CLASS_CHECKSUM: u32 = 0x28e6_32ec;
/// `TObject` bits of an object on the heap as ROOT stores them for streamer information.
const INFO_BITS: u32 = 0x0001_0000;

const TYPE_UNSIGNED_SHORT: u32 = 12;
const TYPE_UNSIGNED_LONG: u32 = 14;

const MEMBERS: [(&str, u32); 11] = [
    ("fVersionEpoch", TYPE_UNSIGNED_SHORT),
    ("fVersionMajor", TYPE_UNSIGNED_SHORT),
    ("fVersionMinor", TYPE_UNSIGNED_SHORT),
    ("fVersionPatch", TYPE_UNSIGNED_SHORT),
    ("fSeekHeader", TYPE_UNSIGNED_LONG),
    ("fNBytesHeader", TYPE_UNSIGNED_LONG),
    ("fLenHeader", TYPE_UNSIGNED_LONG),
    ("fSeekFooter", TYPE_UNSIGNED_LONG),
    ("fNBytesFooter", TYPE_UNSIGNED_LONG),
    ("fLenFooter", TYPE_UNSIGNED_LONG),
    ("fMaxKeySize", TYPE_UNSIGNED_LONG),
];

/// The payload of the streamer information's key, whose header has `key_header_size` bytes.
pub(super) fn encode_streamer_info(key_header_size: usize) -> Vec<u8> {
    let mut writer = Writer::default();
    versioned(&mut writer, 5, |writer| {
        object(writer, 0);
        writer.string_be("").u32_be(1);
        of_new_class(writer, "TStreamerInfo", |writer| info(writer, key_header_size));
        // The list stores an option with each object; here it is empty.
        writer.string_be("");
    });
    writer.bytes
}

fn info(writer: &mut Writer, key_header_size: usize) {
    versioned(writer, 9, |writer| {
        named(writer, ANCHOR_CLASS, INFO_BITS);
        writer.u32_be(ANCHOR_CLASS_CHECKSUM).u32_be(ANCHOR_CLASS_VERSION);
        of_new_class(writer, "TObjArray", |writer| elements(writer, key_header_size));
    });
}

fn elements(writer: &mut Writer, key_header_size: usize) {
    versioned(writer, 3, |writer| {
        object(writer, 0);
        writer.string_be("").u32_be(MEMBERS.len() as u32).u32_be(0);
        let (first, others) = MEMBERS.split_first().expect("the class has members");
        let class_position = writer.bytes.len() + 4 + key_header_size + POSITION_OFFSET;
        of_new_class(writer, "TStreamerBasicType", |writer| element(writer, first));
        for member in others {
            counted(writer, |writer| {
                writer.u32_be(CLASS_MARK | class_position as u32);
                element(writer, member);
            });
        }
    });
}

fn element(writer: &mut Writer, &(name, kind): &(&str, u32)) {
    let (type_name, size) = match kind {
        TYPE_UNSIGNED_SHORT => ("unsigned short", 2),
        _ => ("unsigned long", 8),
    };
    versioned(writer, 2, |writer| {
        versioned(writer, 4, |writer| {
            named(writer, name, 0);
            writer.u32_be(kind).u32_be(size);
            // All zero, as the member is not an array: length, dimensions, five indexes.
            writer.raw(&[0; 7 * 4]).string_be(type_name);
        });
    });
}

/// Writes the base classes `TNamed` and `TObject`, with an empty title.
fn named(writer: &mut Writer, name: &str, bits: u32) {
    versioned(writer, 1, |writer| {
        object(writer, bits);
        writer.string_be(name).string_be("");
    });
}

/// Writes the base class `TObject`: version, identifier, bits.
fn object(writer: &mut Writer, bits: u32) {
    writer.u16_be(1).u32_be(0).u32_be(bits);
}

fn of_new_class(writer: &mut Writer, class: &str, body: impl FnOnce(&mut Writer)) {
    counted(writer, |writer| {
        writer.u32_be(NEW_CLASS).raw(class.as_bytes()).u8(0);
        body(writer);
    });
}

fn versioned(writer: &mut Writer, version: u16, body: impl FnOnce(&mut Writer)) {
    counted(writer, |writer| {
        writer.u16_be(version);
        body(writer);
    });
}

/// Writes the size of the body before the body.
fn counted(writer: &mut Writer, body: impl FnOnce(&mut Writer)) {
    let start = writer.bytes.len();
    writer.u32_be(0);
    body(writer);
    let size = (writer.bytes.len() - start - 4) as u32;
    writer.bytes[start..start + 4].copy_from_slice(&(size | BYTE_COUNT_MARK).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash is that of ROOT 6.35's bytes for this class, after a key header of 72 bytes.
    #[test]
    fn the_streamer_information_is_byte_for_byte_that_of_root() {
        let bytes = encode_streamer_info(72);
        assert_eq!(bytes.len(), 1254);
        assert_eq!(twox_hash::XxHash3_64::oneshot(&bytes), 0x2216_45c4_b8e1_94e1);
    }
}

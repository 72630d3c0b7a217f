//! Chunks that ROOT wrote, chunks that this crate writes, and damaged ones.

use proptest::prelude::*;

use super::*;
use crate::ErrorKind;
use crate::encoding::tests::hex;

/// The numbers from 0 to 7, eight times each, as ROOT 6.40 stored them in a page of 32-bit integers.
const OF_ROOT: [(&str, &str); 4] = [
    (
        "zlib",
        "5a4c0829000000010078017dc9c10d0030088040ad5af7df582680e45e4478c9368f6f8a6f9a6f866f3edf2cdf1c48c000e1",
    ),
    (
        "lzma",
        "585a00580000000100fd377a585a0000016922de360200210100000000372797d6e000ff00195d00006e184948c9fd2c67\
         dc0959b91a8a7e48de8f862e95d4823800000000f31f4b2d0001318002000000cc789c173e300d8b020000000001595a",
    ),
    (
        "lz4",
        "4c3401360000000100dada544f57a6d8a11f0001000c1f0104000c1f0204000c1f0304000c1f0404000c1f0504000c1f06\
         04000c1f07040007500007000000",
    ),
    (
        "zstd",
        "5a530125000000010028b52ffd600000dd00004800000102030405060708a810e007c0c30110feff351ff7711124",
    ),
];

const WRITTEN: [Compression; 5] = [
    Compression::Lz4 { level: 1 },
    Compression::Lz4 { level: 9 },
    Compression::Zstd { level: 1 },
    Compression::Zstd { level: 5 },
    Compression::Zstd { level: 10 },
];

const WHOLE: Planes = Planes { bytes: 256, have_noise: false };

fn numbers() -> Vec<u8> {
    (0..64u32).flat_map(|index| (index / 8).to_le_bytes()).collect()
}

fn kind(input: &[u8], size: usize) -> ErrorKind {
    decompress(input, &mut vec![0; size]).unwrap_err().kind()
}

#[test]
fn all_algorithms_of_root_are_read() {
    for (algorithm, stored) in OF_ROOT {
        let mut out = vec![0; 256];
        decompress(&hex(stored), &mut out).unwrap_or_else(|error| panic!("{algorithm}: {error}"));
        assert_eq!(out, numbers(), "{algorithm}");
    }
}

#[test]
fn chunks_of_several_algorithms_follow_each_other() {
    let all: Vec<u8> = OF_ROOT.iter().flat_map(|(_, stored)| hex(stored)).collect();
    let mut out = vec![0; 4 * 256];
    decompress(&all, &mut out).unwrap();
    assert_eq!(out, numbers().repeat(4));
}

#[test]
fn sizes_that_do_not_match_are_refused() {
    for (_, stored) in OF_ROOT {
        let stored = hex(stored);
        assert_eq!(kind(&stored, 255), ErrorKind::Corrupt);
        assert_eq!(kind(&stored, 257), ErrorKind::Corrupt);
        for claimed in [254, 255] {
            let mut lying = stored.clone();
            lying[6..9].copy_from_slice(&[claimed, 0, 0]);
            assert_eq!(kind(&lying, usize::from(claimed)), ErrorKind::Corrupt);
        }
        let mut lying = stored.clone();
        lying[6..9].copy_from_slice(&[1, 1, 0]);
        assert_eq!(kind(&lying, 257), ErrorKind::Corrupt);
    }
}

#[test]
fn unknown_algorithms_are_corrupt_and_abandoned_ones_unsupported() {
    let mut stored = hex(OF_ROOT[0].1);
    stored[..2].copy_from_slice(b"CS");
    assert_eq!(kind(&stored, 256), ErrorKind::Unsupported);
    stored[..2].copy_from_slice(b"??");
    assert_eq!(kind(&stored, 256), ErrorKind::Corrupt);
}

#[test]
fn input_beyond_a_chunk_is_cut_and_joined() {
    let input: Vec<u8> =
        (0..CHUNK_MAX as u32 / 4 + 1000).flat_map(|i| (i / 100).to_le_bytes()).collect();
    assert!(input.len() > CHUNK_MAX);
    for compression in [Compression::Lz4 { level: 1 }, Compression::Zstd { level: 1 }] {
        let mut stored = Vec::new();
        assert!(compress(&input, compression, &mut stored).unwrap());
        assert_eq!(stored[6..9], [0xff; 3], "the first chunk is full");
        let mut out = vec![0; input.len()];
        decompress(&stored, &mut out).unwrap();
        assert!(out == input);
        assert!(input.len() as u64 <= uncompressed_size_max(stored.len() as u64));
        assert_eq!(kind(&stored[..stored.len() - 1], input.len()), ErrorKind::Corrupt);
    }
}

#[test]
fn settings_are_the_numbers_of_root() {
    assert_eq!(Compression::None.settings(), 0);
    assert_eq!(Compression::Lz4 { level: 4 }.settings(), 404);
    assert_eq!(Compression::Zstd { level: 10 }.settings(), 505);
    assert_eq!(Compression::Zstd { level: 1 }.settings(), 501);
    assert_eq!(Compression::Zstd { level: 22 }.settings(), 509);
}

#[test]
fn incompressible_input_leaves_the_output_unchanged() {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = (0..1000).map(|_| next()).collect();
    for compression in WRITTEN {
        for input in [&noise[..], &[], &[1], &[0; 9], &[0; 12]] {
            let mut out = vec![7];
            assert!(!compress(input, compression, &mut out).unwrap(), "{compression:?}");
            assert_eq!(out, [7]);
        }
    }
}

/// A plane of noise, and one of two values.
fn noise_and_truths() -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = (0..16 << 10).map(|_| next()).collect();
    let truths = (0..16 << 10).map(|_| next() & 1);
    noise.iter().copied().chain(truths).collect()
}

#[test]
fn planes_that_are_coded_by_themselves_take_fewer_bytes_and_read_as_before() {
    let input = noise_and_truths();
    let packed = |bytes, have_noise| {
        let mut stored = vec![];
        let planes = Planes { bytes, have_noise };
        assert!(
            compress_planes(&input, planes, Compression::Zstd { level: 3 }, &mut stored).unwrap()
        );
        for (_, in_c, in_rust) in &DECODERS[2..] {
            for decode in [in_c, in_rust] {
                let mut out = vec![0; input.len()];
                assert_eq!(decode(&payload("zstd", &stored), &mut out).unwrap(), out.len());
                assert!(out == input);
            }
        }
        stored.len()
    };
    let (whole, planes) = (packed(input.len(), false), packed(input.len() / 2, true));
    assert!(planes < (16 << 10) + (16 << 10) / 5, "{planes} bytes: noise, and some bits a truth");
    assert!(planes < whole, "{planes} < {whole}");
    // Planes that are too small for codes of their own are coded together.
    assert_eq!(packed(512, false), whole);
}

#[test]
fn planes_that_do_not_fit_are_left_uncompressed() {
    let noise = &noise_and_truths()[..16 << 10];
    let mut out = vec![7];
    let planes = Planes { bytes: 4 << 10, have_noise: true };
    assert!(!compress_planes(noise, planes, Compression::Zstd { level: 3 }, &mut out).unwrap());
    assert_eq!(out, [7]);
}

#[test]
fn the_checksum_of_lz4_is_looked_at_only_in_bytes_that_were_not_verified() {
    let mut stored = hex(OF_ROOT[2].1);
    stored[HEADER] ^= 1;
    assert_eq!(kind(&stored, 256), ErrorKind::Corrupt);
    let mut out = vec![0; 256];
    decompress_verified(&stored, &mut out).unwrap();
    assert_eq!(out, numbers());
}

/// Compressed bytes and the size of what they hold.
type Decoder = fn(&[u8], &mut [u8]) -> crate::Result<usize>;

/// The decoders of each algorithm, that in C and that in Rust.
const DECODERS: [(&str, Decoder, Decoder); 3] = [
    ("lzma", c_codecs::decompress_lzma, rust_codecs::decompress_lzma),
    ("lz4", c_codecs::decompress_lz4, rust_codecs::decompress_lz4),
    ("zstd", c_codecs::decompress_zstd, rust_codecs::decompress_zstd),
];

/// The payload of the first chunk, without its checksum.
fn payload(algorithm: &str, stored: &[u8]) -> Vec<u8> {
    let checksum = if algorithm == "lz4" { LZ4_CHECKSUM } else { 0 };
    stored[HEADER + checksum..].to_vec()
}

#[test]
fn decoders_in_rust_read_data_of_root_and_refuse_other_sizes() {
    for ((algorithm, _, decode), (of_root, stored)) in DECODERS.into_iter().zip(&OF_ROOT[1..]) {
        assert_eq!(algorithm, *of_root);
        let payload = payload(algorithm, &hex(stored));
        let mut out = vec![0; 256];
        assert_eq!(decode(&payload, &mut out).unwrap(), 256, "{algorithm}");
        assert_eq!(out, numbers(), "{algorithm}");
        assert!(decode(&payload, &mut [0; 255]).is_err(), "{algorithm}");
        assert!(!matches!(decode(&payload, &mut [0; 257]), Ok(257)), "{algorithm}");
        let short = &payload[..payload.len() - 1];
        assert!(!matches!(decode(short, &mut out), Ok(256)), "{algorithm}");
    }
}

#[test]
fn codecs_in_rust_leave_input_uncompressed() {
    let out = &mut [0; 256];
    assert_eq!(rust_codecs::compress_lz4(&numbers(), 1, out), None);
    assert_eq!(rust_codecs::compress_zstd(&numbers(), WHOLE, 1, out), None);
}

proptest! {
    #[test]
    fn decoders_in_rust_restore_compressed_input(
        pattern in prop::collection::vec(any::<u8>(), 1..200),
        repeats in 1..2000usize,
        which in 0..WRITTEN.len(),
    ) {
        let input = pattern.repeat(repeats);
        let mut stored = vec![];
        if compress(&input, WRITTEN[which], &mut stored).unwrap() {
            let (algorithm, _, decode) = DECODERS[if which < 2 { 1 } else { 2 }];
            let mut out = vec![0; input.len()];
            prop_assert_eq!(decode(&payload(algorithm, &stored), &mut out).unwrap(), input.len());
            prop_assert_eq!(out, input);
        }
    }

    #[test]
    fn damaged_payloads_yield_the_same_bytes_or_an_error(
        which in 0..DECODERS.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        kept in any::<prop::sample::Index>(),
    ) {
        let (algorithm, in_c, in_rust) = DECODERS[which];
        let mut payload = payload(algorithm, &hex(OF_ROOT[which + 1].1));
        for (at, byte) in damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        for payload in [&payload[..], &payload[..kept.index(payload.len())]] {
            let (mut expected, mut out) = ([0; 256], [0; 256]);
            let is_read = matches!(in_rust(payload, &mut out), Ok(256));
            if matches!(in_c(payload, &mut expected), Ok(256)) && is_read {
                prop_assert_eq!(out, expected);
            }
        }
    }

    #[test]
    fn compressed_bytes_are_smaller_and_decompress_to_the_input(
        pattern in prop::collection::vec(any::<u8>(), 1..50),
        repeats in 1..100usize,
        which in 0..WRITTEN.len(),
    ) {
        let input = pattern.repeat(repeats);
        let mut stored = vec![7];
        if compress(&input, WRITTEN[which], &mut stored).unwrap() {
            prop_assert!(stored.len() - 1 < input.len());
            let mut out = vec![0; input.len()];
            decompress(&stored[1..], &mut out).unwrap();
            prop_assert_eq!(out, input);
        }
    }

    #[test]
    fn damaged_chunks_never_panic(
        which in 0..OF_ROOT.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        kept in any::<prop::sample::Index>(),
        size in 0..600usize,
    ) {
        let mut stored = hex(OF_ROOT[which].1);
        for (at, byte) in damage {
            let at = at.index(stored.len());
            stored[at] = byte;
        }
        let _ = decompress(&stored, &mut [0; 256]);
        let _ = decompress(&stored[..kept.index(stored.len())], &mut vec![0; size]);
        // Corrects the checksum of LZ4, so that the damage reaches the decoder.
        if let Some(payload) = stored.get(HEADER + LZ4_CHECKSUM..) && which == 2 {
            let checksum = lz4_checksum(payload);
            stored[HEADER..][..LZ4_CHECKSUM].copy_from_slice(&checksum);
            let _ = decompress(&stored, &mut [0; 256]);
        }
    }

    #[test]
    fn any_bytes_never_panic(stored in prop::collection::vec(any::<u8>(), 0..100), size in 0..300usize) {
        let _ = decompress(&stored, &mut vec![0; size]);
    }
}

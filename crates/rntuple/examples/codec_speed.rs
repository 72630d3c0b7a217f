//! Measures the speed of encoding and decoding pages on one core, and of memcpy for comparison.
//!
//! `cargo run --release --example codec_speed [page bytes] [milliseconds for each]`; GB/s count the
//! elements in memory. The best of many short runs counts, since other work on the machine only slows.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rntuple::{
    Column, ColumnType, Compression, Element, PageBuffers, decode, encode, open_page, seal_page,
};

fn main() {
    let argument = |index| std::env::args().nth(index).and_then(|text| text.parse().ok());
    let page_bytes: usize = argument(1).unwrap_or(64 << 10);
    let budget = Duration::from_millis(argument(2).unwrap_or(100) as u64);
    println!("pages of {page_bytes} bytes in memory, GB/s");
    let source = values(Element::U8, page_bytes);
    let mut target = vec![0; page_bytes];
    let copy =
        speed(page_bytes, budget, || black_box(&mut target).copy_from_slice(black_box(&source)));
    println!("{:<14} {copy:>8.1}", "memcpy");
    println!("{:<14} {:>8} {:>8}", "encoding", "encode", "decode");
    for column_type in ColumnType::ALL {
        measure_encoding(*column_type, page_bytes, budget);
    }
    println!("{:<14} {:>8} {:>8} {:>8}", "SplitReal32", "seal", "open", "ratio");
    let levels = [1, 3, 5].map(|level| Compression::Zstd { level });
    for compression in [Compression::None, Compression::Lz4 { level: 1 }].into_iter().chain(levels)
    {
        measure_page(compression, page_bytes, budget);
    }
}

fn measure_encoding(column_type: ColumnType, page_bytes: usize, budget: Duration) {
    let column = column(column_type);
    let Some(element) = column_type.element() else { return };
    let elements = page_bytes / element.size();
    let values = values(element, elements);
    let mut encoded = Vec::new();
    let encoding = speed(values.len(), budget, || {
        encoded.clear();
        encode(&column, black_box(&values), black_box(&mut encoded))
            .expect("values suit the column");
    });
    let mut decoded = vec![0; values.len()];
    let decoding = speed(values.len(), budget, || {
        decode(&column, black_box(&encoded), elements, black_box(&mut decoded))
            .expect("the page is sound");
    });
    println!("{:<14} {encoding:>8.1} {decoding:>8.1}", format!("{column_type:?}"));
}

fn measure_page(compression: Compression, page_bytes: usize, budget: Duration) {
    let column = column(ColumnType::SplitReal32);
    let elements = page_bytes / 4;
    let values = values(Element::F32, elements);
    let mut buffers = PageBuffers::default();
    let sealing = speed(page_bytes, budget, || {
        black_box(seal_page(&column, black_box(&values), compression, &mut buffers))
            .expect("values suit the column");
    });
    let mut stored = Vec::new();
    seal_page(&column, &values, compression, &mut buffers)
        .expect("values suit the column")
        .append_to(&mut stored);
    let mut decoded = vec![0; values.len()];
    let opening = speed(page_bytes, budget, || {
        open_page(&column, elements, true, 0, black_box(&stored), &mut buffers, &mut decoded)
            .expect("the page is sound");
    });
    let ratio = page_bytes as f64 / stored.len() as f64;
    println!(
        "{:<14} {sealing:>8.2} {opening:>8.2} {ratio:>8.2}",
        format!("{:?}", compression.settings())
    );
}

fn column(column_type: ColumnType) -> Column {
    let (bits, range) = match column_type {
        ColumnType::Real32Trunc => (20, None),
        ColumnType::Real32Quant => (20, Some((-100.0, 300.0))),
        other => (other.default_bits().expect("fixed"), None),
    };
    Column { column_type, bits, field: 0, representation: 0, first_element: None, range }
}

/// Ascending offsets or noisy numbers, from a linear congruential generator with a fixed seed.
fn values(element: Element, elements: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut offset = 0u64;
    let mut bytes = Vec::with_capacity(elements * element.size());
    for _ in 0..elements {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let noise = state >> 54;
        offset += noise % 8;
        match element {
            Element::F32 => bytes.extend_from_slice(&(noise as f32 * 0.1).to_le_bytes()),
            Element::F64 => bytes.extend_from_slice(&(noise as f64 * 0.1).to_le_bytes()),
            Element::Switch => {
                bytes.extend_from_slice(&[offset.to_le_bytes(); 2].as_flattened()[..12])
            }
            other => bytes.extend_from_slice(&offset.to_le_bytes()[..other.size()]),
        }
    }
    bytes
}

/// GB/s of the fastest of the runs that fit into the budget.
fn speed(bytes: usize, budget: Duration, mut run: impl FnMut()) -> f64 {
    let repeats = (4 << 20) / bytes + 1;
    let begin = Instant::now();
    let mut best = Duration::MAX;
    while begin.elapsed() < budget {
        let start = Instant::now();
        for _ in 0..repeats {
            run();
        }
        best = best.min(start.elapsed());
    }
    (bytes * repeats) as f64 / best.as_secs_f64() / 1e9
}

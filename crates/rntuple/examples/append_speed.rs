//! Measures the speed of turning entries of ten numbers and arrays into pages, which are discarded.
//!
//! ```text
//! append_speed [ENTRIES]
//! ```

use std::time::Instant;

use rntuple::{Appender, Array, BlobSink, Primitive, Result, Type, WriteOptions, row};

row! {
    struct Hit {
        run: u32,
        event: u64,
        time: f64,
        x: f64,
        y: f64,
        z: f64,
        energy: f64,
        momentum: [f32; 3],
        covariance: [f32; 5],
        hits: [u16; 8],
    }
}

/// A sink that discards blobs.
struct Nowhere(u64);

impl BlobSink for Nowhere {
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let offset = self.0;
        self.0 += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        Ok(offset)
    }
}

fn main() -> Result<()> {
    let entries = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let entries = entries.unwrap_or(4_000_000_u64);
    let of = <Hit as rntuple::CellType>::cell_type();
    let Type::Record { members, .. } = of else { unreachable!("rows are records") };
    let mut sink = Nowhere(0);
    let (mut appender, _) = Appender::create(&mut sink, "t", &members, WriteOptions::default())?;
    let start = Instant::now();
    for event in 0..entries {
        appender.append_row(&mut sink, &hit(event))?;
    }
    appender.finish_version(&mut sink, &Vec::new())?;
    report("rows", entries, sink.0, start);

    let numbers = |name: &str| (name.to_owned(), Type::Primitive(Primitive::Float64));
    let members = ["a", "b", "c", "d", "e", "f"].map(numbers);
    let mut sink = Nowhere(0);
    let (mut appender, _) = Appender::create(&mut sink, "t", &members, WriteOptions::default())?;
    let values: Vec<f64> = (0..100_000).map(f64::from).collect();
    let column = Array::primitive(Primitive::Float64, values);
    let columns = members.iter().map(|(name, _)| (name.clone(), column.clone()));
    let array = Array::Record { length: column.len(), members: columns.collect() };
    let start = Instant::now();
    for _ in 0..entries / 20_000 {
        appender.append(&mut sink, &array)?;
    }
    appender.finish_version(&mut sink, &Vec::new())?;
    report("columns", entries / 20_000 * 100_000, sink.0, start);
    Ok(())
}

fn report(what: &str, entries: u64, bytes: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{what}: {:.2} million entries/s, {:.2} GB/s",
        entries as f64 / seconds * 1e-6,
        bytes as f64 / seconds * 1e-9
    );
}

fn hit(event: u64) -> Hit {
    let (single, double) = (event as f32, event as f64);
    Hit {
        run: 7,
        event,
        time: 1e-3 * double,
        x: double,
        y: double,
        z: double,
        energy: double,
        momentum: [single; 3],
        covariance: [single; 5],
        hits: [event as u16; 8],
    }
}

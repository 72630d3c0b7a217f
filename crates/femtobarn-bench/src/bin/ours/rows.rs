//! Objects of 10 fields and 100 bytes.

use std::path::Path;

use femtobarn::{Class, Federation, TransactionOptions};
use rntuple::row;

use femtobarn_bench::{Outcome, Stopwatch};

const OBJECT_BYTES: u64 = 100;

const CLASS: &str = r#"{"name": "Hit", "version": 1, "fields": [
    {"name": "run", "type": "uint32"}, {"name": "event", "type": "uint64"},
    {"name": "time", "type": "float64"}, {"name": "x", "type": "float64"},
    {"name": "y", "type": "float64"}, {"name": "z", "type": "float64"},
    {"name": "energy", "type": "float64"},
    {"name": "momentum", "type": {"array": {"of": "float32", "size": 3}}},
    {"name": "covariance", "type": {"array": {"of": "float32", "size": 5}}},
    {"name": "hits", "type": {"array": {"of": "uint16", "size": 8}}}]}"#;

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

/// Appends `count` objects one by one, in one transaction.
pub(crate) fn append(folder: &Path, count: u64) -> Outcome {
    let federation = Federation::create(folder, "bench")?;
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let database = transaction.create_database("hits")?;
    let class = Class::from_json(CLASS)?;
    let key = transaction.create_container(database, "hits", &class, Default::default())?;
    let watch = Stopwatch::start();
    let mut rows = transaction.rows::<Hit>(key)?;
    for event in 0..count {
        rows.append(&hit(event))?;
    }
    transaction.commit()?;
    drop(federation);
    watch.report_on_disk(count, count * OBJECT_BYTES, folder)
}

#[inline]
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

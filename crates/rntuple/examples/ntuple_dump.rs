//! Prints the entries of an RNTuple, one JSON object a line.
//!
//! ```text
//! cargo run --example ntuple_dump -- FILE            # the names of its RNTuples
//! cargo run --example ntuple_dump -- FILE NAME       # the entries of one
//! ```
//!
//! The module `json` documents the form of the values.

mod json;

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use json::to_json;
use rntuple::{Reader, tfile};

/// Entries read at a time.
const ENTRIES: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut out = BufWriter::new(std::io::stdout().lock());
    match &arguments[..] {
        [path] => {
            for (name, _) in tfile::anchors(&File::open(path)?)? {
                writeln!(out, "{name}")?;
            }
        }
        [path, name] => dump(&Reader::open(Arc::new(File::open(path)?), name)?, &mut out)?,
        _ => return Err("usage: ntuple_dump FILE [NAME]".into()),
    }
    Ok(out.flush()?)
}

fn dump(reader: &Reader, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    for (field, reason) in reader.ignored() {
        eprintln!("field {field} is left out: {reason}");
    }
    let all = reader.select_all();
    for first in (0..reader.entries()).step_by(ENTRIES as usize) {
        let end = reader.entries().min(first + ENTRIES);
        let entries = reader.read(&all, first..end)?;
        for position in 0..entries.len() {
            writeln!(out, "{}", to_json(&entries.value(position)?))?;
        }
    }
    Ok(())
}

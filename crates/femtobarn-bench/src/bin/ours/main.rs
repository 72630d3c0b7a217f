//! The engine's side of the benchmarks; `benches/run.py` runs it beside its peers.
//!
//! ```text
//! ours append FOLDER POOL COUNT COMMIT        objects of 10 KB, one by one, COMMIT objects a transaction
//! ours plain-append FILE POOL COUNT COMMIT    the same bytes to a plain file, synced as often
//! ours write-objects FOLDER POOL COUNT none|lz4|zstd
//! ours random-objects FOLDER READS            objects at random, by their OIDs
//! ours rows FOLDER COUNT                      objects of 10 fields and 100 bytes, one by one
//! ours columns FILE                           all columns of a file that ROOT wrote, attached
//! ours write-columns FOLDER FILE none|lz4|zstd    the columns of a file of ROOT's, into a container
//! ours own-columns FOLDER                     all columns of that container
//! ```
//!
//! Prints one JSON object, as benches/README.md says. Opening the federation is not timed.

mod columns;
mod objects;
mod rows;

use std::path::Path;

use femtobarn::{ContainerOptions, Profile};
use femtobarn_bench::Outcome;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["append", folder, pool, count, commit] => {
            objects::append(Path::new(folder), Path::new(pool), count.parse()?, commit.parse()?)
        }
        ["plain-append", file, pool, count, commit] => {
            objects::plain(Path::new(file), Path::new(pool), count.parse()?, commit.parse()?)
        }
        ["write-objects", folder, pool, count, compression] => {
            let options = options(compression)?;
            objects::write(Path::new(folder), Path::new(pool), count.parse()?, options)
        }
        ["random-objects", folder, reads] => objects::random(Path::new(folder), reads.parse()?),
        ["rows", folder, count] => rows::append(Path::new(folder), count.parse()?),
        ["columns", file] => columns::attached(Path::new(file)),
        ["write-columns", folder, file, compression] => {
            columns::write(Path::new(folder), Path::new(file), options(compression)?)
        }
        ["own-columns", folder] => columns::own(Path::new(folder)),
        _ => Err("unknown benchmark; the head of bin/ours/main.rs lists them".into()),
    }
}

fn options(compression: &str) -> Result<ContainerOptions, Box<dyn std::error::Error>> {
    let compression = match compression {
        "none" => Profile::Plain,
        "lz4" => Profile::Fast,
        "zstd" => Profile::Archive,
        other => return Err(format!("no compression {other}").into()),
    };
    Ok(ContainerOptions { compression, ..Default::default() })
}

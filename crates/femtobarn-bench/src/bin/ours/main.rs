//! The engine's side of the benchmarks; `benches/run.py` runs it beside its peers.
//!
//! ```text
//! ours create FOLDER shared|own SIZE LINKS WRITERS    containers of one database, or of several
//! ours append PLACE shared|own POOL SIZE COUNT COMMIT WRITER    one by one, COMMIT in a transaction
//! ours commits PLACE shared|own WRITER SECONDS    10 objects of 100 bytes a transaction
//! ours clients PLACE DATABASE transactions|publish CLIENTS SECONDS    as many sessions at once: the same, or
//!                                              only its last step, a new version in the catalogue
//! ours fill FOLDER POOL SIZE COUNT             objects with an index, and links to them, to be read at random
//! ours random FOLDER oid|key|find|links OBJECTS SIZE COUNT 1 hot|cold
//! ours batches FOLDER OBJECTS SIZE COUNT BATCH hot|cold
//! ours scan-objects FOLDER cached|forward OBJECTS SIZE     all objects in order, hot
//! ours write-objects FOLDER POOL COUNT none|lz4|zstd
//! ours random-objects FOLDER READS            objects at random, by their OIDs
//! ours rows FOLDER COUNT                      objects of 10 fields and 100 bytes, one by one
//! ours import FOLDER FILE NTUPLE none|lz4|zstd    an RNTuple of a file of ROOT's, into own/NTUPLE
//! ours scan PLACE CONTAINER NAMES THREADS     fields ("a,b" or "all") of a container, in order
//! ours scan-file FILE NTUPLE NAMES THREADS     the same of a file that ROOT wrote, attached
//! ours export TARGET FILE NTUPLE NAMES         the same into a plain file
//! ours read-plain FILE cached|direct ENTRIES   that file, with or without the page cache
//! ours read-pages FOLDER CONTAINER NAMES       the pages of fields, by nothing but pread
//! ours pages TARGET PLACE CONTAINER NAMES      a list of those pages; PLACE may be a file that ROOT wrote,
//!                                              whose container is then file/NTUPLE
//! ours conditions FOLDER ours|sorted-array ordered|random EVENTS    all series for each event
//! ```
//!
//! PLACE is a folder, or the URL of a federation that a server has. Prints one JSON object, as benches/README.md
//! says. Opening the federation is not timed.

mod append;
mod clients;
mod conditions;
mod objects;
mod pages;
mod plain;
mod random;
mod rows;
mod scan;

use std::path::Path;

use femtobarn::{ContainerOptions, Federation, OpenOptions, Profile};
use femtobarn_bench::{Appends, Outcome, Pool, Reads};

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["create", folder, of, size, links, writers] => {
            let (size, links) = (size.parse()?, links.parse()?);
            append::create(Path::new(folder), of, size, links, writers.parse()?)
        }
        ["append", folder, of, ref rest @ ..] => {
            append::append(Path::new(folder), of, &Appends::parse(rest)?)
        }
        ["commits", folder, of, writer, seconds] => {
            append::commits(Path::new(folder), of, writer.parse()?, seconds.parse()?)
        }
        ["clients", place, database, work, clients, seconds] => {
            clients::run(place, database, work, clients.parse()?, seconds.parse()?)
        }
        ["conditions", folder, way, order, events] => {
            conditions::look_up(Path::new(folder), way, order, events.parse()?)
        }
        ["fill", folder, pool, size, count] => {
            let pool = Pool::open(Path::new(pool), size.parse()?)?;
            random::fill(Path::new(folder), &pool, count.parse()?)
        }
        ["random", folder, way, ref rest @ ..] => {
            random::one_by_one(Path::new(folder), way, &Reads::parse(rest)?)
        }
        ["batches", folder, ref rest @ ..] => {
            random::in_batches(Path::new(folder), &Reads::parse(rest)?)
        }
        ["scan-objects", folder, way, objects, size] => {
            let reads = Reads::parse(&[objects, size, "0", "1", "hot"])?;
            random::scan(Path::new(folder), way, &reads)
        }
        ["write-objects", folder, pool, count, compression] => {
            let options = options(compression)?;
            objects::write(Path::new(folder), Path::new(pool), count.parse()?, options)
        }
        ["random-objects", folder, reads] => objects::random(Path::new(folder), reads.parse()?),
        ["rows", folder, count] => rows::append(Path::new(folder), count.parse()?),
        ["import", folder, file, ntuple, compression] => {
            scan::import(Path::new(folder), Path::new(file), ntuple, options(compression)?)
        }
        ["scan", folder, container, names, threads] => {
            scan::own(Path::new(folder), container, names, threads.parse()?)
        }
        ["scan-file", file, ntuple, names, threads] => {
            scan::attached(Path::new(file), ntuple, names, threads.parse()?)
        }
        ["export", target, file, ntuple, names] => {
            scan::export(Path::new(target), Path::new(file), ntuple, names)
        }
        ["read-plain", file, way, entries] => plain::read(Path::new(file), way, entries.parse()?),
        ["read-pages", folder, container, names] => {
            pages::read(Path::new(folder), container, names)
        }
        ["pages", target, place, container, names] => {
            pages::list(Path::new(target), Path::new(place), container, names)
        }
        _ => Err("unknown benchmark; the head of bin/ours/main.rs lists them".into()),
    }
}

/// Opens a federation in a folder or at a server.
fn open(place: &Path, options: OpenOptions) -> femtobarn::Result<Federation> {
    match place.to_str() {
        Some(url) if url.starts_with("root://") => Federation::open_url(url, options),
        _ => Federation::open_with(place, options),
    }
}

fn options(
    compression: &str,
) -> Result<ContainerOptions, Box<dyn std::error::Error + Send + Sync>> {
    let compression = match compression {
        "none" => Profile::Plain,
        "lz4" => Profile::Fast,
        "zstd" => Profile::Archive,
        other => return Err(format!("no compression {other}").into()),
    };
    Ok(ContainerOptions { compression, ..Default::default() })
}

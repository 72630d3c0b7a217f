//! Engines that Femtobarn is compared with and that are reached from Rust, and the limits of the machine.
//!
//! ```text
//! peers append ENGINE PATH POOL SIZE COUNT COMMIT WRITER     objects one by one, COMMIT in a transaction
//! peers random ENGINE PATH OBJECTS SIZE COUNT BATCH hot|cold
//! peers scan ENGINE PATH OBJECTS SIZE                        all objects in order, hot
//! peers blocks PATH BYTES COUNT DEPTH                        without the page cache, at random, DEPTH at once
//! peers commits ENGINE PATH WRITER SECONDS                   10 objects of 100 bytes a transaction
//! peers syncs PATH WRITER SECONDS SYNCS GROUP                a write for each of GROUP, then SYNCS syncs
//! peers overwrites PATH WRITER SECONDS GROUP                 writes for GROUP in a prepared file, then a sync
//! peers evict PATH...                                        files leave the page cache
//! peers warm PATH...                                         files are in the page cache, read in order
//! ```
//!
//! Engines: `plain` (files written in pieces, read by pread), `direct` (without the page cache), `mmap`, `lmdb`,
//! `sqlite`. Prints one JSON object, as benches/README.md says.

mod direct;
mod lmdb;
mod plain;
mod sqlite;

use std::path::Path;

use femtobarn_bench::{Appends, Outcome, Reads};

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["append", engine, path, ref rest @ ..] => {
            append(engine, Path::new(path), &Appends::parse(rest)?)
        }
        ["random", engine, path, ref rest @ ..] => {
            random(engine, Path::new(path), &Reads::parse(rest)?)
        }
        ["scan", engine, path, objects, size] => {
            scan(engine, Path::new(path), &Reads::parse(&[objects, size, "0", "1", "hot"])?)
        }
        ["blocks", path, bytes, count, depth] => {
            direct::blocks(Path::new(path), bytes.parse()?, count.parse()?, depth.parse()?)
        }
        ["commits", engine, path, writer, seconds] => {
            commits(engine, Path::new(path), writer.parse()?, seconds.parse()?)
        }
        ["syncs", path, writer, seconds, syncs, group] => {
            let file = Path::new(path).join(format!("w{writer}"));
            plain::syncs(&file, seconds.parse()?, syncs.parse()?, group.parse()?)
        }
        ["overwrites", path, writer, seconds, group] => {
            let file = Path::new(path).join(format!("w{writer}"));
            plain::syncs_in_place(&file, seconds.parse()?, group.parse()?)
        }
        ["evict", ref paths @ ..] => {
            paths.iter().try_for_each(|path| plain::evict(Path::new(path)))
        }
        ["warm", ref paths @ ..] => paths.iter().try_for_each(|path| plain::warm(Path::new(path))),
        _ => Err("unknown benchmark; the head of bin/peers/main.rs lists them".into()),
    }
}

fn append(engine: &str, path: &Path, work: &Appends) -> Outcome {
    std::fs::create_dir_all(path)?;
    match engine {
        "plain" => plain::append(path, work),
        "direct" => direct::append(path, work),
        "lmdb" => lmdb::append(path, work),
        "sqlite" => sqlite::append(path, work),
        other => Err(format!("no engine {other} to write with").into()),
    }
}

fn random(engine: &str, path: &Path, reads: &Reads) -> Outcome {
    match engine {
        "plain" => plain::random(path, reads),
        "mmap" => plain::random_mapped(path, reads),
        "lmdb" => lmdb::random(path, reads),
        "sqlite" => sqlite::random(path, reads),
        other => Err(format!("no engine {other} to read with").into()),
    }
}

fn scan(engine: &str, path: &Path, reads: &Reads) -> Outcome {
    match engine {
        "plain" => plain::scan(path, reads),
        "mmap" => plain::scan_mapped(path, reads),
        "lmdb" => lmdb::scan(path, reads),
        "sqlite" => sqlite::scan(path, reads),
        other => Err(format!("no engine {other} to scan with").into()),
    }
}

fn commits(engine: &str, path: &Path, writer: u64, seconds: f64) -> Outcome {
    std::fs::create_dir_all(path)?;
    match engine {
        "lmdb" => lmdb::commits(path, writer, seconds),
        "sqlite" => sqlite::commits(path, writer, seconds),
        other => Err(format!("no engine {other} to commit with").into()),
    }
}

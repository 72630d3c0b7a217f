//! Containers of ROOT files as the page in a browser sees them, tested at the seam of the crate.

#![allow(clippy::unwrap_used)] // Tests may, but clippy knows only the functions marked as such.

mod fetching;
mod looking;

use std::fs;

use rntuple::{Cell, Compression, WriteOptions, Writer};

/// The bytes of a file with the container `events`.
fn file_of<R: Cell>(rows: &[R]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.root");
    let compression = Compression::Zstd { level: 1 };
    let options = WriteOptions { compression, ..Default::default() };
    let mut writer = Writer::create::<R>(&path, "events", options).unwrap();
    rows.iter().for_each(|row| writer.append_row(row).unwrap());
    writer.finish().unwrap();
    fs::read(&path).unwrap()
}

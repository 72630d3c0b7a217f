//! Copies a database, as the server presents it to plain ROOT clients, to a file.
//!
//! ```text
//! cargo run -p femtobarn-server --example present -- lhc.fed run7 run7.root
//! cargo run -p femtobarn-server --example present -- lhc.fed run7 run7.root fb.csn=41
//! ```

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use femtobarn_catalog::LocalCatalogue;
use femtobarn_server::physical::{
    FederationStorage, Opaque, OpenMode, PosixStorage, Storage, StorageError, StoragePath,
};

/// Bytes copied at a time.
const PIECE: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, database, target, opaque) = match &arguments[..] {
        [folder, database, target] => (folder, database, target, ""),
        [folder, database, target, opaque] => (folder, database, target, opaque.as_str()),
        _ => return Err("usage: present FEDERATION DATABASE TARGET [OPAQUE]".into()),
    };
    copy(Path::new(folder), database, opaque, File::create(target)?)
}

fn copy(
    folder: &Path,
    database: &str,
    opaque: &str,
    mut target: File,
) -> Result<(), Box<dyn Error>> {
    let catalogue = Arc::new(LocalCatalogue::open(folder)?);
    let files = Arc::new(PosixStorage::new(folder).map_err(text)?);
    let shown = FederationStorage::new(catalogue, files);
    let path = StoragePath::new(format!("/{database}.root").as_bytes()).map_err(text)?;
    let opaque = Opaque(opaque.as_bytes());
    let file = shown.open(&path, OpenMode::default(), opaque).map_err(text)?;
    let mut buffer = vec![0; PIECE];
    let mut offset = 0;
    loop {
        let read = file.read_at(offset, &mut buffer).map_err(text)?;
        target.write_all(&buffer[..read])?;
        offset += read as u64;
        if read < PIECE {
            return Ok(());
        }
    }
}

fn text(error: StorageError) -> String {
    match error {
        StorageError::Refused(_, text) => text,
        other => format!("{other:?}"),
    }
}

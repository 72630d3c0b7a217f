//! Compresses the files of the pages, which are embedded; among them is the program with which browsers look into files, if
//! `tools/web` has built it, and otherwise an empty one.

use std::error::Error;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

const PAGES: &str = "src/protocol/http/pages";
const PROGRAM: &str = "inside.wasm";

fn main() -> Result<(), Box<dyn Error>> {
    // A file that is missing would count as changed at every build; its folder does not.
    println!("cargo:rerun-if-changed={PAGES}");
    let out = env::var("OUT_DIR")?;
    let program = match fs::read(Path::new(PAGES).join(PROGRAM)) {
        Err(error) if error.kind() == ErrorKind::NotFound => vec![],
        read => read?,
    };
    fs::write(Path::new(&out).join(PROGRAM), &program)?;
    compress(&out, PROGRAM, &program)?;
    for file in fs::read_dir(PAGES)? {
        let name =
            file?.file_name().into_string().map_err(|name| format!("{name:?} is not UTF-8"))?;
        if name != PROGRAM && !name.ends_with(".rs") {
            compress(&out, &name, &fs::read(Path::new(PAGES).join(&name))?)?;
        }
    }
    Ok(())
}

/// Writes a file `NAME.gz`, whose bytes depend on the content alone.
fn compress(folder: &str, name: &str, content: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut encoder = GzEncoder::new(vec![], Compression::best());
    encoder.write_all(content)?;
    fs::write(Path::new(folder).join(format!("{name}.gz")), encoder.finish()?)?;
    Ok(())
}

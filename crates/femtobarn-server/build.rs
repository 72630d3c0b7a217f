//! Embeds the program with which browsers look into files, if `tools/web` has built it, and otherwise an empty one.

use std::error::Error;
use std::io::ErrorKind;
use std::path::Path;
use std::{env, fs};

const PAGES: &str = "src/protocol/http/pages";
const PROGRAM: &str = "inside.wasm";

fn main() -> Result<(), Box<dyn Error>> {
    // A file that is missing would count as changed at every build; its folder does not.
    println!("cargo:rerun-if-changed={PAGES}");
    let program = match fs::read(Path::new(PAGES).join(PROGRAM)) {
        Err(error) if error.kind() == ErrorKind::NotFound => vec![],
        read => read?,
    };
    fs::write(Path::new(&env::var("OUT_DIR")?).join(PROGRAM), program)?;
    Ok(())
}

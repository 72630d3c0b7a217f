//! Generates the messages from their definitions. The compiler is a library, so `protoc` need not be installed.

use std::error::Error;

const DEFINITIONS: &str = "proto/femtobarn/catalogue/v1/catalogue.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let definitions = protox::compile([DEFINITIONS], ["proto"])?;
    tonic_prost_build::configure().emit_rerun_if_changed(false).compile_fds(definitions)?;
    Ok(())
}

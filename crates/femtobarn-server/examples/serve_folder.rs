//! Serves a plain folder over `root://`, without any rights or encryption: for tests and measurements.
//!
//! ```text
//! serve_folder -p PORT FOLDER [PREFIX]
//! ```
//!
//! It listens on the loopback address, tells its port in a line on standard output (port 0 takes any
//! free one), and ends when it is killed.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use femtobarn_server::auth::Authenticator;
use femtobarn_server::logical::exports::{Exports, Manner};
use femtobarn_server::logical::{Logical, Settings};
use femtobarn_server::physical::{PosixStorage, StoragePath};
use femtobarn_server::protocol::xroot::{Shared, serve};
use tokio::net::TcpListener;

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    port: u16,
    folder: PathBuf,
    prefix: String,
}

fn arguments() -> Option<Arguments> {
    let mut words = std::env::args().skip(1);
    let (flag, port) = (words.next()?, words.next()?);
    if flag != "-p" {
        return None;
    }
    let folder = words.next()?.into();
    let prefix = words.next().unwrap_or_else(|| "/".to_owned());
    Some(Arguments { port: port.parse().ok()?, folder, prefix })
}

fn main() -> Result<(), Failure> {
    let Some(arguments) = arguments() else {
        return Err("usage: serve_folder -p PORT FOLDER [PREFIX]".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(16)
        .enable_all()
        .build()?;
    runtime.block_on(listen(arguments))
}

async fn listen(arguments: Arguments) -> Result<(), Failure> {
    let refused = |trouble| format!("{trouble:?}");
    let storage = Arc::new(PosixStorage::new(&arguments.folder).map_err(refused)?);
    let prefix = StoragePath::new(arguments.prefix.as_bytes()).map_err(refused)?;
    let mut exports = Exports::default();
    let manner = Manner { is_quick: true, is_read_only: false };
    exports.add(&prefix, storage, manner).map_err(refused)?;
    let logical = Arc::new(Logical::new(Settings::default(), exports));
    tokio::spawn(Arc::clone(&logical).keep_tidy());
    let shared = Arc::new(Shared::new(logical, Authenticator::open()));
    let listener = TcpListener::bind(("127.0.0.1", arguments.port)).await?;
    println!("listening on port {}", listener.local_addr()?.port());
    std::io::stdout().flush()?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream, Arc::clone(&shared)))),
            // Such as too many open files: connections wait until there are fewer.
            Err(error) => {
                eprintln!("cannot accept: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

//! Serves a plain folder over `root://`, to everybody: for tests and measurements.
//!
//! ```text
//! serve_folder -p PORT FOLDER [CERTIFICATE KEY]
//! ```
//!
//! With a certificate and its key, files in PEM format, all sessions must be encrypted. It listens on the loopback address, tells its port in a line on standard output (port 0 takes any
//! free one), and ends when it is killed.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use femtobarn_server::auth::Authenticator;
use femtobarn_server::config::Tls;
use femtobarn_server::logical::exports::{Exports, Manner};
use femtobarn_server::logical::{Logical, Settings};
use femtobarn_server::physical::{PosixStorage, StoragePath};
use femtobarn_server::protocol::xroot::{Shared, serve};
use femtobarn_server::tls::server_config;
use tokio::net::TcpListener;

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    port: u16,
    folder: PathBuf,
    tls: Tls,
}

fn arguments() -> Option<Arguments> {
    let mut words = std::env::args().skip(1);
    let (flag, port) = (words.next()?, words.next()?);
    if flag != "-p" {
        return None;
    }
    let folder = words.next()?.into();
    let certificate = words.next().unwrap_or_default();
    let required = !certificate.is_empty();
    let key = words.next().unwrap_or_default().into();
    let tls = Tls { certificate: certificate.into(), key, required };
    Some(Arguments { port: port.parse().ok()?, folder, tls })
}

fn main() -> Result<(), Failure> {
    let Some(arguments) = arguments() else {
        return Err("usage: serve_folder -p PORT FOLDER [CERTIFICATE KEY]".into());
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
    let top = StoragePath::new(b"/").map_err(refused)?;
    let mut exports = Exports::default();
    let manner = Manner { is_quick: true, is_read_only: false };
    exports.add(&top, storage, manner).map_err(refused)?;
    let logical = Arc::new(Logical::new(Settings::default(), exports));
    tokio::spawn(Arc::clone(&logical).keep_tidy());
    let mut shared = Shared::new(logical, Authenticator::open());
    shared.tls = server_config(&arguments.tls)?;
    shared.requires_tls = arguments.tls.required;
    let shared = Arc::new(shared);
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

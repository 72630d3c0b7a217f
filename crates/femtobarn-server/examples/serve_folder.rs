//! Serves a plain folder over `root://` with all rights for every client, for tests and measurements. It is exported as
//! `/`, or as `NAME`.
//!
//! ```text
//! serve_folder -p PORT FOLDER[=NAME] [CERTIFICATE KEY]
//! ```
//!
//! With a certificate and its key, files in PEM format, all sessions must be encrypted. It listens on the loopback
//! address, prints its port in a line on standard output (port 0 takes any free one), and runs until it is killed.

use std::io::Write;

use femtobarn_server::Server;
use femtobarn_server::config::{Allowed, AuthConfig, Config, ExportConfig, TlsConfig};

type Failure = Box<dyn std::error::Error>;

fn config() -> Option<Config> {
    let mut words = std::env::args().skip(1);
    let (flag, port) = (words.next()?, words.next()?);
    let folder = words.next()?;
    let (folder, name) = folder.split_once('=').unwrap_or((&folder, "/"));
    let (folder, name) = (folder.into(), name.to_owned());
    let certificate = words.next().unwrap_or_default();
    let required = !certificate.is_empty();
    let key = words.next().unwrap_or_default().into();
    let export = ExportConfig {
        folder,
        name,
        read_only: false,
        cache: None,
        throttle: None,
        faults: vec![],
    };
    (flag == "-p").then_some(Config {
        address: "127.0.0.1".to_owned(),
        port: port.parse().ok()?,
        exports: vec![export],
        auth: AuthConfig { anonymous: Allowed::All, ..AuthConfig::default() },
        tls: TlsConfig { certificate: certificate.into(), key, required, ..TlsConfig::default() },
        ..Config::default()
    })
}

fn main() -> Result<(), Failure> {
    let config = config().ok_or("usage: serve_folder -p PORT FOLDER[=NAME] [CERTIFICATE KEY]")?;
    let server = Server::start(config)?;
    println!("listening on port {}", server.address().port());
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

//! The server: three replaceable layers behind one port.
//!
//! | layer | module | contents |
//! |---|---|---|
//! | protocol | [`protocol`] | bytes on a connection: `root://`, gRPC, HTTP |
//! | logical | [`logical`] | the name space, open files, sessions, catalogues |
//! | physical | [`physical`] | trees of files: POSIX folders, federations, throttled and faulty storages |
//!
//! A layer knows only the ones below it. [`auth`] checks identities and rights, [`config`] is the operator's
//! configuration; [`Server`] builds the layers from a [`Config`] and runs them, and reports its [`status`].
//!
//! ```
//! use femtobarn_server::{Config, Server};
//!
//! let folder = tempfile::tempdir()?;
//! let mut config = Config { address: "127.0.0.1".into(), port: 0, ..Config::default() };
//! config.export(folder.path().to_owned(), "/store".to_owned());
//! let server = Server::start(config)?;
//! println!("root://{}//store", server.address());
//! server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod auth;
mod client_shares;
pub mod config;
pub mod logging;
pub mod logical;
mod network;
pub mod physical;
pub mod protocol;
mod server;
pub mod status;
pub mod tls;

pub use config::Config;
pub use protocol::http::mounts::{Mount, ServedFederation};
pub use server::{Server, StartError};

//! The server: three layers that can be replaced, behind one port.
//!
//! | layer | module | what it knows |
//! |---|---|---|
//! | protocol | [`protocol`] | bytes on a connection: `root://`, gRPC, HTTP |
//! | logical | [`logical`] | names, open files, sessions, who may do what |
//! | physical | [`physical`] | files: POSIX, memory, throttled and failing ones |
//!
//! A layer knows only the one below it. [`Server`] makes them of a [`Config`] and runs them.
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
pub mod config;
mod exporting;
pub mod logging;
pub mod logical;
mod monitoring;
pub mod physical;
pub mod protocol;
mod server;
pub mod status;
pub mod tls;

pub use config::Config;
pub use server::{Server, StartError};

//! A client of PostgreSQL: its address, its connections, and its errors by SQLSTATE.
//!
//! 1. It blocks its thread, and has no thread or runtime of its own: it may be used on any thread, and after a fork.
//! 2. Behind a pooler nothing is set for a session, and no statement has a name, so that a pooler which gives every
//!    transaction another connection (pgbouncer in transaction mode) may stand between. A pooler is recognised by the
//!    process that the log-in reports, which is not that of the server.
//! 3. Only statements that are sent outside of a transaction and without `COMMIT` are sent again, over a new
//!    connection, if the first one is lost.
//! 4. Neither an error nor a `Debug` text has a password.
//!
//! Messages are encoded and decoded by `postgres-protocol`.
//!
//! Modules, from below: `failure`; `address`, a URL; `password_file`; `tls`; `stream`, sockets; `parameters`; `statements`,
//! which the server keeps; `wire`, messages and the log-in; `session`, a connection as its users have it.

mod address;
mod failure;
mod parameters;
mod password_file;
mod session;
mod statements;
mod stream;
mod tls;
mod wire;

pub(crate) use address::PostgresAddress;
pub(crate) use failure::PostgresFailure;
pub(crate) use parameters::Parameters;
pub(crate) use session::{CommitAnswer, PostgresConnection, PostgresRow};

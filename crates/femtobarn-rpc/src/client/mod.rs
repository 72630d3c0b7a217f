//! A client of a catalogue's server, which implements `femtobarn-catalog`'s `Catalogue`.
//!
//! | module | contents |
//! |---|---|
//! | `options`, `address` | how the server is reached; where it is, and which federation |
//! | `ledger` | the locks and pins that the session holds and waits for |
//! | `failure` | why a call was not answered, and whether waiting may help |
//! | `session` | the task that keeps the session open |
//! | `calls` | single calls, sent again where that does no harm |
//! | `remote`, `catalogue`, `locks` | [`RemoteCatalogue`], its methods, and its locks and pins |
//!
//! Invariants:
//! 1. A call that was not answered is sent again until it is answered or the client's patience is over. A
//!    transaction that is sent again is marked as such, and is not published twice.
//! 2. The session outlives connections and the server: it is opened again under the same id and claims its locks and
//!    pins. A transaction that lost a database's lock in between fails.
//! 3. Rows as of a commit never change, and are cached. All others are asked for each time.
//! 4. One thread does all communication; callers wait for it. A forked child has no such thread, and gets an error.

mod address;
mod calls;
mod catalogue;
mod failure;
mod ledger;
mod locks;
mod options;
mod remote;
mod session;

pub use address::Address;
pub use catalogue::ReportedLoad;
pub use options::ConnectOptions;
pub use remote::RemoteCatalogue;

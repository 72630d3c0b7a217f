//! A client of a catalogue's server, which implements `femtobarn-catalog`'s `Catalogue`.
//!
//! | module | contents |
//! |---|---|
//! | `options`, `address`, `endpoint` | how the server is reached; its address, and which federation |
//! | `ledger` | the locks and pins that the session holds and waits for |
//! | `failure` | why a call was not answered, and whether waiting may help |
//! | `direct_socket`, `direct`, `reception` | direct connections; which thread reads them |
//! | `turn_stream` | turns by gRPC, with servers that have no direct connections |
//! | `places` | the server that has the session, and the servers to try next |
//! | `session`, `opening` | the task that keeps the session open; each opening of it |
//! | `attempts`, `calls` | single calls, sent again where that does no harm |
//! | `home_session`, `homes` | the sessions with the homes of databases, if the federation has several servers |
//! | `remote`, `catalogue`, `following`, `locks` | [`RemoteCatalogue`]; its methods as a catalogue, for followers, and for locks and pins |
//!
//! Invariants:
//! 1. A call that was not answered is sent again until it is answered or the client's patience is over. A
//!    transaction that is sent again is marked as such, and is not published twice.
//! 2. The session outlives connections and the server: it is opened again under the same id and claims its locks and
//!    pins. A transaction that lost a database's lock in between fails.
//! 3. Rows as of a commit never change, and are cached. All other rows are requested each time.
//! 4. The calling threads write to the session's direct connection and read it themselves; for gRPC they wait for one
//!    thread that does both. A forked child can use neither, and gets an error.

mod address;
mod attempts;
mod calls;
mod catalogue;
mod direct;
mod direct_socket;
mod endpoint;
mod failure;
mod following;
mod home_session;
mod homes;
mod ledger;
mod locks;
mod opening;
mod options;
mod places;
mod reception;
mod remote;
mod session;
mod turn_stream;

pub use address::Address;
pub use following::ReportedLoad;
pub use options::ConnectOptions;
pub use remote::RemoteCatalogue;

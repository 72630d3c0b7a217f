//! The catalogue service of a federation: sessions of remote clients, with their locks, pins and commits.
//!
//! | module | contents |
//! |---|---|
//! | `state` | the locks and pins of a session, and the writes that use its locks |
//! | `session` | one client's session: its state, and the outcomes that are not sent yet |
//! | `uncommitted` | the files of databases that are not committed yet |
//! | `publisher` | group commit over all sessions |
//! | `followers`, `follower_probe` | copies at other servers, and their load |
//! | `site` | the lease of this server, if the federation has several, and the databases whose home it is |
//! | `new_databases` | the server that gets a new database |
//! | `home_redirects`, `reached_servers` | redirects of clients to the home of a database |
//! | `service` | [`FederationService`], which owns all of these |
//! | `operations`, `pins` | locks and pins of sessions |
//! | `homes` | locks at the home of their database, and their fences |
//! | `arrivals` | databases that move between this server and others |
//! | `lease`, `reacquisition` | how sessions begin, are resumed, and end; the locks that they claim |
//! | `file_extension` | space at the ends of files |
//! | `write_permit` | which sessions may write to databases' files |
//! | `other_servers` | deadlocks over several servers of a federation, and the surveys that these exchange |
//! | `sweep` | removal of files of databases that were not committed |
//!
//! The modules from `operations` on add methods to the service.
//!
//! Invariants:
//! 1. When a session has ended, all its locks and pins are free. It ends a lease after its client fell silent, or a
//!    grace period after its client's connection was closed.
//! 2. A transaction is published only while its session holds the databases that it wrote to, because their space may
//!    be given to other writers as soon as no session holds them.
//! 3. A transaction is published once, however often it is sent.
//! 4. Writes to a database's file through this server are admitted only for a session that holds the database, in the
//!    epoch in which the file was opened. A lock is not freed before the writes of its session have ended.
//!
//! Lock order: sessions, then the state of one of them, then uncommitted files, the lock table, and the kernel's locks.
//! A thread that grants locks holds neither of the first two.

mod arrivals;
mod dropped_homes;
mod file_extension;
mod follower_probe;
mod followers;
mod home_redirects;
mod homes;
mod lease;
mod new_databases;
mod operations;
mod other_servers;
mod pins;
mod publisher;
mod reached_servers;
mod reacquisition;
mod service;
mod session;
mod site;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod uncommitted;
mod write_permit;

pub use arrivals::MoveProgress;
pub use follower_probe::{is_at_local_address, watch_followers};
pub use followers::{CopyServer, Followers, KnownFollower};
pub use lease::Welcome;
pub use operations::SessionOperation;
pub use other_servers::watch_deadlocks;
pub use publisher::Publisher;
pub use service::FederationService;
pub use session::{CatalogueSession, OperationOutcome, SessionClaims};
pub use site::{DatabasePlace, Site};
pub use state::Granted;

//! A federation for programs that do not know Femtobarn: its databases, each as a complete ROOT file as of a snapshot.
//!
//! 1. The top lists every database as `NAME.root`. Opaque `fb.csn=41` names a snapshot, `fb.tag=NAME` a tag; without
//!    them, each request uses the newest snapshot.
//! 2. An open file never changes: its snapshot is pinned for as long as it is open.
//! 3. A database that is sealed or attached in that snapshot is served from its own file. For an open one the front and
//!    the end of the file are synthesised. The same commits give the same bytes, at any time.
//! 4. Only Femtobarn's clients change anything. With `fb.raw=1`, a path below `/databases` is a database's file as it
//!    is on disk: it can be read, written and created, and removed as long as it belongs to no database. Any other path
//!    is the file of the database of that name.
//! 5. A nearline database is read in its store, if the store allows that. Otherwise opening it brings it back, and the
//!    client is asked to retry.
//! 6. A writer names its database and session (`fb.database=7&fb.session=UUID`), and may write only while [`Writers`]
//!    admit it; likewise for removing a file whose database may still be committed.
//!
//! `storage` is the storage, `raw` its access to files as they are on disk, `recalls` its handling of nearline
//! databases (`nearline` is one of them, `in_place` reads it in its store), `request` and `error` its keys and errors;
//! `snapshot_file` is an open database. `synthesis` makes the missing parts within a `budget`, and `composite` joins
//! them with the file; `source` reads it, `guarded` writes it.

mod budget;
mod composite;
mod error;
mod guarded;
mod in_place;
mod nearline;
mod raw;
mod recalls;
mod request;
mod snapshot_file;
mod source;
mod storage;
mod synthesis;

pub use guarded::{FilesElsewhere, Permit, Writers};
pub use in_place::InPlaceCounts;
pub use storage::FederationStorage;

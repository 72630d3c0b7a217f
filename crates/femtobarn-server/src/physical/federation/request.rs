//! Opaque information of requests to a federation, and the paths below its folder.
//!
//! | key | meaning |
//! |---|---|
//! | `fb.csn=41`, `fb.tag=NAME` | the snapshot that is read |
//! | `fb.raw=1` | the database's file as it is on disk |
//! | `fb.here=1` | the file at this server, whatever the home of the database, to read it with `fb.raw=1`; of a list, the files on its disk |
//! | `fb.database=7`, `fb.session=UUID` | the database that is written to, and the session that holds it |
//!
//! [Hints](crate::physical::Hints) decide which files are brought back from their stores first, and are passed on to
//! the folder.

use std::path::Path;

use femtobarn_archive::is_staging_path;
use femtobarn_catalog::{Csn, DATABASES_FOLDER, DatabaseId, DatabaseRow, is_database_path};
use uuid::Uuid;

use crate::physical::{Opaque, StoragePath};

/// Whether a request is for a database's file as it is on disk.
pub(super) fn is_raw(opaque: Opaque<'_>) -> bool {
    opaque.value_of("fb.raw") == Some(b"1")
}

/// Whether a request is for the file at this server, which need not be the home of the database.
pub(super) fn is_for_this_server(opaque: Opaque<'_>) -> bool {
    opaque.value_of("fb.here") == Some(b"1")
}

/// The number of the requested snapshot.
pub(super) fn csn_of(opaque: &Opaque<'_>) -> Option<Csn> {
    text_of(opaque, "fb.csn")?.parse().ok().map(Csn)
}

/// The database that the writer names.
pub(super) fn database_of(opaque: &Opaque<'_>) -> Option<DatabaseId> {
    text_of(opaque, "fb.database")?.parse().ok().map(DatabaseId)
}

/// The session that the writer names.
pub(super) fn session_of(opaque: &Opaque<'_>) -> Option<Uuid> {
    Uuid::parse_str(text_of(opaque, "fb.session")?).ok()
}

fn text_of<'a>(opaque: &'a Opaque<'_>, key: &str) -> Option<&'a str> {
    std::str::from_utf8(opaque.value_of(key)?).ok()
}

/// Whether a path below the federation's folder is the file of this database.
pub(super) fn is_file_of(row: &DatabaseRow, path: &StoragePath) -> bool {
    row.path.as_bytes() == &path.as_bytes()[1..]
}

/// Whether a path is the folder of databases.
pub(super) fn is_databases_folder(path: &StoragePath) -> bool {
    path.as_bytes().strip_prefix(b"/") == Some(DATABASES_FOLDER.as_bytes())
}

/// Whether a path may be that of a database's file, or of a folder of such files. A file that is being staged belongs
/// to the archive only.
pub(super) fn is_below_databases(path: &StoragePath) -> bool {
    let below = std::str::from_utf8(&path.as_bytes()[1..]);
    below.is_ok_and(|below| is_database_path(below) && !is_staging_path(Path::new(below)))
}

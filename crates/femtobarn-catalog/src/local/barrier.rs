//! The barrier between commits that are sent to PostgreSQL without the catalogue's lock, and changes and look-ups that had the
//! lock before them.
//!
//! Such a commit is sent together with the request for the lock ([`postgres_group`](super::postgres_group)). Its process may
//! die before the lock is granted. A look-up that has the lock meanwhile does not find the commit, and must not be wrong
//! about that later.
//!
//! 1. The barrier changes with each change that is no commit ([`note_change`](super::change_reports::note_change)), and with each
//!    look-up that finds no commit, in a transaction that has the lock.
//! 2. A commit that is sent without the lock has no effect unless the barrier is still the one that its process knew when it
//!    was sent. So whatever is decided under the lock is not overtaken by commits that were sent before.
//! 3. Commits do not change it: no row is updated by every commit.

use uuid::Uuid;

use crate::sql::{SqlConnection, SqlResult};

/// The barrier, as an expression of PostgreSQL.
macro_rules! barrier {
    () => {
        "(SELECT coalesce(string_agg(value, ' ' ORDER BY key), '') FROM federation \
         WHERE key IN ('changes', 'lookups'))"
    };
}
pub(super) use barrier;

const NOTE_LOOKUP: &str = "INSERT INTO federation (key, value) VALUES ('lookups', ?1) ON CONFLICT (key) \
    DO UPDATE SET value = excluded.value";

/// Changes the barrier, in the transaction that is open on `sql`, which has looked up a commit and not found it.
pub(super) fn note_lookup(sql: &SqlConnection) -> SqlResult<()> {
    sql.prepare_cached(NOTE_LOOKUP)?.execute_with_next([Uuid::new_v4().simple().to_string()])
}

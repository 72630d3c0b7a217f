//! Who may change a catalogue: its own users, its leader's rows, or nobody.

use crate::error::Error;
use crate::sql::{OptionalExtension, SqlConnection, SqlResult};

/// The setting that says whom this catalogue follows.
pub(super) const LEADER: &str = "follows";
/// The setting that says who leads the federation instead of this catalogue.
pub(super) const SUCCESSOR: &str = "successor";

/// Who changes a catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its own users.
    Leader,
    /// The rows of another one.
    Follower {
        /// The URL of that one.
        of: String,
    },
    /// Nobody: another one leads the federation.
    Succeeded {
        /// The URL of that one.
        by: String,
    },
}

/// Checks that the users of a catalogue may change it.
pub(super) fn check_leader(sql: &SqlConnection) -> SqlResult<()> {
    match role(sql)? {
        Role::Leader => Ok(()),
        Role::Follower { of } => {
            let what = format!(
                "this copy of the federation follows {of} and takes no changes; make them there, or \
                 promote the copy (femtobarn promote)"
            );
            Err(Error::denied(what).into())
        }
        Role::Succeeded { by } => {
            let what = format!("the federation is led by {by} now; make changes there");
            Err(Error::denied(what).into())
        }
    }
}

/// Checks that rows of a leader may change a catalogue.
pub(super) fn check_follower(sql: &SqlConnection) -> SqlResult<()> {
    match role(sql)? {
        Role::Follower { .. } => Ok(()),
        Role::Leader | Role::Succeeded { .. } => {
            Err(Error::denied("this copy of the federation follows no other any more").into())
        }
    }
}

pub(super) fn role(sql: &SqlConnection) -> SqlResult<Role> {
    let mut found = sql.prepare_cached(
        "SELECT key, value FROM federation WHERE key IN ('follows', 'successor') \
         ORDER BY key DESC LIMIT 1",
    )?;
    let row = found.query_row([], |row| Ok((row.get(0)?, row.get(1)?)));
    let row: Option<(String, String)> = row.optional()?;
    Ok(match row {
        None => Role::Leader,
        Some((key, by)) if key == SUCCESSOR => Role::Succeeded { by },
        Some((_, of)) => Role::Follower { of },
    })
}

//! Who may change a catalogue: its own users, its leader's rows, or nobody; and whether it is the one that the federation
//! uses, or one from which or to which that moves.

use super::settings::{set_text, text};
use crate::error::Error;
use crate::schema::{FORMAT_WITH_ROLES, raise_format};
use crate::sql::{SqlConnection, SqlResult};

/// The setting that says whom this catalogue follows.
pub(super) const LEADER: &str = "follows";
/// The setting that says who leads the federation instead of this catalogue.
pub(super) const SUCCESSOR: &str = "successor";
/// The setting that says how far a catalogue has moved: [`ARRIVING`], [`ARRIVED`], [`LEAVING`] or [`LEFT`]. A catalogue
/// that does not move does not have it.
pub(super) const MOVE: &str = "move";
/// Rows are copied into this catalogue, which nobody uses before it has all of them.
const ARRIVING: &str = "arriving";
/// It has all of them, and is used if the federation's folder says so.
const ARRIVED: &str = "arrived";
/// Another catalogue has the same rows, and is about to be used instead. If that does not happen, this one stays in use.
const LEAVING: &str = "leaving";
/// Another catalogue is used instead.
const LEFT: &str = "left";

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

/// How far a catalogue has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MovePhase {
    /// Rows are copied into it.
    Arriving,
    /// It has all rows.
    Arrived,
    /// Another one has all its rows.
    Leaving,
    /// Another one is used instead.
    Left,
}

/// Checks that the users of a catalogue may change it.
pub(super) fn check_leader(sql: &SqlConnection) -> SqlResult<()> {
    check_in_use(sql)?;
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
    check_in_use(sql)?;
    match role(sql)? {
        Role::Follower { .. } => Ok(()),
        Role::Leader | Role::Succeeded { .. } => {
            Err(Error::denied("this copy of the federation follows no other any more").into())
        }
    }
}

/// Checks that this catalogue is the one that the federation uses.
///
/// # Errors
/// [`Error::Moving`] while it moves to another place; [`Error::Closed`] if it has moved.
pub(super) fn check_in_use(sql: &SqlConnection) -> SqlResult<()> {
    if phase(sql)? == Some(MovePhase::Leaving) {
        return Err(Error::Moving.into());
    }
    check_complete(sql)
}

/// Checks that this catalogue has all commits, or will have them.
///
/// # Errors
/// [`Error::Closed`] if it has moved, or rows are still copied into it.
pub(super) fn check_complete(sql: &SqlConnection) -> SqlResult<()> {
    let what = match phase(sql)? {
        None | Some(MovePhase::Arrived | MovePhase::Leaving) => return Ok(()),
        Some(MovePhase::Arriving) => {
            "this catalogue does not have all rows of the one that was being moved here; put the file of the \
             federation's folder back that says where that is (catalogue.toml), and move it again"
                .to_owned()
        }
        Some(MovePhase::Left) => {
            let to = new_place(sql)?.unwrap_or_default();
            format!(
                "this catalogue was moved to {to} and may lack newer commits; put the file of the federation's \
                 folder back that says where it is now (catalogue.toml, or catalogue.sqlite)"
            )
        }
    };
    Err(Error::closed(what).into())
}

/// How far the catalogue has moved.
pub(super) fn phase(sql: &SqlConnection) -> SqlResult<Option<MovePhase>> {
    Ok(match text(sql, MOVE)?.as_deref() {
        Some(ARRIVING) => Some(MovePhase::Arriving),
        Some(ARRIVED) => Some(MovePhase::Arrived),
        Some(LEAVING) => Some(MovePhase::Leaving),
        Some(_) => Some(MovePhase::Left),
        None => None,
    })
}

/// Where a catalogue moves to, or was moved to.
pub(super) fn new_place(sql: &SqlConnection) -> SqlResult<Option<String>> {
    text(sql, SUCCESSOR)
}

/// Sets how far the catalogue has moved, and `to` where. A release that does not know this takes the new place for the URL
/// of a leader that succeeds this one.
pub(super) fn set_phase(sql: &SqlConnection, phase: Option<MovePhase>, to: &str) -> SqlResult<()> {
    let (text, successor) = match phase {
        None => (None, None),
        Some(MovePhase::Arriving) => (Some(ARRIVING), None),
        Some(MovePhase::Arrived) => (Some(ARRIVED), None),
        Some(MovePhase::Leaving) => (Some(LEAVING), Some(to)),
        Some(MovePhase::Left) => (Some(LEFT), Some(to)),
    };
    set_text(sql, MOVE, text)?;
    set_text(sql, SUCCESSOR, successor)?;
    if successor.is_some() { raise_format(sql, FORMAT_WITH_ROLES) } else { Ok(()) }
}

pub(super) fn role(sql: &SqlConnection) -> SqlResult<Role> {
    let mut found = sql.prepare_cached(
        "SELECT key, value FROM federation WHERE key IN ('follows', 'move', 'successor') ORDER BY key",
    )?;
    let mut rows = found.query([])?;
    let (mut role, mut moves) = (Role::Leader, false);
    while let Some(row) = rows.next()? {
        let (key, value): (String, String) = (row.get(0)?, row.get(1)?);
        match &*key {
            LEADER => role = Role::Follower { of: value },
            MOVE => moves = true,
            // One that moves has no successor.
            _ if moves => {}
            _ => role = Role::Succeeded { by: value },
        }
    }
    Ok(role)
}

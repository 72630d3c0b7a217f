//! The role of a catalogue: whether it accepts changes of its own users, only rows of its leader, or none; and whether
//! the federation uses it, or it is the source or the target of a move.

use super::settings::{set_text, text};
use crate::error::Error;
use crate::schema::{FORMAT_WITH_ROLES, raise_format};
use crate::sql::{SqlConnection, SqlResult};

/// The setting for the URL of the leader that this catalogue follows.
pub(super) const LEADER: &str = "follows";
/// The setting for the URL of the leader that has succeeded this catalogue.
pub(super) const SUCCESSOR: &str = "successor";
/// The setting for the phase of a catalogue's move: [`ARRIVING`], [`ARRIVED`], [`LEAVING`] or [`LEFT`]. It does not
/// exist in a catalogue that does not move.
pub(super) const MOVE: &str = "move";
/// Rows are being copied into this catalogue, which is not used before it has all of them.
const ARRIVING: &str = "arriving";
/// This catalogue has all rows, and is used if the federation's folder names it.
const ARRIVED: &str = "arrived";
/// Another catalogue has the same rows, and is about to be used instead. If that does not happen, this one stays in use.
const LEAVING: &str = "leaving";
/// Another catalogue is used instead.
const LEFT: &str = "left";

/// The changes that a catalogue accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Those of its own users.
    Leader,
    /// Only the rows of its leader.
    Follower {
        /// The URL of the leader.
        of: String,
    },
    /// None: another catalogue leads the federation.
    Succeeded {
        /// The URL of the successor.
        by: String,
    },
}

/// The phase of a catalogue's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MovePhase {
    /// Rows are being copied into the new catalogue.
    Arriving,
    /// The new catalogue has all rows.
    Arrived,
    /// The new catalogue has all rows of this old one.
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
            Err(Error::denied("this copy of the federation does not follow a leader any more")
                .into())
        }
    }
}

/// Checks that the federation uses this catalogue.
///
/// # Errors
/// [`Error::Moving`] while it moves to another place; [`Error::Closed`] after it has moved.
pub(super) fn check_in_use(sql: &SqlConnection) -> SqlResult<()> {
    if phase(sql)? == Some(MovePhase::Leaving) {
        return Err(Error::Moving.into());
    }
    check_complete(sql)
}

/// Checks that this catalogue has all rows: none are still being copied into it, and the federation has not left it.
///
/// # Errors
/// [`Error::Closed`] if the catalogue has moved, or rows are still being copied into it.
pub(super) fn check_complete(sql: &SqlConnection) -> SqlResult<()> {
    let what = match phase(sql)? {
        None | Some(MovePhase::Arrived | MovePhase::Leaving) => return Ok(()),
        Some(MovePhase::Arriving) => {
            "this catalogue lacks rows of the one that was being moved here; restore the file in the federation's \
             folder that names the place of that one (catalogue.toml), and move it again"
                .to_owned()
        }
        Some(MovePhase::Left) => {
            let to = new_place(sql)?.unwrap_or_default();
            format!(
                "this catalogue was moved to {to} and may lack newer commits; restore the file in the federation's \
                 folder that names its present place (catalogue.toml, or catalogue.sqlite)"
            )
        }
    };
    Err(Error::closed(what).into())
}

/// The phase of the catalogue's move, if it moves.
pub(super) fn phase(sql: &SqlConnection) -> SqlResult<Option<MovePhase>> {
    Ok(match text(sql, MOVE)?.as_deref() {
        Some(ARRIVING) => Some(MovePhase::Arriving),
        Some(ARRIVED) => Some(MovePhase::Arrived),
        Some(LEAVING) => Some(MovePhase::Leaving),
        Some(_) => Some(MovePhase::Left),
        None => None,
    })
}

/// The place that a catalogue moves to, or has moved to.
pub(super) fn new_place(sql: &SqlConnection) -> SqlResult<Option<String>> {
    text(sql, SUCCESSOR)
}

/// Sets the phase of the catalogue's move, and its new place `to`. A release that does not know moves takes the new
/// place for the URL of a leader that succeeds this one.
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
            // A catalogue that moves has no successor.
            _ if moves => {}
            _ => role = Role::Succeeded { by: value },
        }
    }
    Ok(role)
}

//! Failures of PostgreSQL, classified by SQLSTATE by what a caller can do. Its texts, which may be in any language, are
//! shown and never parsed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::sql::BUSY_WAIT;

/// The constraint by which two versions of a container cannot follow the same one.
pub(crate) const VERSIONS_BY_BASE: &str = "versions_by_base";

/// Why PostgreSQL failed.
#[derive(Debug)]
pub(crate) struct PostgresFailure {
    /// The server and its database, for people.
    pub(super) server: Arc<str>,
    pub(super) cause: Cause,
}

/// The cause of a failure.
#[derive(Debug)]
pub(super) enum Cause {
    /// The connection could not be made, or was lost.
    Lost(String),
    /// The server cannot or may not be used, for example because of its certificate; asking again does not help. The
    /// text has the remedy.
    Untrusted(String),
    /// The server's answer is not of the protocol, or a value cannot be sent.
    Malformed(String),
    /// The server refused with this SQLSTATE.
    Refused { code: String, message: String, constraint: Option<String>, is_fatal: bool },
}

impl Cause {
    /// That of a socket that failed.
    pub(super) fn of_socket(error: &io::Error) -> Self {
        Cause::Lost(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                "it has not answered in time".to_owned()
            }
            _ => error.to_string(),
        })
    }
}

impl PostgresFailure {
    /// Whether the connection is of no use any more.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.cause {
            Cause::Lost(_) | Cause::Untrusted(_) | Cause::Malformed(_) => true,
            Cause::Refused { code, is_fatal, .. } => *is_fatal || code.starts_with("08"),
        }
    }

    /// Whether the server may take connections soon: it is starting, being promoted, or has too many.
    pub(super) fn is_passing(&self) -> bool {
        match &self.cause {
            Cause::Lost(_) => true,
            Cause::Untrusted(_) | Cause::Malformed(_) => false,
            Cause::Refused { code, .. } => {
                code.starts_with("08") || matches!(&**code, "57P01" | "57P02" | "57P03" | "53300")
            }
        }
    }

    /// Whether running the transaction again may succeed: others were in its way.
    pub(crate) fn is_contention(&self) -> bool {
        matches!(&self.cause, Cause::Refused { code, .. } if matches!(&**code, "40001" | "40P01"))
    }

    pub(crate) fn is_constraint(&self) -> bool {
        matches!(&self.cause, Cause::Refused { code, .. } if code.starts_with("23"))
    }

    /// Whether the server refuses values of the statement or too many of them, so that it may take it with others.
    pub(crate) fn is_of_values(&self) -> bool {
        let is_one = |code: &str| ["22", "23", "54"].iter().any(|class| code.starts_with(class));
        matches!(&self.cause, Cause::Refused { code, .. } if is_one(code))
    }

    /// The error of the catalogue whose address is in the file `path`.
    pub(crate) fn into_error(self, path: &Path) -> Error {
        let what = format!("catalogue in {}", self.server);
        let (code, message, constraint) = match self.cause {
            Cause::Lost(reason) => {
                return Error::Unavailable {
                    what: format!("{what} does not answer ({reason}); try again when it does"),
                };
            }
            Cause::Untrusted(reason) => {
                return Error::denied(format!("{what} is not talked to: {reason}"));
            }
            Cause::Malformed(reason) => return Error::internal(format!("{what}: {reason}")),
            Cause::Refused { code, message, constraint, .. } => (code, message, constraint),
        };
        match &*code {
            "57P01" | "57P02" | "57P03" => {
                let advice = "it is starting or stopping; try again";
                Error::Unavailable {
                    what: format!("{what} takes no statements: {message}; {advice}"),
                }
            }
            "53300" => Error::Unavailable {
                what: format!(
                    "{what} has too many connections ({message}); try again, raise max_connections, or put \
                     a pooler before it"
                ),
            },
            "55P03" | "57014" => Error::Busy { what, holder: None, waited: BUSY_WAIT },
            "53100" | "53200" | "54000" => {
                Error::Full { path: PathBuf::from(self.server.as_ref()) }
            }
            "28P01" | "28000" => Error::denied(format!(
                "{what} refuses the log-in ({message}); set PGPASSWORD, or add the password to the file \
                 ~/.pgpass, which its owner alone may read"
            )),
            "25006" => Error::denied(format!(
                "{what} is read-only, as a standby is; nothing was committed; name the primary server, or \
                 add target_session_attrs=read-write to the URL in {}",
                path.display()
            )),
            "42501" => Error::denied(format!(
                "{what}: {message}; an administrator of the database has to grant this (to create a \
                 federation: GRANT CREATE ON DATABASE)"
            )),
            "3D000" => {
                Error::invalid(format!("{what}: {message}; create the database first (createdb)"))
            }
            "42P01" | "3F000" => Error::closed(format!(
                "{what} is not there any more ({message}); it was dropped or moved: open the federation again"
            )),
            "40001" | "40P01" => Error::changed(format!("{what}: {message}")),
            "23505" if constraint.as_deref() == Some(VERSIONS_BY_BASE) => {
                Error::changed("a container has a newer version than this transaction read")
            }
            "22021" => Error::invalid(format!("{what} takes no text with a NUL: {message}")),
            _ if code.starts_with("XX") => Error::corrupt(path, format!("{what}: {message}")),
            _ if code.starts_with("08") => {
                Error::Unavailable { what: format!("{what} does not answer: {message}; try again") }
            }
            _ if code.starts_with("23") => {
                Error::internal(format!("{what}: constraint {constraint:?}: {message}"))
            }
            _ => Error::internal(format!("{what}: SQLSTATE {code}: {message}")),
        }
    }
}

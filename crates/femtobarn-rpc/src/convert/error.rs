//! Errors as messages, and back. In outcomes an error is a message of its own; elsewhere it is in the details of a gRPC
//! status, which is itself a message in the turns of direct connections.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{Csn, Error};
use prost::Message;
use tonic::{Code, Status};

use crate::v1::failure::Of;
use crate::v1::{self, Failure, Missing};

/// The kinds of objects in errors, as the static texts that the catalogue's errors have.
const OBJECT_KINDS: [&str; 9] = [
    "database",
    "container",
    "class",
    "tag",
    "commit",
    "snapshot",
    "version",
    "federation",
    "server",
];

/// An error as a message.
pub fn failure_of(error: &Error) -> Failure {
    Failure { of: Some(reason_of(error)), denied: matches!(error, Error::Denied { .. }) }
}

/// An error as the status of a call.
pub fn status_of(error: &Error) -> Status {
    status(&failure_of(error), error.to_string())
}

/// The status of a call from a message. The text is for users of other clients.
pub(crate) fn status(failure: &Failure, text: String) -> Status {
    let code = match &failure.of {
        Some(Of::Closed(_)) if failure.denied => Code::PermissionDenied,
        Some(Of::Conflict(_) | Of::Changed(_) | Of::Deadlock(_)) => Code::Aborted,
        Some(Of::NotFound(_) | Of::NoFederation(_)) => Code::NotFound,
        Some(Of::Exists(_)) => Code::AlreadyExists,
        Some(Of::Busy(_)) => Code::DeadlineExceeded,
        Some(Of::Unavailable(_) | Of::Elsewhere(_)) => Code::Unavailable,
        Some(Of::Invalid(_)) => Code::InvalidArgument,
        Some(Of::Corrupt(_) | Of::Io(_)) => Code::DataLoss,
        Some(Of::Unsupported(_)) => Code::Unimplemented,
        Some(Of::Closed(_) | Of::NoSession(_)) => Code::FailedPrecondition,
        Some(Of::Full(_)) => Code::ResourceExhausted,
        Some(Of::Internal(_)) | None => Code::Internal,
    };
    Status::with_details(code, text, failure.encode_to_vec().into())
}

/// The status of a call as a message of a turn.
pub fn call_status(status: &Status) -> v1::CallStatus {
    let failure = Some(status.details()).filter(|details| !details.is_empty());
    v1::CallStatus {
        code: status.code().into(),
        text: status.message().to_owned(),
        failure: failure.and_then(|details| Failure::decode(details).ok()),
    }
}

impl From<v1::CallStatus> for Status {
    fn from(status: v1::CallStatus) -> Self {
        let details = status.failure.map_or_else(Vec::new, |failure| failure.encode_to_vec());
        Status::with_details(Code::from(status.code), status.text, details.into())
    }
}

/// Why the server refused a call; `None` if the status does not come from the server, so that it is unknown whether the
/// call was carried out.
pub fn refusal(status: &Status) -> Option<Failure> {
    if let Ok(failure) = Failure::decode(status.details())
        && failure.of.is_some()
    {
        return Some(failure);
    }
    let text = status.message().to_owned();
    let denied = matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
    let of = match status.code() {
        _ if denied => Of::Closed(text),
        Code::Unimplemented => Of::Unsupported(text),
        Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted => Of::Invalid(text),
        Code::NotFound => Of::NoFederation(text),
        _ => return None,
    };
    Some(Failure { of: Some(of), denied })
}

fn reason_of(error: &Error) -> Of {
    let missing = |what: &str, name: &str, words: &[String]| Missing {
        what: what.to_owned(),
        name: name.to_owned(),
        words: words.to_vec(),
    };
    match error {
        Error::Conflict { container, base, head } => Of::Conflict(v1::Conflict {
            container: container.clone(),
            base: base.map(|csn| csn.0),
            head: head.map(|csn| csn.0),
        }),
        Error::Changed { what } => Of::Changed(what.clone()),
        Error::NotFound { what, name, near_misses } => {
            Of::NotFound(missing(what, name, near_misses))
        }
        Error::NoFederation { reason, .. } => Of::NoFederation(reason.clone()),
        Error::Exists { what, name, advice } => {
            Of::Exists(missing(what, name, std::slice::from_ref(advice)))
        }
        Error::Busy { what, holder, waited } => Of::Busy(v1::Busy {
            what: what.clone(),
            holder: holder.clone().map(|holder| (*holder).into()),
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        }),
        Error::Deadlock { cycle } => Of::Deadlock(v1::Deadlock { cycle: cycle.clone() }),
        Error::Unavailable { what } => Of::Unavailable(what.clone()),
        Error::Elsewhere { what, server, url } => Of::Elsewhere(v1::Elsewhere {
            what: what.clone(),
            server: server.clone(),
            url: url.clone(),
        }),
        Error::Invalid { what } => Of::Invalid(what.clone()),
        Error::Corrupt { path, reason } => {
            Of::Corrupt(missing("catalogue", &path.to_string_lossy(), std::slice::from_ref(reason)))
        }
        Error::Unsupported { what } => Of::Unsupported(what.clone()),
        Error::Closed { what } | Error::Denied { what } => Of::Closed(what.clone()),
        Error::Full { path } => Of::Full(path.to_string_lossy().into_owned()),
        Error::Io { what, source } => Of::Io(missing(what, "", &[source.to_string()])),
        Error::Internal { what } => Of::Internal(what.clone()),
        // The enum may grow; a client that does not know the new variant gets its text.
        other => Of::Internal(other.to_string()),
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let thing =
            |what: &str| OBJECT_KINDS.into_iter().find(|known| *known == what).unwrap_or("object");
        let joined = |words: Vec<String>| words.join("; ");
        match failure.of {
            Some(Of::Conflict(v1::Conflict { container, base, head })) => {
                Error::Conflict { container, base: base.map(Csn), head: head.map(Csn) }
            }
            Some(Of::Changed(what)) => Error::Changed { what },
            Some(Of::NotFound(Missing { what, name, words })) => {
                Error::NotFound { what: thing(&what), name, near_misses: words }
            }
            Some(Of::NoFederation(reason)) => {
                Error::NoFederation { folder: PathBuf::from("the server"), reason }
            }
            Some(Of::Exists(Missing { what, name, words })) => {
                Error::Exists { what: thing(&what), name, advice: joined(words) }
            }
            Some(Of::Busy(v1::Busy { what, holder, waited_ms })) => Error::Busy {
                what,
                holder: holder.map(|holder| Box::new(holder.into())),
                waited: Duration::from_millis(waited_ms),
            },
            Some(Of::Deadlock(v1::Deadlock { cycle })) => Error::Deadlock { cycle },
            Some(Of::Unavailable(what)) => Error::Unavailable { what },
            Some(Of::Elsewhere(v1::Elsewhere { what, server, url })) => {
                Error::Elsewhere { what, server, url }
            }
            Some(Of::Invalid(what)) => Error::Invalid { what },
            Some(Of::Corrupt(Missing { name, words, .. })) => {
                Error::Corrupt { path: PathBuf::from(name), reason: joined(words) }
            }
            Some(Of::Unsupported(what)) => Error::Unsupported { what },
            Some(Of::Closed(what)) if failure.denied => Error::Denied { what },
            Some(Of::Closed(what)) => Error::Closed { what },
            Some(Of::Full(path)) => Error::Full { path: PathBuf::from(path) },
            Some(Of::Io(Missing { what, words, .. })) => {
                let source = Arc::new(std::io::Error::other(joined(words)));
                Error::Io { what: format!("on the server: {what}"), source }
            }
            Some(Of::Internal(what)) => Error::Internal { what },
            Some(Of::NoSession(_)) => {
                Error::Closed { what: "the server does not know this session".to_owned() }
            }
            None => {
                Error::Internal { what: "the server sent an error without a reason".to_owned() }
            }
        }
    }
}

//! Results of functions: a status, and the text of the thread's last error.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use femtobarn::{Error, ErrorKind, Result};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// The statuses of the header, each with the kind of error that it stands for and its name.
const STATUSES: [(ErrorKind, &CStr); 13] = [
    (ErrorKind::Conflict, c"conflict"),
    (ErrorKind::NotFound, c"not-found"),
    (ErrorKind::Exists, c"exists"),
    (ErrorKind::Busy, c"busy"),
    (ErrorKind::Unavailable, c"unavailable"),
    (ErrorKind::Denied, c"denied"),
    (ErrorKind::Invalid, c"invalid"),
    (ErrorKind::Corrupt, c"corrupt"),
    (ErrorKind::Unsupported, c"unsupported"),
    (ErrorKind::Closed, c"closed"),
    (ErrorKind::Full, c"storage"),
    (ErrorKind::Io, c"storage"),
    (ErrorKind::Internal, c"internal"),
];

/// The status of a kind: its place in the list, counted from 1.
fn status_of(kind: ErrorKind) -> c_int {
    let place = STATUSES.iter().position(|(known, _)| *known == kind);
    place.map_or(STATUSES.len() as c_int, |place| place as c_int + 1)
}

/// Runs the body of a function; returns its status, and keeps the text of its error.
pub(crate) fn run(body: impl FnOnce() -> Result<()>) -> c_int {
    match caught(body) {
        Ok(()) => 0,
        Err((kind, text)) => {
            let text = c_text(&text);
            LAST_ERROR.with(|last| *last.borrow_mut() = text);
            status_of(kind)
        }
    }
}

/// The result of a body; a panic is an internal error.
pub(crate) fn caught<T>(
    body: impl FnOnce() -> Result<T>,
) -> std::result::Result<T, (ErrorKind, String)> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.map_err(|error| (error.kind(), error.to_string())),
        Err(panic) => Err((ErrorKind::Internal, text_of(&*panic))),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("a bug: {}", text.as_deref().unwrap_or("a panic without a text"))
}

/// A text for C, which ends at the first NUL.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// An error about an argument.
pub(crate) fn invalid(what: impl Into<String>) -> Error {
    Error::Invalid { what: what.into() }
}

/// The version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn fb_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The text of the last error in this thread; empty if there was none. It is valid until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn fb_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// The name of a status, such as `not-found`; that of Python's exception.
#[unsafe(no_mangle)]
pub extern "C" fn fb_status_name(status: c_int) -> *const c_char {
    let name = match usize::try_from(status) {
        Ok(0) => c"ok",
        Ok(place) => STATUSES.get(place - 1).map_or(c"unknown", |(_, name)| name),
        Err(_) => c"unknown",
    };
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_status_and_its_own_name() {
        for (place, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(status_of(kind), place as c_int + 1);
            // SAFETY: names are constants.
            let name = unsafe { CStr::from_ptr(fb_status_name(status_of(kind))) };
            assert_eq!(name.to_str(), Ok(kind.name()));
        }
    }

    #[test]
    fn a_panic_becomes_an_internal_error_with_its_text() {
        let status = run(|| panic!("out of beans"));
        assert_eq!(status, status_of(ErrorKind::Internal));
        // SAFETY: the thread makes no other call meanwhile.
        let text = unsafe { CStr::from_ptr(fb_last_error()) };
        assert_eq!(text.to_str(), Ok("a bug: out of beans"));
    }
}

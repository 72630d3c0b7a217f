//! Streams: the arrays of one type that a function returns, call by call.

use std::ffi::{CString, c_char, c_int};
use std::{process, ptr};

use femtobarn::{Error, ErrorKind, Result};
use rntuple::Array;

use super::abi::{ArrowArray, ArrowArrayStream, ArrowSchema};
use super::export::exported;
use super::schema::schema_of;
use crate::status::{c_text, caught};

/// The next array of a stream; `None` at its end.
pub(crate) type NextArray = Box<dyn FnMut() -> Result<Option<Array>> + Send>;

struct ExportedStream {
    /// No values, of the type of all.
    empty: Array,
    next: NextArray,
    last_error: Option<CString>,
    /// As handles, it is used and dropped only in the process that made it.
    process: u32,
}

/// A stream of arrays of the type of `empty`.
pub(crate) fn stream_of(empty: Array, next: NextArray) -> ArrowArrayStream {
    let state = Box::new(ExportedStream { empty, next, last_error: None, process: process::id() });
    ArrowArrayStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release),
        private_data: Box::into_raw(state).cast(),
    }
}

impl ExportedStream {
    /// # Safety
    /// `stream` is one of [`stream_of`] that is not released.
    unsafe fn of<'a>(stream: *mut ArrowArrayStream) -> &'a mut Self {
        // SAFETY: the caller's.
        unsafe { &mut *(*stream).private_data.cast() }
    }

    /// Writes a result, or keeps the error's text and returns a number of the operating system for it.
    fn finish<T>(
        &mut self,
        result: std::result::Result<T, (ErrorKind, String)>,
        out: *mut T,
    ) -> c_int {
        match result {
            Ok(value) => {
                self.last_error = None;
                // SAFETY: the interface passes a place that can be written.
                unsafe { out.write(value) };
                0
            }
            Err((kind, text)) => {
                self.last_error = Some(c_text(&text));
                match kind {
                    ErrorKind::Invalid | ErrorKind::NotFound => EINVAL,
                    _ => EIO,
                }
            }
        }
    }
}

/// Linux's numbers of errors.
const EIO: c_int = 5;
const EINVAL: c_int = 22;

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the interface passes its own stream.
    let state = unsafe { ExportedStream::of(stream) };
    let schema = caught(|| Ok(schema_of("", &state.empty)));
    state.finish(schema, out)
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: the interface passes its own stream.
    let state = unsafe { ExportedStream::of(stream) };
    let next = caught(|| {
        if state.process != process::id() {
            let what = "the stream was opened before this process was forked; open it again";
            return Err(Error::Closed { what: what.to_owned() });
        }
        match (state.next)()? {
            Some(array) => exported(array),
            None => Ok(ArrowArray::released()),
        }
    });
    state.finish(next, out)
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: the interface passes its own stream.
    let state = unsafe { ExportedStream::of(stream) };
    state.last_error.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

unsafe extern "C" fn release(stream: *mut ArrowArrayStream) {
    // SAFETY: the interface calls it with the stream that it is in, once.
    unsafe {
        let state = Box::from_raw((*stream).private_data.cast::<ExportedStream>());
        (*stream).release = None;
        if state.process == process::id() {
            // A panic ends here.
            drop(caught(|| {
                drop(state);
                Ok(())
            }));
        } else {
            std::mem::forget(state);
        }
    }
}

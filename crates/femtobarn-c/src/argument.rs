//! Arguments of functions: texts and lists that must not be NULL.

use std::ffi::{CStr, c_char};

use femtobarn::Result;

use crate::status::invalid;

/// A text.
///
/// # Errors
/// `Invalid` if it is NULL or not UTF-8.
///
/// # Safety
/// It is NULL or ends with NUL, and lives for `'a`.
pub(crate) unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(invalid(format!("the argument {name} is NULL")));
    }
    // SAFETY: the caller's.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| invalid(format!("the argument {name} is not UTF-8")))
}

/// A list of texts.
///
/// # Errors
/// The errors of [`text`]; `Invalid` if the list is NULL and not empty.
///
/// # Safety
/// The list is NULL or has `count` texts, each as that of [`text`].
pub(crate) unsafe fn texts<'a>(
    name: &str,
    texts: *const *const c_char,
    count: usize,
) -> Result<Vec<&'a str>> {
    // SAFETY: the caller's.
    let texts = unsafe { list(name, texts, count) }?;
    // SAFETY: the caller's.
    texts.iter().map(|each| unsafe { text(name, *each) }).collect()
}

/// A list.
///
/// # Errors
/// `Invalid` if it is NULL and not empty.
///
/// # Safety
/// It is NULL or has `count` values, which live for `'a`.
pub(crate) unsafe fn list<'a, T>(name: &str, list: *const T, count: usize) -> Result<&'a [T]> {
    match (list.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(invalid(format!("the argument {name} is NULL"))),
        // SAFETY: the caller's.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(list, count) }),
    }
}

/// A structure that is only read, maybe by several threads.
///
/// # Errors
/// `Invalid` if it is NULL.
///
/// # Safety
/// It is NULL or lives, unchanged, for `'a`.
pub(crate) unsafe fn given<'a, T>(name: &str, given: *const T) -> Result<&'a T> {
    // SAFETY: the caller's.
    unsafe { given.as_ref() }.ok_or_else(|| invalid(format!("the argument {name} is NULL")))
}

/// The place of a result.
///
/// # Errors
/// `Invalid` if it is NULL.
///
/// # Safety
/// It is NULL or can be written for `'a`.
pub(crate) unsafe fn place<'a, T>(name: &str, place: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's.
    unsafe { place.as_mut() }.ok_or_else(|| invalid(format!("the argument {name} is NULL")))
}

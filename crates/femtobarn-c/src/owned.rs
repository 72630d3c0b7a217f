//! Values behind opaque pointers.
//!
//! A value is used and dropped only in the process that made it: a forked child that dropped it would release locks and
//! extents of its parent.

use std::mem::ManuallyDrop;
use std::process;

use femtobarn::{Error, Result};

use crate::argument::place;
use crate::status::{caught, invalid};

/// A value that the caller owns by a pointer.
pub struct Owned<T> {
    value: ManuallyDrop<T>,
    process: u32,
}

impl<T> Owned<T> {
    /// Makes a value, and writes a pointer to it. The pointer is NULL if that fails.
    ///
    /// # Errors
    /// `Invalid` if `out` is NULL; those of `make`.
    ///
    /// # Safety
    /// `out` is NULL or can be written.
    pub(crate) unsafe fn give(out: *mut *mut Self, make: impl FnOnce() -> Result<T>) -> Result<()> {
        // SAFETY: the caller's.
        let out = unsafe { place("for the result", out) }?;
        *out = std::ptr::null_mut();
        *out = Self::boxed(make()?);
        Ok(())
    }

    /// A pointer to a value, for [`free`](Self::free).
    pub(crate) fn boxed(value: T) -> *mut Self {
        let owned = Owned { value: ManuallyDrop::new(value), process: process::id() };
        Box::into_raw(Box::new(owned))
    }

    /// The value.
    ///
    /// # Errors
    /// `Invalid` if the pointer is NULL; `Closed` if another process made it.
    ///
    /// # Safety
    /// The pointer is NULL or one of [`give`](Self::give) that is not freed during `'a`.
    pub(crate) unsafe fn get<'a>(pointer: *const Self) -> Result<&'a T> {
        // SAFETY: the caller's.
        let owned = unsafe { pointer.as_ref() }.ok_or_else(|| invalid("the handle is NULL"))?;
        if owned.process == process::id() {
            Ok(&owned.value)
        } else {
            let what = "the federation was opened before this process was forked; open it again";
            Err(Error::Closed { what: what.to_owned() })
        }
    }

    /// Drops the value, if this process made it. NULL is ignored.
    ///
    /// # Safety
    /// The pointer is NULL or one of [`give`](Self::give), and not used any more.
    pub(crate) unsafe fn free(pointer: *mut Self) {
        if pointer.is_null() {
            return;
        }
        // SAFETY: the caller's.
        let owned = unsafe { Box::from_raw(pointer) };
        if owned.process == process::id() {
            // A panic ends here: the value that was being dropped leaks.
            drop(caught(|| {
                drop(ManuallyDrop::into_inner(owned.value));
                Ok(())
            }));
        }
    }
}

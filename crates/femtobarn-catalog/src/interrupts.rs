//! Long waits that the caller can end, as Ctrl-C ends those of a Python program.
//!
//! 1. Only the thread that called [`heeding`] checks for interrupts, and only until that call returns.
//! 2. An interrupt lasts until then: all further waits end, too.
//! 3. A commit that was sent is never abandoned: code that publishes does not run inside [`heeding`].

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::{Error, Result};

/// How often the caller's function is called.
pub const INTERVAL: Duration = Duration::from_millis(100);

thread_local! {
    static CALLER: Cell<Option<HeededCaller>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct HeededCaller {
    wants_end: fn() -> bool,
    /// When the function was last called; `None` to call it at once.
    asked: Option<Instant>,
    has_ended: bool,
}

/// Runs an operation whose long waits end, with [`Error::Closed`], soon after `wants_end` has returned true.
pub fn heeding<T>(wants_end: fn() -> bool, operation: impl FnOnce() -> T) -> T {
    /// Restores the previous caller, also in a panic.
    struct Before(Option<HeededCaller>);
    impl Drop for Before {
        fn drop(&mut self) {
            CALLER.set(self.0);
        }
    }
    let caller = HeededCaller { wants_end, asked: Some(clock::now()), has_ended: false };
    let _before = Before(CALLER.replace(Some(caller)));
    operation()
}

/// Whether this thread checks for interrupts.
pub fn are_heeded() -> bool {
    CALLER.get().is_some()
}

/// Whether the caller wants the wait to end.
pub fn is_interrupted() -> bool {
    let Some(mut caller) = CALLER.get() else { return false };
    if !caller.has_ended && caller.asked.is_none_or(|asked| asked.elapsed() >= INTERVAL) {
        caller.has_ended = (caller.wants_end)();
        caller.asked = Some(clock::now());
        CALLER.set(Some(caller));
    }
    caller.has_ended
}

/// Makes [`is_interrupted`] call the caller's function at once, because a signal has arrived. Returns whether this
/// thread checks for interrupts.
pub fn note_signal() -> bool {
    CALLER.get().is_some_and(|caller| {
        CALLER.set(Some(HeededCaller { asked: None, ..caller }));
        true
    })
}

/// Fails if the caller wants the wait to end.
///
/// # Errors
/// [`Error::Closed`] then.
pub fn check() -> Result<()> {
    if is_interrupted() { Err(interrupted()) } else { Ok(()) }
}

/// The error for a wait that the caller has ended.
pub fn interrupted() -> Error {
    Error::closed("the wait was interrupted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupt_lasts_until_its_operation_ends() {
        assert!(check().is_ok() && !are_heeded());
        heeding(
            || true,
            || {
                assert!(check().is_ok(), "the caller is not asked at once");
                assert!(note_signal());
                assert!(check().is_err() && check().is_err());
                heeding(|| false, || assert!(check().is_ok()));
                assert!(check().is_err());
            },
        );
        assert!(check().is_ok() && !are_heeded() && !note_signal());
    }
}

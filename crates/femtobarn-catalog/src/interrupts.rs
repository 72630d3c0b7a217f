//! Long waits that the caller may end, as Ctrl-C ends those of a Python program.
//!
//! 1. Only the thread that called [`heeding`] asks, and only until that returns.
//! 2. An interrupt lasts until then: whatever waits next ends, too.
//! 3. A commit that was sent is never left: whoever publishes does not call [`heeding`].

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::{Error, Result};

/// How often the caller is asked.
pub const INTERVAL: Duration = Duration::from_millis(100);

thread_local! {
    static CALLER: Cell<Option<HeededCaller>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct HeededCaller {
    wants_end: fn() -> bool,
    /// When it was asked last; none if it is to be asked at once.
    asked: Option<Instant>,
    has_ended: bool,
}

/// Runs an operation whose long waits end, by [`Error::Closed`], soon after `wants_end` has said so.
pub fn heeding<T>(wants_end: fn() -> bool, operation: impl FnOnce() -> T) -> T {
    /// Ends it in a panic, too.
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

/// Whether this thread asks a caller.
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

/// Makes [`is_interrupted`] ask at once: a signal has come. Returns whether there is somebody to ask.
pub fn note_signal() -> bool {
    CALLER.get().is_some_and(|caller| {
        CALLER.set(Some(HeededCaller { asked: None, ..caller }));
        true
    })
}

/// Fails if the caller wants the wait to end.
///
/// # Errors
/// [`Error::Closed`].
pub fn check() -> Result<()> {
    if is_interrupted() { Err(interrupted()) } else { Ok(()) }
}

/// The error of a wait that its caller ended.
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

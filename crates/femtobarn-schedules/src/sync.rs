//! loom's mutex and condition variable with the methods of those of `parking_lot`.

use std::ops::{Deref, DerefMut};

/// A mutex.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// A locked mutex, until this is dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

/// A condition variable. Its waits end when they are notified, and have no time-out.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

const HELD: &str = "a guard is whole but during a wait";
const SOUND: &str = "a scenario ends with the first panic";

impl<T> Mutex<T> {
    /// A mutex that is not locked.
    pub fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    /// Locks it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect(SOUND)))
    }

    /// Its value, of which the caller is the only user.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(SOUND)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

impl Condvar {
    /// A condition variable for which nobody waits.
    pub fn new() -> Self {
        Condvar::default()
    }

    /// Unlocks the mutex, waits until it is notified, and locks the mutex again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect(HELD);
        guard.0 = Some(self.0.wait(held).expect(SOUND));
    }

    /// Ends all waits.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

//! A storage as slow as is said, by a clock that does not wait.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use femtobarn_server::physical::{
    Clock, Creation, MemoryStorage, Opaque, Slowness, Storage, StoredFile, ThrottledStorage,
    Trouble,
};

use super::{at, how};

/// A clock whose sleepers wake at once, at the time when they should.
#[derive(Default)]
pub struct TestClock(Mutex<Duration>);

impl Clock for TestClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

const DISK: Slowness =
    Slowness { bytes_per_second: 1000, seeks_per_second: 10, block_size: 100, defer_above: None };

/// A file of 10,000 bytes on such a disk, whose head is at its end, and the clock.
fn file_on(slowness: Slowness) -> (Arc<dyn StoredFile>, Arc<TestClock>) {
    let clock = Arc::new(TestClock::default());
    let memory = Arc::new(MemoryStorage::new(1 << 20));
    let storage = ThrottledStorage::throttled(memory, slowness, clock.clone());
    let file = storage.open(&at("/a"), how(Creation::New), Opaque::default());
    let file = file.unwrap();
    file.write_at(0, &[7; 10_000]).unwrap();
    (file, clock)
}

/// Milliseconds that something takes by the clock.
fn milliseconds(clock: &TestClock, act: impl FnOnce()) -> u128 {
    let before = clock.now();
    act();
    (clock.now() - before).as_millis()
}

#[test]
fn bytes_and_seeks_take_their_time() {
    let (file, clock) = file_on(DISK);
    assert_eq!(clock.now(), Duration::from_millis(10_100));
    let read = |offset, size| {
        milliseconds(&clock, || {
            file.read_at(offset, &mut vec![0; size]).unwrap();
        })
    };
    assert_eq!(read(0, 1000), 1100);
    assert_eq!(read(1000, 500), 500, "it goes on where it was");
    assert_eq!(read(1500, 1), 100, "a block at least");
    assert_eq!(read(5000, 100), 200, "a seek");
    assert_eq!(read(5050, 100), 300, "two blocks and a seek");
    assert_eq!(read(5150, 0), 0);
    assert_eq!(milliseconds(&clock, || file.write_at(5150, b"x").unwrap()), 100);
    assert_eq!(milliseconds(&clock, || file.sync().unwrap()), 0);
}

#[test]
fn what_was_done_while_nobody_asked_is_done() {
    let (file, clock) = file_on(DISK);
    clock.sleep(Duration::from_secs(100));
    let took = milliseconds(&clock, || {
        file.read_at(0, &mut [0; 100]).unwrap();
    });
    assert_eq!(took, 200);
}

#[test]
fn zero_is_no_limit() {
    let (file, clock) = file_on(Slowness { bytes_per_second: 0, seeks_per_second: 0, ..DISK });
    file.read_at(0, &mut [0; 5000]).unwrap();
    assert_eq!(clock.now(), Duration::ZERO);
    let (file, clock) = file_on(Slowness { bytes_per_second: 0, block_size: 0, ..DISK });
    file.read_at(0, &mut [0; 5000]).unwrap();
    assert_eq!(clock.now(), Duration::from_millis(200));
}

/// A clock that only others move on: who sleeps comes back at once, as a thread does that waits
/// beside others.
#[derive(Default)]
struct StoppedClock(Mutex<Duration>);

impl Clock for StoppedClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, _time: Duration) {}
}

#[test]
fn a_long_wait_is_deferred_and_can_be_done_then() {
    let clock = Arc::new(StoppedClock::default());
    let memory = Arc::new(MemoryStorage::new(1 << 20));
    let slowness = Slowness { defer_above: Some(Duration::from_secs(3)), ..DISK };
    let storage = ThrottledStorage::throttled(memory, slowness, clock.clone());
    let file = storage.open(&at("/a"), how(Creation::New), Opaque::default()).unwrap();
    // It takes long, but nobody is before it.
    file.write_at(0, &[7; 10_000]).unwrap();
    let deferred = file.read_at(0, &mut [0; 100]);
    let Err(Trouble::NotBefore(wait, text)) = deferred else { panic!("{deferred:?}") };
    assert_eq!(wait, Duration::from_millis(10_100));
    assert!(text.contains("/a"), "{text}");
    *clock.0.lock().unwrap() += wait;
    assert_eq!(file.read_at(0, &mut [0; 100]), Ok(100));
}

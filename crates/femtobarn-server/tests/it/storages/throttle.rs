//! Storages with simulated slow disks, with clocks that do not wait.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use femtobarn_server::physical::{
    Clock, Creation, DiskAccount, DiskModel, MemoryStorage, Opaque, OpenMode, Storage,
    StorageError, StoredFile, Throttle, ThrottledStorage,
};

use super::{at, how};

/// A clock whose sleepers wake at once, at the intended time.
#[derive(Default)]
pub(super) struct TestClock(Mutex<Duration>);

impl Clock for TestClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

/// Ten blocks and ten seeks a second, a cache of ten blocks, and writers that wait for the disk.
const DISK: DiskModel = DiskModel {
    bytes_per_second: 1000,
    seeks_per_second: 10,
    block_size: 100,
    cache_bytes: 1000,
    write_behind: Duration::ZERO,
    defer_above: None,
};

/// Storages on simulated disks, and their clock.
struct Slow<C> {
    storage: ThrottledStorage,
    throttle: Arc<Throttle>,
    clock: Arc<C>,
}

impl<C: Clock + Default> Slow<C> {
    fn new(slowness: DiskModel, folders: &[&str]) -> Self {
        let clock = Arc::new(C::default());
        let memory = Arc::new(MemoryStorage::new(128 << 20));
        let folders: Vec<_> = folders.iter().map(ToString::to_string).collect();
        let storage = ThrottledStorage::throttled(memory, slowness, &folders, clock.clone());
        let throttle = storage.gate();
        Slow { storage, throttle, clock }
    }

    /// A new file of this size.
    fn file(&self, path: &str, size: usize) -> Arc<dyn StoredFile> {
        let how = OpenMode { make_folders: true, ..how(Creation::New) };
        let file = self.storage.open(&at(path), how, Opaque::default()).unwrap();
        if size > 0 {
            file.write_at(0, &vec![7; size]).unwrap();
        }
        file
    }

    /// The duration of `act` in milliseconds.
    fn time(&self, act: impl FnOnce()) -> u128 {
        let before = self.clock.now();
        act();
        (self.clock.now() - before).as_millis()
    }

    fn read(&self, file: &dyn StoredFile, offset: u64, size: usize) -> u128 {
        self.time(|| assert_eq!(file.read_at(offset, &mut vec![0; size]), Ok(size)))
    }

    fn write(&self, file: &dyn StoredFile, offset: u64, size: usize) -> u128 {
        self.time(|| file.write_at(offset, &vec![1; size]).unwrap())
    }

    fn sync(&self, file: &dyn StoredFile) -> u128 {
        self.time(|| file.sync().unwrap())
    }

    fn account(&self) -> DiskAccount {
        self.throttle.accounts().next().unwrap().1
    }
}

/// A file of 10,000 bytes whose last ten blocks are in memory.
fn one_file(slowness: DiskModel) -> (Slow<TestClock>, Arc<dyn StoredFile>) {
    let slow = Slow::new(slowness, &[]);
    let file = slow.file("/a", 10_000);
    (slow, file)
}

#[test]
fn transfers_and_seeks_take_the_time_of_the_model() {
    let (slow, file) = one_file(DISK);
    assert_eq!(slow.clock.now(), Duration::from_millis(10_100));
    assert_eq!(slow.read(&*file, 0, 1000), 1100);
    assert_eq!(slow.read(&*file, 1000, 500), 500, "no seek: it continues the last read");
    assert_eq!(slow.read(&*file, 1500, 1), 100, "a block at least");
    assert_eq!(slow.read(&*file, 5000, 100), 200, "a seek");
    assert_eq!(slow.read(&*file, 6050, 100), 300, "two blocks and a seek");
    assert_eq!(slow.read(&*file, 7000, 0), 0);
    assert_eq!(slow.write(&*file, 6200, 1), 100, "no seek: the same block");
    assert_eq!(slow.write(&*file, 6201, 1), 100, "no seek: the head is in this block");
    assert_eq!(slow.write(&*file, 6000, 100), 200);
    assert_eq!(slow.sync(&*file), 0);
}

#[test]
fn blocks_stay_cached_until_they_are_evicted() {
    let (slow, file) = one_file(DISK);
    assert_eq!(slow.read(&*file, 9000, 1000), 0, "written last, so cached");
    assert_eq!(slow.read(&*file, 0, 100), 200);
    assert_eq!(slow.read(&*file, 10, 80), 0, "read before, so cached");
    assert_eq!(slow.read(&*file, 9000, 100), 200, "the oldest block was evicted");
    assert_eq!(slow.read(&*file, 10, 80), 0, "a block read since is still cached");
    assert_eq!(slow.read(&*file, 9050, 150), 100, "only the missing block is fetched");
}

#[test]
fn a_prefetch_starts_at_once_and_arrives_block_by_block() {
    let (slow, file) = one_file(DISK);
    assert_eq!(slow.time(|| file.will_need(0, 3000)), 0, "an announcement does not wait");
    let other = slow.file("/b", 0);
    assert_eq!(slow.read(&*file, 0, 100), 200);
    assert_eq!(slow.read(&*file, 100, 100), 100);
    assert_eq!(slow.write(&*other, 0, 100), 2800 + 200, "the prefetch comes first");
    assert_eq!(slow.read(&*file, 200, 2800), 0, "unread blocks are not evicted");
    assert_eq!(slow.account().seeks, 3);
    assert_eq!(slow.account().bytes_read, 3000);
}

#[test]
fn a_cached_block_that_is_announced_stays_until_it_is_read() {
    let (slow, file) = one_file(DISK);
    file.will_need(9000, 1000);
    assert_eq!(slow.account().queue, Duration::ZERO);
    slow.read(&*file, 0, 3000);
    assert_eq!(slow.read(&*file, 9000, 1000), 0);
    slow.read(&*file, 3000, 3000);
    assert_eq!(slow.read(&*file, 9000, 1000), 1100);
}

#[test]
fn a_prefetch_ends_at_the_end_of_the_file() {
    let (slow, file) = one_file(DISK);
    file.will_need(8000, u64::MAX);
    assert_eq!(slow.account().queue, Duration::from_millis(1100), "the rest is cached");
    file.will_need(10_000, 100);
    assert_eq!(slow.account().queue, Duration::from_millis(1100));
}

#[test]
fn prefetched_bytes_are_bounded() {
    let large = DiskModel { bytes_per_second: 64 << 20, block_size: 64 << 20, ..DISK };
    let slow = Slow::<StoppedClock>::new(large, &[]);
    let files: Vec<_> = (0..20).map(|number| slow.file(&format!("/{number}"), 1)).collect();
    // Only the file written last is cached.
    for _ in 0..100 {
        files[..19].iter().for_each(|file| file.will_need(0, 1));
    }
    slow.clock.forward(Duration::from_secs(1000));
    assert_eq!(slow.account().bytes_read, 1 << 30);
    slow.clock.forward(Duration::from_secs(1000));
    files[16].will_need(0, 1);
    slow.clock.forward(Duration::from_secs(1000));
    assert_eq!(slow.account().bytes_read, (1 << 30) + (64 << 20), "the oldest blocks make room");
}

#[test]
fn a_write_waits_only_above_the_allowed_backlog() {
    let (slow, file) =
        one_file(DiskModel { write_behind: Duration::from_secs(1), cache_bytes: 100, ..DISK });
    assert_eq!(slow.clock.now(), Duration::from_millis(9100));
    assert_eq!(slow.sync(&*file), 1000);
    assert_eq!(slow.write(&*file, 0, 900), 0);
    assert_eq!(slow.write(&*file, 900, 100), 100);
    assert_eq!(slow.sync(&*slow.file("/b", 0)), 0, "the file has no unsynced bytes");
    assert_eq!(slow.sync(&*file), 1000);
    assert_eq!(slow.sync(&*file), 0);
}

#[test]
fn a_write_that_continues_a_queued_one_needs_no_seek() {
    let slow =
        Slow::<TestClock>::new(DiskModel { write_behind: Duration::from_secs(100), ..DISK }, &[]);
    let (first, second) = (slow.file("/a", 100), slow.file("/b", 100));
    let third = slow.file("/c", 0);
    for block in 1..10 {
        slow.write(&*second, block * 100, 50);
        // Not exactly where the first write ended, but in the same block.
        slow.write(&*second, block * 100 + 60, 40);
        slow.write(&*third, block * 300, 100);
    }
    // The disk had already begun the first write.
    slow.write(&*first, 100, 100);
    slow.sync(&*first);
    let account = slow.account();
    assert_eq!(account.seeks, 1 + 1 + 9 + 1);
    assert_eq!(account.bytes_written, 100 * (1 + 10 + 9 + 1), "blocks are written once");
    assert_eq!(account.busy, Duration::from_millis(100 * (12 + 21)));
    assert_eq!(slow.clock.now(), account.busy);
}

#[test]
fn the_length_of_a_run_is_bounded() {
    let fast = DiskModel {
        bytes_per_second: 1 << 20,
        block_size: 64 << 10,
        write_behind: Duration::from_secs(100),
        ..DISK
    };
    let slow = Slow::<TestClock>::new(fast, &[]);
    let first = slow.file("/a", 1);
    let (second, third) = (slow.file("/b", 0), slow.file("/c", 0));
    slow.write(&*second, 0, 1 << 20);
    slow.write(&*third, 0, 1);
    for mib in 1..8 {
        slow.write(&*second, mib << 20, 1 << 20);
    }
    slow.sync(&*second);
    assert_eq!(slow.account().seeks, 3);
    slow.write(&*first, 0, 1);
    slow.write(&*second, 0, 8 << 20);
    slow.write(&*third, 0, 1);
    slow.write(&*second, 8 << 20, 1);
    slow.sync(&*second);
    assert_eq!(slow.account().seeks, 3 + 4);
}

#[test]
fn each_named_folder_is_a_disk_and_the_rest_is_not_slowed_down() {
    let slow = Slow::<TestClock>::new(DISK, &["disk0", "disk1"]);
    assert_eq!(slow.time(|| drop(slow.file("/databases/run.root", 1000))), 0);
    assert_eq!(slow.time(|| drop(slow.file("/disk00/run.root", 1000))), 0);
    assert_eq!(slow.time(|| drop(slow.file("/deep/disk0/run.root", 1000))), 0);
    assert_eq!(slow.time(|| drop(slow.file("/disk2", 1000))), 0);
    assert_eq!(slow.time(|| drop(slow.file("/databases/disk0/run.root", 1000))), 1100);
    assert_eq!(slow.time(|| drop(slow.file("/disk1/run.root", 500))), 600);
    let accounts: Vec<_> = slow.throttle.accounts().collect();
    let written = accounts.iter().map(|(name, account)| (*name, account.bytes_written));
    assert_eq!(written.collect::<Vec<_>>(), [("disk0", 1000), ("disk1", 500)]);
}

#[test]
fn the_account_counts_work_up_to_the_present() {
    let (slow, file) = one_file(DiskModel { cache_bytes: 100, ..DISK });
    let before = slow.account();
    assert_eq!(before.bytes_written, 10_000);
    assert_eq!((before.busy, before.seeks), (Duration::from_millis(10_100), 1));
    slow.clock.sleep(Duration::from_secs(100));
    assert_eq!(slow.account(), before, "nothing was requested");
    file.will_need(0, 1000);
    slow.clock.sleep(Duration::from_millis(60));
    let account = slow.account();
    assert_eq!(account.busy - before.busy, Duration::from_millis(60));
    assert_eq!(account.seeking - before.seeking, Duration::from_millis(60));
    assert_eq!((account.seeks, account.bytes_read), (2, 0));
    assert_eq!(account.queue, Duration::from_millis(1040));
    slow.clock.sleep(Duration::from_millis(540));
    let account = slow.account();
    assert_eq!(account.seeking - before.seeking, Duration::from_millis(100));
    assert_eq!((account.bytes_read, account.queue), (500, Duration::from_millis(500)));
}

#[test]
fn a_rate_of_zero_is_no_limit() {
    let (slow, file) = one_file(DiskModel { bytes_per_second: 0, seeks_per_second: 0, ..DISK });
    assert_eq!(slow.read(&*file, 0, 5000), 0);
    assert_eq!(slow.clock.now(), Duration::ZERO);
    let (slow, file) = one_file(DiskModel { bytes_per_second: 0, block_size: 0, ..DISK });
    slow.read(&*file, 0, 5000);
    assert_eq!(slow.clock.now(), Duration::from_millis(200));
}

/// A clock that only [`StoppedClock::forward`] advances: sleepers return at once.
#[derive(Default)]
struct StoppedClock(Mutex<Duration>);

impl StoppedClock {
    fn forward(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

impl Clock for StoppedClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, _time: Duration) {}
}

#[test]
fn a_call_that_would_wait_too_long_is_deferred_and_succeeds_later() {
    let slowness = DiskModel { defer_above: Some(Duration::from_secs(3)), ..DISK };
    let slow = Slow::<StoppedClock>::new(slowness, &[]);
    // This write takes long, but it waits for no other call, so it is not deferred.
    let file = slow.file("/a", 10_000);
    let refusals =
        [file.read_at(0, &mut [0; 100]).map(drop), file.write_at(0, &[0; 100]), file.sync()];
    for refusal in refusals {
        let Err(StorageError::NotBefore(wait, text)) = refusal else { panic!("{refusal:?}") };
        assert_eq!(wait, Duration::from_millis(10_100));
        assert!(text.contains("/a"), "{text}");
    }
    file.will_need(0, 100);
    assert_eq!(slow.account().queue, Duration::from_millis(10_100), "nothing was queued");
    slow.clock.forward(Duration::from_millis(10_100));
    assert_eq!(file.read_at(0, &mut [0; 100]), Ok(100));
    assert_eq!(file.sync(), Ok(()));
}

/// A clock of several threads: once all of them sleep, time jumps to the moment when the first one wakes.
#[derive(Default)]
struct SharedClock {
    times: Mutex<Times>,
    woken: Condvar,
}

#[derive(Default)]
struct Times {
    now: Duration,
    awake: usize,
    sleepers: Vec<Duration>,
}

impl SharedClock {
    /// Removes a thread that has ended.
    fn leave(&self) {
        let mut times = self.times.lock().unwrap();
        times.awake -= 1;
        self.go_on(&mut times);
    }

    fn go_on(&self, times: &mut Times) {
        if times.awake == 0
            && let Some(first) = times.sleepers.iter().min()
        {
            times.now = *first;
            self.woken.notify_all();
        }
    }
}

impl Clock for SharedClock {
    fn now(&self) -> Duration {
        self.times.lock().unwrap().now
    }

    fn sleep(&self, time: Duration) {
        let mut times = self.times.lock().unwrap();
        let until = times.now + time;
        times.sleepers.push(until);
        times.awake -= 1;
        self.go_on(&mut times);
        let mut times = self.woken.wait_while(times, |times| times.now < until).unwrap();
        let mine = times.sleepers.iter().position(|sleeper| *sleeper == until).unwrap();
        times.sleepers.swap_remove(mine);
        times.awake += 1;
    }
}

/// Total bytes a second that two readers of two files, which give this hint, get from one disk of 1998.
fn rate_of_two_readers(hint: &str, read: impl Fn(&dyn StoredFile) + Sync) -> f64 {
    const DISK_OF_1998: DiskModel = DiskModel {
        bytes_per_second: 22_000_000,
        seeks_per_second: 100,
        block_size: 64 << 10,
        cache_bytes: 16 << 20,
        write_behind: Duration::from_secs(1),
        defer_above: None,
    };
    const FILE_BYTES: usize = 24 << 20;
    let slow = Slow::<SharedClock>::new(DISK_OF_1998, &[]);
    slow.clock.times.lock().unwrap().awake = 1;
    let files = ["/a", "/b", "/c"].map(|path| slow.file(path, FILE_BYTES));
    files.iter().for_each(|file| file.sync().unwrap());
    let before = slow.clock.now();
    slow.clock.times.lock().unwrap().awake = 2;
    std::thread::scope(|scope| {
        for path in ["/a", "/b"] {
            let file = slow.storage.open(&at(path), OpenMode::default(), Opaque(hint.as_bytes()));
            let (file, read, clock) = (file.unwrap(), &read, &slow.clock);
            scope.spawn(move || {
                read(&*file);
                clock.leave();
            });
        }
    });
    (2 * FILE_BYTES) as f64 / (slow.clock.now() - before).as_secs_f64()
}

fn read_by(file: &dyn StoredFile, piece: usize, ahead: u64) {
    let size = file.metadata().unwrap().size;
    let mut buffer = vec![0; piece];
    for offset in (0..size).step_by(piece) {
        if ahead > 0 && offset.is_multiple_of(ahead) {
            file.will_need(offset, ahead);
        }
        assert_eq!(file.read_at(offset, &mut buffer), Ok(piece));
    }
}

#[test]
fn bursts_use_nearly_all_of_a_disk_and_single_blocks_less_than_half() {
    let bursts = rate_of_two_readers("", |file| read_by(file, 256 << 10, 4 << 20));
    assert!(bursts > 0.9 * 22e6, "{bursts}");
    assert!(bursts < 22e6, "{bursts}");
    let blocks = rate_of_two_readers("", |file| read_by(file, 64 << 10, 0));
    assert!(blocks < 0.5 * 22e6, "{blocks}");
    let told = rate_of_two_readers("fb.access=sequential", |file| read_by(file, 64 << 10, 0));
    assert!(told > 0.9 * 22e6, "{told}");
    let random = rate_of_two_readers("fb.access=random", |file| read_by(file, 64 << 10, 0));
    assert!(random < 0.5 * 22e6, "{random}");
}

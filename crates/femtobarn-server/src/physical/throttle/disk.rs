//! A disk that is played, and what an operating system does before it.
//!
//! 1. The disk does one work after the other, in the order in which they were given to it, and is never idle
//!    while there is one. A work takes the time of its blocks, and of a seek if it does not go on where the
//!    last one ended.
//! 2. Reading fetches the blocks that are not in memory. What is said to be needed is fetched, too, each
//!    piece of it that is missing as one work; its blocks arrive one after the other.
//! 3. What is written is in memory at once, and a work. What goes on where such a work ends that has not
//!    begun yet costs no seek: the disk will write both together, up to [`RUN_BYTES_MAX`].
//! 4. Who reads waits for the blocks; who writes, until little enough is left to do; who syncs, until the
//!    disk has all that was written to the file. Nobody waits with the lock.

use std::collections::{HashMap, VecDeque};
use std::ops::{AddAssign, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::blocks::Blocks;
use super::{Clock, Slowness};

/// Bytes that are written without a seek because they were waiting together.
const RUN_BYTES_MAX: u64 = 8 << 20;

/// Bytes that are fetched because they are said to be needed; the rest may be said later.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// A call would have to wait longer than any may; it may come again after this.
pub(super) struct TooLong(pub Duration);

/// The disk.
pub(super) struct Disk {
    slowness: Slowness,
    state: Mutex<State>,
}

/// What a disk has done up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskAccount {
    /// For how long it was busy.
    pub busy: Duration,
    /// Of this, with seeks.
    pub seeking: Duration,
    /// Seeks.
    pub seeks: u64,
    /// Bytes of the blocks that it read.
    pub bytes_read: u64,
    /// Bytes of the blocks that it wrote.
    pub bytes_written: u64,
    /// How long it takes to do all that it still has to.
    pub queue: Duration,
}

struct State {
    /// When all work is done.
    free_at: Duration,
    /// The file and the block before which the last work ends.
    head: Option<(u64, u64)>,
    /// What is not done yet, without gaps of time between.
    works: VecDeque<Work>,
    /// What is to be written and not begun.
    runs: Vec<Run>,
    /// When all that was written to a file is on the disk, if it is not yet.
    written_at: HashMap<u64, Duration>,
    blocks: Blocks,
    /// Of works that are done.
    done: DiskAccount,
}

/// Something to do.
#[derive(Clone, Copy)]
struct Work {
    start: Duration,
    seek: Option<Duration>,
    transfer: Duration,
    bytes: u64,
    is_write: bool,
}

/// What is written at once.
struct Run {
    file: u64,
    blocks: Range<u64>,
    begins: Duration,
}

impl Disk {
    pub(super) fn new(slowness: Slowness) -> Self {
        let slowness = Slowness { block_size: slowness.block_size.max(1), ..slowness };
        let state = State {
            free_at: Duration::ZERO,
            head: None,
            works: VecDeque::new(),
            runs: vec![],
            written_at: HashMap::new(),
            blocks: Blocks::new(slowness.block_size.into(), slowness.cache_bytes),
            done: DiskAccount::default(),
        };
        Disk { slowness, state: Mutex::new(state) }
    }

    /// Returns when a range is in memory.
    ///
    /// # Errors
    /// [`TooLong`]; nothing is done then.
    pub(super) fn read(
        &self,
        clock: &dyn Clock,
        file: u64,
        bytes: &Range<u64>,
    ) -> Result<(), TooLong> {
        let blocks = self.slowness.blocks_of(bytes);
        let (mut state, now) = self.state(clock);
        let there = blocks.clone().filter_map(|block| state.blocks.ready_at((file, block)));
        let mut ready = there.max().unwrap_or(now);
        let missing = state.missing(file, blocks.clone());
        if !missing.is_empty() {
            ready = ready.max(state.free_at.max(now) + self.time_of(&state, file, &missing));
        }
        self.refuse_long_wait(&state, now, ready, !missing.is_empty())?;
        // Those who read are few, with or without room.
        state.blocks.make_room(block_count(&missing), now);
        self.fetch(&mut state, now, file, &missing);
        drop(state);
        wait(clock, now, ready);
        let (mut state, now) = self.state(clock);
        blocks.for_each(|block| state.blocks.hold((file, block), now));
        Ok(())
    }

    /// Fetches what is missing of a range, and keeps what is there, if there is room for it all.
    pub(super) fn will_need(&self, clock: &dyn Clock, file: u64, bytes: &Range<u64>) {
        let end = bytes.end.min(bytes.start.saturating_add(AHEAD_BYTES_MAX));
        let (mut state, now) = self.state(clock);
        let blocks = self.slowness.blocks_of(&(bytes.start..end));
        let missing = state.missing(file, blocks.clone());
        let ready = state.free_at.max(now) + self.time_of(&state, file, &missing);
        if self.refuse_long_wait(&state, now, ready, true).is_ok()
            && state.blocks.make_room((blocks.end - blocks.start) as usize, now)
        {
            blocks.for_each(|block| state.blocks.keep((file, block)));
            self.fetch(&mut state, now, file, &missing);
        }
    }

    /// Returns when a range may be written.
    ///
    /// # Errors
    /// [`TooLong`]; nothing is done then.
    pub(super) fn write(
        &self,
        clock: &dyn Clock,
        file: u64,
        bytes: &Range<u64>,
    ) -> Result<(), TooLong> {
        let blocks = self.slowness.blocks_of(bytes);
        let (mut state, now) = self.state(clock);
        let blocks_max = RUN_BYTES_MAX / u64::from(self.slowness.block_size);
        let is_joined = |run: &Run| run.file == file && run.takes(&blocks, blocks_max);
        let joined = state.runs.iter().position(is_joined);
        let (seek, count) = match joined {
            Some(index) => (None, blocks.end.saturating_sub(state.runs[index].blocks.end)),
            None => (self.seek_to(&state, file, blocks.start), blocks.end - blocks.start),
        };
        let transfer = self.slowness.transfer(count);
        let time = seek.unwrap_or_default() + transfer;
        let may_go_on = |free_at: Duration| free_at.saturating_sub(self.slowness.write_behind);
        let until = may_go_on(state.free_at.max(now) + time);
        self.refuse_long_wait(&state, now, until, true)?;
        let begins = state.free_at.max(now);
        match joined {
            Some(index) => {
                let run = &mut state.runs[index];
                let before = run.blocks.end;
                run.blocks.end = before.max(blocks.end);
                if state.head == Some((file, before)) {
                    state.head = Some((file, before.max(blocks.end)));
                }
            }
            None => {
                state.head = Some((file, blocks.end));
                state.runs.push(Run { file, blocks: blocks.clone(), begins });
            }
        }
        if count > 0 {
            state.add(Work {
                start: begins,
                seek,
                transfer,
                bytes: count * u64::from(self.slowness.block_size),
                is_write: true,
            });
            let free_at = state.free_at;
            state.written_at.insert(file, free_at);
        }
        blocks.for_each(|block| state.blocks.hold((file, block), now));
        drop(state);
        wait(clock, now, until);
        Ok(())
    }

    /// Returns when all that was written to a file is on the disk.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(super) fn sync(&self, clock: &dyn Clock, file: u64) -> Result<(), TooLong> {
        let (state, now) = self.state(clock);
        let written = state.written_at.get(&file).copied().unwrap_or(now);
        self.refuse_long_wait(&state, now, written, false)?;
        drop(state);
        wait(clock, now, written);
        Ok(())
    }

    /// What it has done up to now.
    pub(super) fn account(&self, clock: &dyn Clock) -> DiskAccount {
        let (state, now) = self.state(clock);
        let mut account = state.done;
        if let Some(work) = state.works.front() {
            account += work.done_at(now);
        }
        account.queue = state.free_at.saturating_sub(now);
        account
    }

    /// The state as it is now.
    fn state(&self, clock: &dyn Clock) -> (MutexGuard<'_, State>, Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock.now();
        state.go_on(now);
        (state, now)
    }

    /// What takes long on a disk that has nothing else to do would never be done otherwise.
    fn refuse_long_wait(
        &self,
        state: &State,
        now: Duration,
        until: Duration,
        is_new: bool,
    ) -> Result<(), TooLong> {
        let queue = state.free_at.saturating_sub(now);
        let time = until.saturating_sub(now);
        match self.slowness.defer_above {
            Some(most) if time > most && !queue.is_zero() => {
                Err(TooLong(if is_new { queue } else { time }))
            }
            _ => Ok(()),
        }
    }

    /// How long it takes to fetch these ranges of blocks.
    fn time_of(&self, state: &State, file: u64, missing: &[Range<u64>]) -> Duration {
        let Some(first) = missing.first() else { return Duration::ZERO };
        let others = missing.len() as u32 - 1;
        let transfers =
            missing.iter().map(|blocks| self.slowness.transfer(blocks.end - blocks.start));
        self.seek_to(state, file, first.start).unwrap_or_default()
            + self.slowness.seek() * others
            + transfers.sum::<Duration>()
    }

    fn fetch(&self, state: &mut State, now: Duration, file: u64, missing: &[Range<u64>]) {
        let size = u64::from(self.slowness.block_size);
        for blocks in missing {
            let seek = self.seek_to(state, file, blocks.start);
            let start = state.free_at.max(now);
            let count = blocks.end - blocks.start;
            let transfer = self.slowness.transfer(count);
            state.add(Work { start, seek, transfer, bytes: count * size, is_write: false });
            state.head = Some((file, blocks.end));
            for (index, block) in blocks.clone().enumerate() {
                let arrives = self.slowness.transfer(index as u64 + 1);
                state.blocks.come((file, block), start + seek.unwrap_or_default() + arrives);
            }
        }
    }

    /// The seek that it takes to do this block of a file next; none if the head is there, or has just passed
    /// it, as where writers fill a block bit by bit.
    fn seek_to(&self, state: &State, file: u64, block: u64) -> Option<Duration> {
        let is_there = |next| next == block || Some(next) == block.checked_add(1);
        let is_there = state.head.is_some_and(|(of, next)| of == file && is_there(next));
        (!is_there).then(|| self.slowness.seek())
    }
}

impl State {
    /// Notes what has been done by now.
    fn go_on(&mut self, now: Duration) {
        while let Some(work) = self.works.front().filter(|work| work.end() <= now) {
            self.done += work.done_at(now);
            self.works.pop_front();
        }
        self.runs.retain(|run| run.begins > now);
        self.written_at.retain(|_, written| *written > now);
    }

    fn add(&mut self, work: Work) {
        self.free_at = work.end();
        self.works.push_back(work);
    }

    /// The ranges of these blocks that are neither in memory nor on their way.
    fn missing(&self, file: u64, blocks: Range<u64>) -> Vec<Range<u64>> {
        let mut missing: Vec<Range<u64>> = vec![];
        for block in blocks.filter(|block| self.blocks.ready_at((file, *block)).is_none()) {
            match missing.last_mut() {
                Some(last) if last.end == block => last.end += 1,
                _ => missing.push(block..block + 1),
            }
        }
        missing
    }
}

impl Work {
    fn end(&self) -> Duration {
        self.start + self.seek.unwrap_or_default() + self.transfer
    }

    /// What of it is done at some time.
    fn done_at(&self, now: Duration) -> DiskAccount {
        if now < self.start {
            return DiskAccount::default();
        }
        let busy = now.min(self.end()) - self.start;
        let seeking = busy.min(self.seek.unwrap_or_default());
        let share = match self.transfer.is_zero() {
            true => 1.0,
            false => (busy - seeking).as_secs_f64() / self.transfer.as_secs_f64(),
        };
        let bytes = (self.bytes as f64 * share) as u64;
        let (bytes_read, bytes_written) = if self.is_write { (0, bytes) } else { (bytes, 0) };
        let seeks = self.seek.is_some().into();
        DiskAccount { busy, seeking, seeks, bytes_read, bytes_written, queue: Duration::ZERO }
    }
}

impl Run {
    /// Whether blocks go on where it ends, or lie within it, and it does not get too long.
    fn takes(&self, blocks: &Range<u64>, blocks_max: u64) -> bool {
        (self.blocks.start..=self.blocks.end).contains(&blocks.start)
            && blocks.end - self.blocks.start <= blocks_max
    }
}

impl AddAssign for DiskAccount {
    fn add_assign(&mut self, other: Self) {
        self.busy += other.busy;
        self.seeking += other.seeking;
        self.seeks += other.seeks;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.queue += other.queue;
    }
}

impl Slowness {
    /// The numbers of the blocks that a range touches.
    fn blocks_of(&self, bytes: &Range<u64>) -> Range<u64> {
        let size = u64::from(self.block_size);
        bytes.start / size..bytes.end.div_ceil(size)
    }

    fn transfer(&self, blocks: u64) -> Duration {
        match self.bytes_per_second {
            0 => Duration::ZERO,
            rate => seconds(blocks as f64 * f64::from(self.block_size) / rate as f64),
        }
    }

    fn seek(&self) -> Duration {
        match self.seeks_per_second {
            0 => Duration::ZERO,
            rate => seconds(1.0 / f64::from(rate)),
        }
    }
}

fn block_count(ranges: &[Range<u64>]) -> usize {
    ranges.iter().map(|blocks| (blocks.end - blocks.start) as usize).sum()
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4)
}

fn wait(clock: &dyn Clock, now: Duration, until: Duration) {
    let time = until.saturating_sub(now);
    if !time.is_zero() {
        clock.sleep(time);
    }
}

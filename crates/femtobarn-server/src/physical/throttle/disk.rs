//! A simulated disk, with the read-ahead and write-back of an operating system in front of it.
//!
//! 1. The disk performs its operations in the order in which they were queued, and is never idle while one is queued.
//!    An operation takes the transfer time of its blocks, and a seek unless it continues where the last one ended.
//! 2. A read fetches the blocks that are not in memory. A prefetch queues one operation for each missing range; its
//!    blocks arrive one after the other.
//! 3. Written blocks are in memory at once, and queue an operation. A write that continues a queued write that has not
//!    started costs no seek: the disk writes both in one run of up to [`RUN_BYTES_MAX`].
//! 4. Readers wait for their blocks, writers until the backlog is at most [`DiskModel::write_behind`], and syncs until
//!    all writes to the file are on the disk. No caller holds the lock while it waits.

use std::collections::{HashMap, VecDeque};
use std::ops::{AddAssign, Range};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::blocks::BlockCache;
use super::model::{Clock, DiskModel};

/// Bytes of one run: adjacent queued writes that need one seek together.
const RUN_BYTES_MAX: u64 = 8 << 20;

/// Bytes of one prefetch; the rest of a longer announcement is ignored, and can be announced later.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// The call would wait longer than [`DiskModel::defer_above`]; it can be tried again after this time.
pub(super) struct TooLong(pub Duration);

/// The disk.
pub(super) struct SimulatedDisk {
    model: DiskModel,
    state: Mutex<State>,
}

/// The work of a disk so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskAccount {
    /// Time for which the disk was busy.
    pub busy: Duration,
    /// The part of `busy` that was spent on seeks.
    pub seeking: Duration,
    /// Seeks.
    pub seeks: u64,
    /// Bytes of the blocks that were read.
    pub bytes_read: u64,
    /// Bytes of the blocks that were written.
    pub bytes_written: u64,
    /// Time that the queued operations will take.
    pub queue: Duration,
}

struct State {
    /// When the queue is empty.
    free_at: Duration,
    /// The file, and the block after the last queued operation.
    head: Option<(u64, u64)>,
    /// The queue, without idle time between operations.
    operations: VecDeque<DiskOperation>,
    /// Queued writes that have not started.
    runs: Vec<WriteRun>,
    /// For each file, when all its writes are on the disk; files without queued writes are absent.
    written_at: HashMap<u64, Duration>,
    blocks: BlockCache,
    /// The work of finished operations.
    done: DiskAccount,
}

/// A queued read or write.
#[derive(Clone, Copy)]
struct DiskOperation {
    start: Duration,
    seek: Option<Duration>,
    transfer: Duration,
    bytes: u64,
    is_write: bool,
}

/// Adjacent writes that the disk performs as one.
struct WriteRun {
    file: u64,
    blocks: Range<u64>,
    begins: Duration,
}

impl SimulatedDisk {
    pub(super) fn new(model: DiskModel) -> Self {
        let model = DiskModel { block_size: model.block_size.max(1), ..model };
        let state = State {
            free_at: Duration::ZERO,
            head: None,
            operations: VecDeque::new(),
            runs: vec![],
            written_at: HashMap::new(),
            blocks: BlockCache::new(model.block_size.into(), model.cache_bytes),
            done: DiskAccount::default(),
        };
        SimulatedDisk { model, state: Mutex::new(state) }
    }

    /// Returns when a range is in memory.
    ///
    /// # Errors
    /// [`TooLong`]; then nothing was queued.
    pub(super) fn read(
        &self,
        clock: &dyn Clock,
        file: u64,
        bytes: &Range<u64>,
    ) -> Result<(), TooLong> {
        let blocks = self.model.blocks_of(bytes);
        let (mut state, now) = self.state(clock);
        let there = blocks.clone().filter_map(|block| state.blocks.ready_at((file, block)));
        let mut ready = there.max().unwrap_or(now);
        let missing = state.missing(file, blocks.clone());
        if !missing.is_empty() {
            ready = ready.max(state.free_at.max(now) + self.time_of(&state, file, &missing));
        }
        self.check_wait(&state, now, ready, !missing.is_empty())?;
        // A read proceeds even without room: concurrent reads are few.
        state.blocks.make_room(block_count(&missing), now);
        self.fetch(&mut state, now, file, &missing);
        drop(state);
        wait(clock, now, ready);
        let (mut state, now) = self.state(clock);
        blocks.for_each(|block| state.blocks.mark_used((file, block), now));
        Ok(())
    }

    /// Prefetches the missing blocks of a range and keeps the other blocks, if there is room for all of them.
    pub(super) fn will_need(&self, clock: &dyn Clock, file: u64, bytes: &Range<u64>) {
        let end = bytes.end.min(bytes.start.saturating_add(AHEAD_BYTES_MAX));
        let (mut state, now) = self.state(clock);
        let blocks = self.model.blocks_of(&(bytes.start..end));
        let missing = state.missing(file, blocks.clone());
        let ready = state.free_at.max(now) + self.time_of(&state, file, &missing);
        if self.check_wait(&state, now, ready, true).is_ok()
            && state.blocks.make_room((blocks.end - blocks.start) as usize, now)
        {
            blocks.for_each(|block| state.blocks.keep_until_read((file, block)));
            self.fetch(&mut state, now, file, &missing);
        }
    }

    /// Queues a write, and returns once the backlog is small enough.
    ///
    /// # Errors
    /// [`TooLong`]; then nothing was queued.
    pub(super) fn write(
        &self,
        clock: &dyn Clock,
        file: u64,
        bytes: &Range<u64>,
    ) -> Result<(), TooLong> {
        let blocks = self.model.blocks_of(bytes);
        let (mut state, now) = self.state(clock);
        let blocks_max = RUN_BYTES_MAX / u64::from(self.model.block_size);
        let is_joined = |run: &WriteRun| run.file == file && run.takes(&blocks, blocks_max);
        let joined = state.runs.iter().position(is_joined);
        let (seek, count) = match joined {
            Some(index) => (None, blocks.end.saturating_sub(state.runs[index].blocks.end)),
            None => (self.seek_to(&state, file, blocks.start), blocks.end - blocks.start),
        };
        let transfer = self.model.transfer(count);
        let time = seek.unwrap_or_default() + transfer;
        let may_go_on = |free_at: Duration| free_at.saturating_sub(self.model.write_behind);
        let until = may_go_on(state.free_at.max(now) + time);
        self.check_wait(&state, now, until, true)?;
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
                state.runs.push(WriteRun { file, blocks: blocks.clone(), begins });
            }
        }
        if count > 0 {
            state.add(DiskOperation {
                start: begins,
                seek,
                transfer,
                bytes: count * u64::from(self.model.block_size),
                is_write: true,
            });
            let free_at = state.free_at;
            state.written_at.insert(file, free_at);
        }
        blocks.for_each(|block| state.blocks.mark_used((file, block), now));
        drop(state);
        wait(clock, now, until);
        Ok(())
    }

    /// Returns when all writes to a file are on the disk.
    ///
    /// # Errors
    /// [`TooLong`] if that takes longer than a call may wait.
    pub(super) fn sync(&self, clock: &dyn Clock, file: u64) -> Result<(), TooLong> {
        let (state, now) = self.state(clock);
        let written = state.written_at.get(&file).copied().unwrap_or(now);
        self.check_wait(&state, now, written, false)?;
        drop(state);
        wait(clock, now, written);
        Ok(())
    }

    /// The disk's work so far.
    pub(super) fn account(&self, clock: &dyn Clock) -> DiskAccount {
        let (state, now) = self.state(clock);
        let mut account = state.done;
        if let Some(work) = state.operations.front() {
            account += work.done_at(now);
        }
        account.queue = state.free_at.saturating_sub(now);
        account
    }

    /// The state, brought up to the present.
    fn state(&self, clock: &dyn Clock) -> (MutexGuard<'_, State>, Duration) {
        let mut state = self.state.lock();
        let now = clock.now();
        state.go_on(now);
        (state, now)
    }

    /// Refuses calls that would wait too long. A call to an idle disk is never refused, however long it takes: it
    /// would be refused again at every attempt.
    fn check_wait(
        &self,
        state: &State,
        now: Duration,
        until: Duration,
        is_new: bool,
    ) -> Result<(), TooLong> {
        let queue = state.free_at.saturating_sub(now);
        let time = until.saturating_sub(now);
        match self.model.defer_above {
            Some(most) if time > most && !queue.is_zero() => {
                Err(TooLong(if is_new { queue } else { time }))
            }
            _ => Ok(()),
        }
    }

    /// The time that fetching these ranges of blocks takes.
    fn time_of(&self, state: &State, file: u64, missing: &[Range<u64>]) -> Duration {
        let Some(first) = missing.first() else { return Duration::ZERO };
        let others = missing.len() as u32 - 1;
        let transfers = missing.iter().map(|blocks| self.model.transfer(blocks.end - blocks.start));
        self.seek_to(state, file, first.start).unwrap_or_default()
            + self.model.seek() * others
            + transfers.sum::<Duration>()
    }

    fn fetch(&self, state: &mut State, now: Duration, file: u64, missing: &[Range<u64>]) {
        let size = u64::from(self.model.block_size);
        for blocks in missing {
            let seek = self.seek_to(state, file, blocks.start);
            let start = state.free_at.max(now);
            let count = blocks.end - blocks.start;
            let transfer = self.model.transfer(count);
            state.add(DiskOperation {
                start,
                seek,
                transfer,
                bytes: count * size,
                is_write: false,
            });
            state.head = Some((file, blocks.end));
            for (index, block) in blocks.clone().enumerate() {
                let arrives = self.model.transfer(index as u64 + 1);
                state.blocks.add_coming((file, block), start + seek.unwrap_or_default() + arrives);
            }
        }
    }

    /// The seek before this block of a file; `None` if the head is at the block, or just after it, as when a writer
    /// fills a block with several writes.
    fn seek_to(&self, state: &State, file: u64, block: u64) -> Option<Duration> {
        let is_there = |next| next == block || Some(next) == block.checked_add(1);
        let is_there = state.head.is_some_and(|(of, next)| of == file && is_there(next));
        (!is_there).then(|| self.model.seek())
    }
}

impl State {
    /// Removes the operations that are finished by now.
    fn go_on(&mut self, now: Duration) {
        while let Some(work) = self.operations.front().filter(|work| work.end() <= now) {
            self.done += work.done_at(now);
            self.operations.pop_front();
        }
        self.runs.retain(|run| run.begins > now);
        self.written_at.retain(|_, written| *written > now);
    }

    fn add(&mut self, work: DiskOperation) {
        self.free_at = work.end();
        self.operations.push_back(work);
    }

    /// The ranges of these blocks that are neither in memory nor in transit.
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

impl DiskOperation {
    fn end(&self) -> Duration {
        self.start + self.seek.unwrap_or_default() + self.transfer
    }

    /// The part of the operation that is done by this time.
    fn done_at(&self, now: Duration) -> DiskAccount {
        if now < self.start {
            return DiskAccount::default();
        }
        let busy = now.min(self.end()) - self.start;
        let seeking = busy.min(self.seek.unwrap_or_default());
        let share = if self.transfer.is_zero() {
            1.0
        } else {
            (busy - seeking).as_secs_f64() / self.transfer.as_secs_f64()
        };
        let bytes = (self.bytes as f64 * share) as u64;
        let (bytes_read, bytes_written) = if self.is_write { (0, bytes) } else { (bytes, 0) };
        let seeks = self.seek.is_some().into();
        DiskAccount { busy, seeking, seeks, bytes_read, bytes_written, queue: Duration::ZERO }
    }
}

impl WriteRun {
    /// Whether blocks start within this run or directly after it, and do not make it too long.
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

fn block_count(ranges: &[Range<u64>]) -> usize {
    ranges.iter().map(|blocks| (blocks.end - blocks.start) as usize).sum()
}

fn wait(clock: &dyn Clock, now: Duration, until: Duration) {
    let time = until.saturating_sub(now);
    if !time.is_zero() {
        clock.sleep(time);
    }
}

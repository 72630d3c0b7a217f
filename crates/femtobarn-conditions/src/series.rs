//! Look-ups in one series as of a snapshot.
//!
//! A series reads the validities of a window of its clock at the first look-up in it, and keeps the resolved
//! timeline within the budget of its federation. Look-ups in a window whose timeline is kept read nothing.

use std::ops::Range;
use std::sync::Arc;

use femtobarn::{Result, SeriesOptions, Snapshot, View};
use parking_lot::Mutex;
use rntuple::Array;

use crate::sources::Sources;
use crate::timeline::{Interval, Timeline};
use crate::timelines::{TimelineSlot, Timelines};
use crate::windows::{Window, windows_of};

/// A series as of a snapshot. Threads may share it.
pub struct Series {
    sources: Sources,
    options: SeriesOptions,
    /// In order; they cover the clock. Shared with the same version through other snapshots.
    windows: Arc<LoadedWindows>,
    /// Held by the thread that reads a window, so that other threads wait for it instead of reading the same.
    loading: Mutex<()>,
}

struct LoadedWindows {
    list: Vec<(Window, TimelineSlot)>,
    timelines: Arc<Timelines>,
}

impl Drop for LoadedWindows {
    fn drop(&mut self) {
        self.list.iter().for_each(|(_, slot)| self.timelines.remove(slot));
    }
}

impl Series {
    /// Opens the series in its containers: first that of the series, then those of branches, each in front of the
    /// container that it is based on.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `Invalid` if a container is neither a series nor a branch's container of
    /// it; `Corrupt` if its statistics are damaged.
    pub fn open(views: Vec<View>) -> Result<Self> {
        let (sources, options) = Sources::open(views)?;
        let timelines = Timelines::of(sources.list()[0].view.snapshot().federation());
        let windows = windows_of(&sources, options.overlap)?.into_iter();
        let list = windows.map(|window| (window, timelines.new_slot())).collect();
        let windows = Arc::new(LoadedWindows { list, timelines });
        Ok(Series { sources, options, windows, loading: Mutex::new(()) })
    }

    /// The same series through another snapshot, which must have these versions of its containers under the same paths.
    /// Windows that were read are shared.
    pub fn through(&self, snapshot: &Snapshot) -> Self {
        Series {
            sources: self.sources.through(snapshot),
            options: self.options,
            windows: self.windows.clone(),
            loading: Mutex::new(()),
        }
    }

    /// The container of the series; of a branch, the one that it is based on.
    pub fn view(&self) -> &View {
        &self.sources.list()[0].view
    }

    /// The containers that hold the objects, that of the series first, then those of branches.
    pub fn views(&self) -> impl ExactSizeIterator<Item = &View> {
        self.sources.list().iter().map(|source| &source.view)
    }

    /// The place of the container with a condition among [`views`](Self::views), and the condition's entry in it.
    pub fn place_of(&self, entry: u64) -> (usize, u64) {
        self.sources.place_of(entry)
    }

    /// Conditions that are not deleted, including those that newer ones hide. A condition that a branch replaced counts
    /// once.
    pub fn conditions(&self) -> u64 {
        let live: u64 = self.views().map(View::live).sum();
        live.saturating_sub(self.sources.replacements() as u64)
    }

    /// The entries of conditions that a branch replaced, in order.
    pub fn replaced_entries(&self) -> Vec<u64> {
        self.sources.replaced_entries()
    }

    /// Reads fields of conditions by their entries, in the order given, as [`View::fetch`] does.
    ///
    /// # Errors
    /// The errors of [`View::fetch`].
    pub fn fetch(&self, paths: &[impl AsRef<str>], entries: &[u64]) -> Result<Array> {
        self.sources.fetch(paths, entries)
    }

    /// Its clock, and the rule for overlapping validities.
    pub fn options(&self) -> SeriesOptions {
        self.options
    }

    /// The interval of a channel at a moment of the clock. It is clipped to the window that was read for it, so the
    /// answer may hold for longer than it states.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `Corrupt` if the stored bytes are damaged; `Unavailable` if the server
    /// does not answer.
    pub fn at(&self, channel: i64, at: i64) -> Result<Interval> {
        self.cursor().at(channel, at)
    }

    /// Like [`at`](Self::at), if the window of the moment has been read and is kept.
    #[inline]
    pub fn loaded_at(&self, channel: i64, at: i64) -> Option<Interval> {
        let (window, slot) = &self.windows.list[self.window_at(at)];
        let timeline = self.windows.timelines.get(slot)?;
        Some(timeline.at(channel, at).within(&window.range))
    }

    /// Like [`interval`](Self::interval), if the window of the moment is kept, and the interval ends within it.
    pub(crate) fn loaded_interval(&self, channel: i64, at: i64) -> Option<Interval> {
        let range = &self.windows.list[self.window_at(at)].0.range;
        let found = self.loaded_at(channel, at)?;
        let is_whole = (found.since > range.start || range.start == i64::MIN)
            && (found.until < range.end || range.end == i64::MAX);
        is_whole.then_some(found)
    }

    /// The whole interval of a channel at a moment. Unlike [`at`](Self::at), it may read the windows around that of
    /// the moment.
    ///
    /// # Errors
    /// The errors of [`at`](Self::at).
    pub fn interval(&self, channel: i64, at: i64) -> Result<Interval> {
        let mut whole = self.at(channel, at)?;
        let mut place = self.window_at(at);
        while place > 0 && whole.since == self.range_of(place).start {
            place -= 1;
            let before = self.edge(place, channel, whole.since - 1)?;
            if before.entry != whole.entry {
                break;
            }
            whole.since = before.since;
        }
        place = self.window_at(at);
        while place + 1 < self.windows.list.len() && whole.until == self.range_of(place).end {
            place += 1;
            let after = self.edge(place, channel, whole.until)?;
            if after.entry != whole.entry {
                break;
            }
            whole.until = after.until;
        }
        Ok(whole)
    }

    /// The interval at a moment within a window.
    fn edge(&self, place: usize, channel: i64, at: i64) -> Result<Interval> {
        Ok(self.timeline(place)?.at(channel, at).within(self.range_of(place)))
    }

    fn range_of(&self, place: usize) -> &Range<i64> {
        &self.windows.list[place].0.range
    }

    /// A cursor for many look-ups, fastest in the order of time.
    pub fn cursor(&self) -> SeriesCursor<'_> {
        SeriesCursor {
            series: self,
            range: 0..0,
            timeline: None,
            channel: 0,
            segments: 0..0,
            hint: 0,
        }
    }

    /// The intervals of a channel that meet a range of the clock and have a valid object, in order.
    ///
    /// # Errors
    /// The errors of [`at`](Self::at).
    pub fn intervals(&self, channel: i64, range: Range<i64>) -> Result<Vec<Interval>> {
        let mut found: Vec<Interval> = vec![];
        for place in self.window_at(range.start)..self.windows.list.len() {
            if self.range_of(place).start >= range.end {
                break;
            }
            for next in self.timeline(place)?.intervals(channel, &range) {
                match found.last_mut() {
                    Some(last) if last.entry == next.entry && last.until == next.since => {
                        last.until = next.until;
                    }
                    _ => found.push(next),
                }
            }
        }
        Ok(found)
    }

    /// All channels that have a valid object at some time in a range of the clock, ascending.
    ///
    /// # Errors
    /// The errors of [`at`](Self::at).
    pub fn channels(&self, range: Range<i64>) -> Result<Vec<i64>> {
        let mut channels = vec![];
        for place in self.window_at(range.start)..self.windows.list.len() {
            if self.range_of(place).start >= range.end {
                break;
            }
            let timeline = self.timeline(place)?;
            let is_in = |channel: &&i64| timeline.intervals(**channel, &range).next().is_some();
            channels.extend(timeline.channels().iter().filter(is_in).copied());
        }
        channels.sort_unstable();
        channels.dedup();
        Ok(channels)
    }

    /// The windows of its clock, each of which is read as a whole: in order, and without gaps.
    pub fn windows(&self) -> impl ExactSizeIterator<Item = Range<i64>> {
        self.windows.list.iter().map(|(window, _)| window.range.clone())
    }

    /// The timeline of a window.
    ///
    /// # Errors
    /// The errors of [`at`](Self::at).
    ///
    /// # Panics
    /// If there is no window with this number.
    pub fn window(&self, number: usize) -> Result<Arc<Timeline>> {
        self.timeline(number)
    }

    /// Bytes of the timelines that are kept.
    pub fn held_bytes(&self) -> u64 {
        let LoadedWindows { list, timelines } = &*self.windows;
        list.iter().map(|(_, slot)| timelines.held_bytes(slot)).sum()
    }

    fn window_at(&self, at: i64) -> usize {
        let is_begun = |(window, _): &(Window, TimelineSlot)| window.range.start <= at;
        self.windows.list.partition_point(is_begun).saturating_sub(1)
    }

    /// The timeline of a window, read unless it is kept.
    fn timeline(&self, place: usize) -> Result<Arc<Timeline>> {
        let LoadedWindows { list, timelines } = &*self.windows;
        let (window, slot) = &list[place];
        if let Some(timeline) = timelines.get(slot) {
            return Ok(timeline);
        }
        let _loading = self.loading.lock();
        if let Some(timeline) = timelines.get(slot) {
            return Ok(timeline);
        }
        let mut rows = vec![];
        for entries in &window.entries {
            self.sources.read_rows(entries, &mut rows)?;
        }
        let mut resolved = Timeline::resolve(rows, self.options.overlap, window.range.clone());
        if self.sources.has_replacements() {
            resolved.renumber(|entry| self.sources.stored_at(entry));
        }
        Ok(timelines.keep(slot, resolved))
    }
}

/// Looks up many moments, one after the other. It belongs to one thread.
pub struct SeriesCursor<'a> {
    series: &'a Series,
    /// The window of the last look-up.
    range: Range<i64>,
    timeline: Option<Arc<Timeline>>,
    /// The channel of the last look-up, and its segments in the window.
    channel: i64,
    segments: Range<usize>,
    hint: usize,
}

impl SeriesCursor<'_> {
    /// The interval of a channel at a moment; see [`Series::at`].
    ///
    /// # Errors
    /// The errors of [`Series::at`].
    #[inline]
    pub fn at(&mut self, channel: i64, at: i64) -> Result<Interval> {
        if self.timeline.is_none() || !self.range.contains(&at) {
            self.enter(at)?;
        }
        let timeline = self.timeline.as_deref().expect("a window was entered");
        if channel != self.channel || self.segments.is_empty() {
            self.channel = channel;
            self.segments = timeline.segments_of(channel);
            self.hint = self.segments.start;
        }
        let found = timeline.find(self.segments.clone(), at, &mut self.hint);
        Ok(found.within(&self.range))
    }

    /// Moves to the window of a moment.
    #[cold]
    fn enter(&mut self, at: i64) -> Result<()> {
        let place = self.series.window_at(at);
        self.timeline = Some(self.series.timeline(place)?);
        self.range = self.series.range_of(place).clone();
        self.segments = 0..0;
        Ok(())
    }
}

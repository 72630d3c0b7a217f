//! Remote sources: any read takes few round trips.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use rntuple::{
    Appender, ByteSource, CellType, EnvelopeLink, PageCache, ReadRequest, Reader, Type,
    WriteOptions, row,
};

use crate::store::Store;

row! {
    #[derive(Clone, Debug, PartialEq)]
    struct Track { pt: f32, hits: Vec<u16> }
}
row! {
    #[derive(Clone, Debug, PartialEq)]
    struct Event { id: u64, name: String, weights: [f64; 3], tracks: Vec<Track>, energies: Vec<f32> }
}

fn event(id: u64) -> Event {
    let track = |n: u64| Track { pt: (id + n) as f32, hits: (0..n as u16 + 1).collect() };
    Event {
        id,
        name: format!("event {id}"),
        weights: [0.5, id as f64, 2.0],
        tracks: (0..id % 4).map(track).collect(),
        energies: vec![id as f32; id as usize % 7],
    }
}

/// A source that counts reads of bytes that were not announced.
#[derive(Default)]
struct RemoteBytes {
    bytes: Vec<u8>,
    announced: Mutex<Vec<Range<u64>>>,
    /// Ranges that a later read may need.
    maybe: Mutex<Vec<Range<u64>>>,
    trips: Mutex<u64>,
}

impl RemoteBytes {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(RemoteBytes { bytes, ..RemoteBytes::default() })
    }

    /// The number of round trips since the last call.
    fn trips(&self) -> u64 {
        std::mem::take(&mut self.trips.lock().unwrap())
    }

    /// The ranges announced since the last call.
    fn announced(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.announced.lock().unwrap())
    }
}

impl ByteSource for RemoteBytes {
    fn size(&self) -> rntuple::Result<u64> {
        self.bytes.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        let end = offset.saturating_add(buffer.len() as u64);
        let is_announced = |range: &Range<u64>| range.start <= offset && end <= range.end;
        if !self.announced.lock().unwrap().iter().any(is_announced) {
            *self.trips.lock().unwrap() += 1;
        }
        self.bytes.read_at(offset, buffer)
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        let mut announced = self.announced.lock().unwrap();
        let is_on_its_way = |range: &Range<u64>| {
            announced.iter().any(|known| known.start <= range.start && range.end <= known.end)
        };
        if !ranges.iter().all(is_on_its_way) {
            *self.trips.lock().unwrap() += 1;
            announced.extend_from_slice(ranges);
        }
    }

    fn may_need(&self, ranges: &[Range<u64>]) {
        self.maybe.lock().unwrap().extend_from_slice(ranges);
    }

    fn is_remote(&self) -> bool {
        true
    }
}

const ENTRIES: u64 = 4000;

/// A store with events, its bytes, and the links to header and footer.
fn written(entries: u64) -> (Vec<u8>, rntuple::EnvelopeLink, rntuple::EnvelopeLink) {
    let mut store = Store::default();
    let Type::Record { members, .. } = Event::cell_type() else { panic!() };
    let options = WriteOptions { page_size: 512, ..WriteOptions::default() };
    let (mut appender, header) = Appender::create(&mut store, "events", &members, options).unwrap();
    (0..entries).for_each(|id| appender.append_row(&mut store, &event(id)).unwrap());
    let version = appender.finish_version(&mut store, &Vec::new()).unwrap();
    let mut bytes = vec![0; store.len() as usize];
    store.read_at(0, &mut bytes).unwrap();
    (bytes, header, version.footer)
}

fn opened(entries: u64) -> (Arc<RemoteBytes>, Reader, Reader) {
    let (bytes, header, footer) = written(entries);
    let local = Reader::from_links(Arc::new(bytes.clone()), &header, &footer).unwrap();
    let remote = RemoteBytes::new(bytes);
    let reader = Reader::from_links(remote.clone(), &header, &footer).unwrap();
    let reader = reader.with_cache(Arc::new(PageCache::new(16 << 20)), 1);
    // The page lists are read once.
    reader.read(&reader.select(&["id"]).unwrap(), 0..1).unwrap();
    (remote, reader, local)
}

#[test]
fn an_entry_takes_one_round_trip_per_level_of_collections() {
    let (remote, reader, local) = opened(ENTRIES);
    for entry in [3_003, 11, 2_007, ENTRIES - 1] {
        remote.trips();
        remote.announced();
        let object = reader.read(&reader.select_all(), entry..entry + 1).unwrap();
        let trips = remote.trips();
        assert!(trips <= 3, "{trips}");
        let wanted = local.read(&local.select_all(), entry..entry + 1).unwrap();
        assert_eq!(object.value(0).unwrap(), wanted.value(0).unwrap());
        reader.read(&reader.select_all(), entry..entry + 1).unwrap();
        assert_eq!(remote.trips(), 0, "the whole entry is in the cache");
    }
}

#[test]
fn scattered_entries_take_as_many_round_trips_as_one() {
    let (remote, reader, local) = opened(ENTRIES);
    let runs: Vec<Range<u64>> = (1..40).map(|run| run * 97..run * 97 + 2).collect();
    remote.trips();
    remote.announced();
    let objects = reader.read_runs(&reader.select_all(), &runs).unwrap();
    let trips = remote.trips();
    assert!(trips <= 3, "{trips}");
    let wanted = local.read_runs(&local.select_all(), &runs).unwrap();
    assert_eq!(objects.len(), wanted.len());
    for position in 0..objects.len() {
        assert_eq!(objects.value(position).unwrap(), wanted.value(position).unwrap());
    }
}

#[test]
fn threads_that_read_a_field_each_take_as_many_round_trips_as_one_thread() {
    let (remote, reader, local) = opened(ENTRIES);
    for threads in [2, 4] {
        remote.trips();
        remote.announced();
        let entries = threads as u64 * 700..threads as u64 * 700 + 600;
        let objects = reader.read_in_parallel(&reader.select_all(), entries.clone(), threads);
        let trips = remote.trips();
        assert!(trips <= 3, "{trips}");
        let wanted = local.read(&local.select_all(), entries).unwrap();
        assert_eq!(objects.unwrap().value(599).unwrap(), wanted.value(599).unwrap());
    }
}

#[test]
fn sequential_reads_announce_the_pages_of_the_next_read() {
    let (remote, reader, local) = opened(ENTRIES);
    let all = reader.select_all();
    let mut seen = vec![];
    for start in (0..ENTRIES).step_by(500) {
        remote.trips();
        remote.announced();
        let part = reader.read(&all, start..start + 500).unwrap();
        let trips = remote.trips();
        assert!(trips <= 3, "{trips}");
        let wanted = local.read(&local.select_all(), start..start + 500).unwrap();
        assert!((0..500).all(|at| part.value(at).unwrap() == wanted.value(at).unwrap()));
        let announced = remote.announced();
        if start > 500 {
            let is_expected = |range: &&Range<u64>| {
                seen.iter().any(|it: &Range<u64>| it.start <= range.start && range.end <= it.end)
            };
            let expected = announced.iter().filter(is_expected).count();
            let count = announced.len();
            assert!(2 * expected >= count, "{expected} of {count} were expected");
        }
        seen = std::mem::take(&mut remote.maybe.lock().unwrap());
        let is_announced = |at: u64| announced.iter().any(|range| range.contains(&at));
        assert!(!seen.iter().any(|range| is_announced(range.start)), "announced twice");
        assert_eq!(start > 0 && start + 500 < ENTRIES, !seen.is_empty(), "from {start}");
    }
}

#[test]
fn damage_is_reported_by_the_read_not_by_the_announcement() {
    let (bytes, header, footer) = written(6);
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        let Ok(reader) = Reader::from_links(RemoteBytes::new(damaged), &header, &footer) else {
            continue;
        };
        let one = reader.read(&reader.select_all(), 3..4).is_err();
        refused += usize::from(one | reader.read(&reader.select_all(), 0..6).is_err());
    }
    assert!(refused > 100, "{refused}");
}

/// A remote source behind a cache, which may be damaged.
struct DamagedCache {
    cached: Mutex<Vec<u8>>,
    origin: Vec<u8>,
    /// Reads past the cache.
    rereads: Mutex<usize>,
}

impl ByteSource for DamagedCache {
    fn size(&self) -> rntuple::Result<u64> {
        self.origin.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        self.cached.lock().unwrap().read_at(offset, buffer)
    }

    fn read_past_caches(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        *self.rereads.lock().unwrap() += 1;
        for request in requests {
            self.origin.read_at(request.offset, request.buffer)?;
            let start = request.offset as usize;
            let mut cached = self.cached.lock().unwrap();
            cached[start..start + request.buffer.len()].copy_from_slice(request.buffer);
        }
        Ok(())
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// Whether all entries are read, and the number of reads past the cache.
fn read_through(
    cached: Vec<u8>,
    origin: &[u8],
    links: [&EnvelopeLink; 2],
    entries: u64,
) -> (bool, usize) {
    let source = DamagedCache {
        cached: Mutex::new(cached),
        origin: origin.to_vec(),
        rereads: Mutex::default(),
    };
    let source = Arc::new(source);
    let read = || {
        let reader = Reader::from_links(source.clone(), links[0], links[1])?;
        let found = reader.read(&reader.select_all(), 0..entries)?;
        let origin = Reader::from_links(Arc::new(source.origin.clone()), links[0], links[1])?;
        let wanted = origin.read(&origin.select_all(), 0..entries)?;
        for at in 0..entries as usize {
            assert_eq!(found.value(at).unwrap(), wanted.value(at).unwrap());
        }
        rntuple::Result::Ok(())
    };
    let is_read = read().is_ok();
    let rereads = *source.rereads.lock().unwrap();
    (is_read, rereads)
}

#[test]
fn damaged_bytes_of_a_cache_are_read_again_past_it() {
    let (bytes, header, footer) = written(6);
    let links = [&header, &footer];
    let mut reread = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        let (is_read, rereads) = read_through(damaged.clone(), &bytes, links, 6);
        assert!(is_read, "byte {at}");
        reread += usize::from(rereads > 0);
        if rereads > 0 {
            let (is_read, rereads) = read_through(damaged.clone(), &damaged, links, 6);
            assert!(!is_read && rereads > 0, "the origin is damaged, too: byte {at}");
        }
    }
    assert!(reread > 100, "{reread}");
    assert_eq!(read_through(bytes.clone(), &bytes, links, 6), (true, 0));
    let (is_read, rereads) = read_through(vec![0; bytes.len()], &bytes, links, 6);
    assert!(is_read);
    assert!(rereads < 30, "all pages of a column are read again together: {rereads}");
}

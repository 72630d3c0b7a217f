//! Remote sources: any read takes few round trips.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use rntuple::{Appender, ByteSource, CellType, PageCache, Reader, Type, WriteOptions, row};

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
struct Far {
    bytes: Vec<u8>,
    told: Mutex<Vec<Range<u64>>>,
    maybe: Mutex<Vec<Range<u64>>>,
    trips: Mutex<u64>,
}

impl Far {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Far { bytes, ..Far::default() })
    }

    /// Round trips since the last call.
    fn trips(&self) -> u64 {
        std::mem::take(&mut self.trips.lock().unwrap())
    }

    /// Announced ranges since the last call.
    fn told(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

impl ByteSource for Far {
    fn size(&self) -> rntuple::Result<u64> {
        self.bytes.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        let end = offset.saturating_add(buffer.len() as u64);
        let is_told = |range: &Range<u64>| range.start <= offset && end <= range.end;
        if !self.told.lock().unwrap().iter().any(is_told) {
            *self.trips.lock().unwrap() += 1;
        }
        self.bytes.read_at(offset, buffer)
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        if !ranges.is_empty() {
            *self.trips.lock().unwrap() += 1;
            self.told.lock().unwrap().extend_from_slice(ranges);
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

fn opened(entries: u64) -> (Arc<Far>, Reader, Reader) {
    let (bytes, header, footer) = written(entries);
    let near = Reader::from_links(Arc::new(bytes.clone()), &header, &footer).unwrap();
    let far = Far::new(bytes);
    let reader = Reader::from_links(far.clone(), &header, &footer).unwrap();
    let reader = reader.with_cache(Arc::new(PageCache::new(16 << 20)), 1);
    // The page lists are read once.
    reader.read(&reader.select(&["id"]).unwrap(), 0..1).unwrap();
    (far, reader, near)
}

#[test]
fn an_entry_takes_one_round_trip_per_level_of_collections() {
    let (far, reader, near) = opened(ENTRIES);
    for entry in [3_003, 11, 2_007, ENTRIES - 1] {
        far.trips();
        far.told();
        let object = reader.read(&reader.select_all(), entry..entry + 1).unwrap();
        let trips = far.trips();
        assert!(trips <= 3, "{trips}");
        let wanted = near.read(&near.select_all(), entry..entry + 1).unwrap();
        assert_eq!(object.value(0).unwrap(), wanted.value(0).unwrap());
        reader.read(&reader.select_all(), entry..entry + 1).unwrap();
        assert_eq!(far.trips(), 0, "now all of it is in the cache");
    }
}

#[test]
fn scattered_entries_take_as_many_round_trips_as_one() {
    let (far, reader, near) = opened(ENTRIES);
    let runs: Vec<Range<u64>> = (1..40).map(|run| run * 97..run * 97 + 2).collect();
    far.trips();
    far.told();
    let objects = reader.read_runs(&reader.select_all(), &runs).unwrap();
    let trips = far.trips();
    assert!(trips <= 3, "{trips}");
    let wanted = near.read_runs(&near.select_all(), &runs).unwrap();
    assert_eq!(objects.len(), wanted.len());
    for position in 0..objects.len() {
        assert_eq!(objects.value(position).unwrap(), wanted.value(position).unwrap());
    }
}

#[test]
fn sequential_reads_announce_the_pages_of_the_next_read() {
    let (far, reader, near) = opened(ENTRIES);
    let all = reader.select_all();
    let mut seen = vec![];
    for start in (0..ENTRIES).step_by(500) {
        far.trips();
        far.told();
        let part = reader.read(&all, start..start + 500).unwrap();
        let trips = far.trips();
        assert!(trips <= 3, "{trips}");
        let wanted = near.read(&near.select_all(), start..start + 500).unwrap();
        assert!((0..500).all(|at| part.value(at).unwrap() == wanted.value(at).unwrap()));
        let told = far.told();
        if start > 500 {
            let is_expected = |range: &&Range<u64>| {
                seen.iter().any(|it: &Range<u64>| it.start <= range.start && range.end <= it.end)
            };
            let expected = told.iter().filter(is_expected).count();
            assert!(2 * expected >= told.len(), "{expected} of {} were expected", told.len());
        }
        seen = std::mem::take(&mut far.maybe.lock().unwrap());
        let is_told = |at: u64| told.iter().any(|range| range.contains(&at));
        assert!(!seen.iter().any(|range| is_told(range.start)), "pages are told of once");
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
        let Ok(reader) = Reader::from_links(Far::new(damaged), &header, &footer) else {
            continue;
        };
        let one = reader.read(&reader.select_all(), 3..4).is_err();
        refused += usize::from(one | reader.read(&reader.select_all(), 0..6).is_err());
    }
    assert!(refused > 100, "{refused}");
}

//! Few requests for many pages, and answers of servers that are not as they should be.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use femtobarn_web::{Container, FetchedFile};
use rntuple::{ByteSource, ErrorKind};

use crate::file_of;

rntuple::row! {
    struct Hit { energy: f64, noise: [f64; 4] }
}
rntuple::row! {
    struct Event { hits: Vec<Hit>, id: u64 }
}

const EVENTS: u64 = 20_000;

fn file() -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 11) as f64
    };
    let mut hit = |_| Hit { energy: next(), noise: [next(), next(), next(), next()] };
    let events: Vec<_> =
        (0..EVENTS).map(|id| Event { hits: (0..id % 5).map(&mut hit).collect(), id }).collect();
    file_of(&events)
}

fn parts(file: &[u8], ranges: &[Range<u64>]) -> Vec<u8> {
    ranges.iter().flat_map(|it| &file[it.start as usize..it.end as usize]).copied().collect()
}

#[test]
fn scattered_pages_take_few_requests() {
    let file = Arc::new(file());
    let requests = Arc::new(AtomicUsize::new(0));
    let (bytes, counter) = (Arc::clone(&file), Arc::clone(&requests));
    let fetch = move |ranges: &[Range<u64>]| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(parts(&bytes, ranges))
    };
    let far = FetchedFile::new(file.len() as u64, fetch);
    let far = Container::open(Arc::new(far), "events").unwrap();
    let near = Container::open(Arc::clone(&file) as _, "events").unwrap();
    let opening = requests.swap(0, Ordering::Relaxed);
    assert!(opening <= 5, "{opening} requests for the metadata");
    for path in ["hits.energy", "hits.noise", "hits.#", "id"] {
        let numbers = far.numbers(path, 0..EVENTS).unwrap();
        assert!(numbers == near.numbers(path, 0..EVENTS).unwrap(), "{path}");
        let size = 8 * numbers.values.len();
        let requests = requests.swap(0, Ordering::Relaxed);
        assert!(requests <= 4, "{requests} requests for {size} bytes of {path}");
    }
}

#[test]
fn bytes_are_right_whatever_was_announced_and_read_before() {
    let file: Vec<u8> = (0..400_000_u32).map(|at| (at / 7) as u8).collect();
    let bytes = file.clone();
    let far =
        FetchedFile::new(file.len() as u64, move |ranges: &[Range<u64>]| Ok(parts(&bytes, ranges)));
    let check = |start: usize, end: usize| {
        let mut read = vec![0; end - start];
        far.read_at(start as u64, &mut read).unwrap();
        assert!(read == file[start..end], "{start}..{end}");
    };
    // The piece that this read fetches begins within the range that the read at 90,000 fetches.
    check(5_000, 5_010);
    far.will_need(&[0..100_000, 150_000..150_010, 390_000..500_000]);
    check(90_000, 90_010);
    check(150_000, 150_010);
    check(149_000, 160_000);
    far.will_need(&[150_000..300_000, 100_000..200_000]);
    check(399_990, 400_000);
    check(250_000, 300_000);
    check(140_000, 160_000);
    assert!(far.read_at(399_990, &mut [0; 11]).is_err());
    assert!(far.read_at(u64::MAX, &mut [0; 11]).is_err());
}

#[test]
fn failed_and_short_answers_are_errors() {
    let file = file();
    let size = file.len() as u64;
    let failing =
        FetchedFile::new(size, |_: &[Range<u64>]| Err(io::Error::other("the server answered 403")));
    let Err(error) = Container::open(Arc::new(failing), "events") else { panic!("it was opened") };
    assert_eq!(error.kind(), ErrorKind::Io);
    let short = FetchedFile::new(size, move |ranges: &[Range<u64>]| {
        let mut bytes = parts(&file, ranges);
        bytes.pop();
        Ok(bytes)
    });
    let Err(error) = Container::open(Arc::new(short), "events") else { panic!("it was opened") };
    assert_eq!(error.kind(), ErrorKind::Io);
}

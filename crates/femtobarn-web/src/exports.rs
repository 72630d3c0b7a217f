//! The functions that the worker calls, `crates/femtobarn-server/src/protocol/http/pages/inside_worker.js`.
//!
//! 1. The worker writes a text where [`argument`] points, and then calls a function that takes it.
//! 2. A function returns 0 on success and 1 on failure; then the answer is the reason.
//! 3. The answer lies at [`answer`] until the next call. Numbers are doubles; [`offsets`] has the position of each
//!    object's first number, and [`missing`] marks missing numbers. All other answers are texts in UTF-8.
//!
//! A worker has one container, and one thread.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rntuple::{ByteSource, Result};

use crate::numbers::invalid;
use crate::{Container, FetchedFile, Numbers};

#[link(wasm_import_module = "worker")]
unsafe extern "C" {
    /// Fetches `count` ranges, each an offset and a length, and writes their bytes to `into`, one after the other.
    /// Returns 0, or the HTTP status of the server's answer, or [`NO_ANSWER`].
    fn read_ranges(ranges: *const [f64; 2], count: usize, into: *mut u8) -> u32;
}

const NO_ANSWER: u32 = 1;

#[derive(Default)]
struct State {
    argument: Vec<u8>,
    container: Option<Container>,
    text: Vec<u8>,
    numbers: Option<Numbers>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// Reserves a text of `length` bytes, and returns the address to which the worker must write it.
#[unsafe(no_mangle)]
extern "C" fn argument(length: usize) -> *mut u8 {
    STATE.with_borrow_mut(|state| {
        state.argument = vec![0; length];
        state.argument.as_mut_ptr()
    })
}

/// Opens the container that the argument names, in a file of `size` bytes. The answer is its description.
#[unsafe(no_mangle)]
extern "C" fn open(size: f64) -> u32 {
    answered(|state| {
        let source: Arc<dyn ByteSource> = Arc::new(FetchedFile::new(size as u64, fetch));
        let container = Container::open(source, &state.argument())?;
        state.text = container.description().into_bytes();
        state.container = Some(container);
        Ok(())
    })
}

/// The answer has up to `count` objects from the entry `first` on.
#[unsafe(no_mangle)]
extern "C" fn objects(first: f64, count: u32) -> u32 {
    answered(|state| {
        state.text = state.container()?.objects(first as u64, count as usize)?.into_bytes();
        Ok(())
    })
}

/// The answer has the numbers of the field that the argument names, in the entries from `first` to before `end`.
#[unsafe(no_mangle)]
extern "C" fn numbers(first: f64, end: f64) -> u32 {
    answered(|state| {
        let entries = first as u64..end as u64;
        state.numbers = Some(state.container()?.numbers(&state.argument(), entries)?);
        Ok(())
    })
}

/// The address of the answer.
#[unsafe(no_mangle)]
extern "C" fn answer() -> *const u8 {
    STATE.with_borrow(|state| match &state.numbers {
        Some(numbers) => numbers.values.as_ptr().cast(),
        None => state.text.as_ptr(),
    })
}

/// The number of doubles, or of bytes of a text, in the answer.
#[unsafe(no_mangle)]
extern "C" fn answer_length() -> usize {
    STATE.with_borrow(|state| state.numbers.as_ref().map_or(state.text.len(), |it| it.values.len()))
}

/// The address of the offsets of numbers.
#[unsafe(no_mangle)]
extern "C" fn offsets() -> *const u32 {
    STATE.with_borrow(|state| {
        state.numbers.as_ref().map_or(std::ptr::null(), |it| it.offsets.as_ptr())
    })
}

/// The number of offsets: one more than the number of objects.
#[unsafe(no_mangle)]
extern "C" fn offsets_length() -> usize {
    STATE.with_borrow(|state| state.numbers.as_ref().map_or(0, |it| it.offsets.len()))
}

/// The address of one byte for each number, 1 for missing numbers; null if none is missing.
#[unsafe(no_mangle)]
extern "C" fn missing() -> *const u8 {
    STATE.with_borrow(|state| match &state.numbers {
        Some(numbers) if !numbers.missing.is_empty() => numbers.missing.as_ptr(),
        _ => std::ptr::null(),
    })
}

fn answered(call: impl FnOnce(&mut State) -> Result<()>) -> u32 {
    STATE.with_borrow_mut(|state| {
        (state.text, state.numbers) = (vec![], None);
        match call(state) {
            Ok(()) => 0,
            Err(error) => {
                state.text = error.to_string().into_bytes();
                1
            }
        }
    })
}

impl State {
    fn argument(&self) -> String {
        String::from_utf8_lossy(&self.argument).into_owned()
    }

    fn container(&self) -> Result<&Container> {
        self.container.as_ref().ok_or_else(|| invalid("no container is open"))
    }
}

fn fetch(ranges: &[Range<u64>]) -> io::Result<Vec<u8>> {
    let pairs = ranges.iter().map(|it| [it.start as f64, (it.end - it.start) as f64]);
    let pairs: Vec<_> = pairs.collect();
    let size: u64 = ranges.iter().map(|it| it.end - it.start).sum();
    let mut bytes = vec![0; size as usize];
    // SAFETY: the worker reads `pairs.len()` pairs and writes as many bytes as they have, which is the length of `bytes`.
    match unsafe { read_ranges(pairs.as_ptr(), pairs.len(), bytes.as_mut_ptr()) } {
        0 => Ok(bytes),
        NO_ANSWER => Err(io::Error::other("the server does not answer")),
        status => Err(io::Error::other(format!("the server answered {status}"))),
    }
}

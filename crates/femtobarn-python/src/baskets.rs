//! Reading baskets of TTrees for imports, with several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use pyo3::prelude::*;
use rntuple::tfile::{Branch, BranchNumbers};
use rntuple::values_of;

use crate::buffer::{Buffer, bytes_of};

/// The fields of a [`Branch`], in order.
type BranchRequest<'py> = (bool, usize, usize, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Values and, for lists, offsets, both as bytes.
type BranchColumns = (Buffer, Buffer);

/// Read entries `start..stop` of branches from the bytes of a file, with `threads` threads. A branch with a
/// basket of an unsupported form gives `None`.
///
/// # Errors
/// `BufferError` if an argument has no contiguous buffer.
#[pyfunction]
pub(crate) fn read_branches(
    py: Python<'_>,
    file: &Bound<'_, PyAny>,
    branches: Vec<BranchRequest<'_>>,
    start: i64,
    stop: i64,
    threads: usize,
) -> PyResult<Vec<Option<BranchColumns>>> {
    let file = bytes_of(file)?;
    let branches = branches.iter().map(Stored::new).collect::<PyResult<Vec<_>>>()?;
    let found = py.detach(|| read(&file, &branches, start..stop, threads));
    Ok(found.into_iter().map(|it| it.map(buffers_of)).collect())
}

struct Stored {
    is_list: bool,
    count: usize,
    size: usize,
    places: Bytes,
    edges: Bytes,
}

impl Stored {
    fn new((is_list, count, size, places, edges): &BranchRequest<'_>) -> PyResult<Self> {
        let (places, edges) = (bytes_of(places)?, bytes_of(edges)?);
        Ok(Stored { is_list: *is_list, count: *count, size: *size, places, edges })
    }

    fn read(&self, file: &[u8], entries: std::ops::Range<i64>) -> rntuple::Result<BranchNumbers> {
        let (places, edges) = (values_of(&self.places)?, values_of(&self.edges)?);
        let Stored { is_list, count, size, .. } = *self;
        Branch { is_list, count, size, places, edges }.read(file, entries)
    }
}

fn read(
    file: &[u8],
    branches: &[Stored],
    entries: std::ops::Range<i64>,
    threads: usize,
) -> Vec<Option<BranchNumbers>> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![None; branches.len()]);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(branch) = branches.get(number) else { return };
            let numbers = branch.read(file, entries.clone()).ok();
            found.lock().expect("no thread panics while holding it")[number] = numbers;
        }
    };
    std::thread::scope(|scope| {
        (1..threads.clamp(1, branches.len().max(1))).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    found.into_inner().expect("no thread panics while holding it")
}

fn buffers_of(numbers: BranchNumbers) -> BranchColumns {
    let offsets = rntuple::bytes_of(numbers.offsets);
    (Buffer(numbers.values.into()), Buffer(offsets))
}

//! Memory that Rust and Python share without copying.
//!
//! [`Buffer`] shows the engine's bytes to Python through its buffer protocol, read only. [`bytes_of`] makes
//! bytes of a Python buffer and keeps its owner alive as long as they live.

use std::ffi::{c_int, c_void};

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Bytes of the engine, read only, through Python's buffer protocol.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct Buffer(pub Bytes);

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("<Buffer of {} bytes>", self.0.len())
    }

    /// Fills in a view for Python's buffer protocol.
    ///
    /// # Safety
    /// Called by the interpreter alone, with a view that it owns.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("data of a federation are read-only"));
        }
        let bytes = &slf.get().0;
        let (start, length) = (bytes.as_ptr() as *mut c_void, bytes.len() as isize);
        // SAFETY: the view keeps a reference to `slf`, which is frozen, so that the bytes neither move nor
        // are freed before the view is released; it is marked read only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Bytes over a Python buffer, without copying.
///
/// # Errors
/// `BufferError` if the object has no contiguous buffer.
pub(crate) fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let buffer = PyBuffer::<u8>::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not contiguous"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(Bytes::new());
    }
    Ok(Bytes::from_owner(BorrowedBuffer(buffer)))
}

/// A Python buffer that is released, with the interpreter locked, when the bytes are dropped.
struct BorrowedBuffer(PyBuffer<u8>);

impl AsRef<[u8]> for BorrowedBuffer {
    fn as_ref(&self) -> &[u8] {
        let start = self.0.buf_ptr().cast::<u8>();
        // SAFETY: the buffer is contiguous and at least one byte long (checked in `bytes_of`), and its owner
        // neither moves nor frees it before it is released. That no other thread writes to it meanwhile is
        // the caller's duty, as with every NumPy function that unlocks the interpreter; a write would give
        // wrong values, on which no code here relies.
        unsafe { std::slice::from_raw_parts(start, self.0.len_bytes()) }
    }
}

const _: () = {
    const fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<BorrowedBuffer>();
};

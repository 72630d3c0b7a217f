//! NumPy arrays of one dimension over memory, for the values of single objects.
//!
//! They are made through NumPy's interface for C, a table of functions in a capsule: `numpy.frombuffer` takes three
//! times as long. The table has the same functions in the same places for all NumPy 2
//! (<https://numpy.org/doc/stable/reference/c-api/array.html>), and no other is used.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use bytes::Bytes;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use rntuple::Primitive;

use crate::buffer::Buffer;
use crate::columns::NAMES;
use crate::error::exception;

/// Bytes up to which copying an array costs less than sharing it.
const COPIED_MAX: usize = 1 << 10;
/// `NPY_ARRAY_C_CONTIGUOUS`, `NPY_ARRAY_F_CONTIGUOUS` and `NPY_ARRAY_ALIGNED`; not `NPY_ARRAY_WRITEABLE`.
const READ_ONLY: c_int = 0x103;
/// The binary interface of NumPy 2, the upper byte of `PyArray_GetNDArrayCVersion`.
const ABI: c_uint = 2;

/// `PyArray_GetNDArrayCVersion`, number 0 of the table.
type GetVersion = unsafe extern "C" fn() -> c_uint;
/// `PyArray_NewFromDescr`, number 94: class, type of elements (stolen), dimensions, their lengths, strides, data,
/// flags, and an array to be like.
type NewFromDescr = unsafe extern "C" fn(
    *mut PyObject,
    *mut PyObject,
    c_int,
    *const isize,
    *const isize,
    *mut c_void,
    c_int,
    *mut PyObject,
) -> *mut PyObject;
/// `PyArray_SetBaseObject`, number 282: array, and owner of its data (stolen).
type SetBaseObject = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> c_int;

/// The parts of NumPy's C API that are used.
struct NumPy {
    new_from_descr: NewFromDescr,
    set_base_object: SetBaseObject,
    ndarray: Py<PyAny>,
    /// The types of elements in the order of [`Primitive`].
    types: Vec<Py<PyAny>>,
}

/// Numbers as an array that cannot be written to. Few are copied, many shared.
///
/// # Errors
/// If Python is out of memory; `UnsupportedError` if NumPy is neither 2 nor like it.
pub(crate) fn array_of_numbers<'py>(
    py: Python<'py>,
    primitive: Primitive,
    values: Bytes,
) -> PyResult<Bound<'py, PyAny>> {
    static NUMPY: PyOnceLock<NumPy> = PyOnceLock::new();
    let numpy = NUMPY.get_or_try_init(py, || NumPy::load(py))?;
    let count = (values.len() / primitive.size()) as isize;
    let (owner, data) = if values.len() <= COPIED_MAX {
        let copy = PyBytes::new(py, &values);
        let data = copy.as_bytes().as_ptr();
        (copy.into_any(), data)
    } else {
        let data = values.as_ptr();
        (Bound::new(py, Buffer(values))?.into_any(), data)
    };
    let of = numpy.types[primitive as usize].clone_ref(py).into_ptr();
    // SAFETY: the functions are NumPy's, of these signatures (see `NumPy::load`). `of` and `owner` are references
    // that they steal. `data` has `count` elements, and is neither moved nor freed while `owner` lives: a `bytes`
    // object or a frozen `Buffer`, to which nobody writes, as the array cannot.
    unsafe {
        let (ndarray, data) = (numpy.ndarray.as_ptr(), data.cast_mut().cast());
        let (strides, like) = (ptr::null(), ptr::null_mut());
        let made = (numpy.new_from_descr)(ndarray, of, 1, &count, strides, data, READ_ONLY, like);
        let array = Bound::from_owned_ptr_or_err(py, made)?;
        match (numpy.set_base_object)(array.as_ptr(), owner.into_ptr()) {
            0 => Ok(array),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

impl NumPy {
    fn load(py: Python<'_>) -> PyResult<Self> {
        let module = py.import("numpy._core._multiarray_umath")?;
        let capsule = module.getattr("_ARRAY_API")?;
        let types = py.import("femtobarn._schema.types")?.getattr("DTYPES")?;
        let types = NAMES.map(|(_, name)| types.get_item(name).map(Bound::unbind));
        // SAFETY: the capsule has no name, and points to a table that lives as long as the process. Its first function
        // is the same in all versions, and returns the version, which shows whether the other functions are at their
        // places in NumPy 2.
        let (new_from_descr, set_base_object) = unsafe {
            let table = ffi::PyCapsule_GetPointer(capsule.as_ptr(), ptr::null());
            let table: *const *mut c_void = table.cast_const().cast();
            if table.is_null() {
                return Err(PyErr::fetch(py));
            }
            let version: GetVersion = std::mem::transmute(*table);
            if version() >> 24 != ABI {
                let text = "NumPy has another binary interface than NumPy 2; install numpy>=2,<3";
                return Err(exception("unsupported", text.to_owned()));
            }
            (
                std::mem::transmute::<*mut c_void, NewFromDescr>(*table.add(94)),
                std::mem::transmute::<*mut c_void, SetBaseObject>(*table.add(282)),
            )
        };
        let ndarray = py.import("numpy")?.getattr("ndarray")?.unbind();
        let types = types.into_iter().collect::<PyResult<_>>()?;
        Ok(NumPy { new_from_descr, set_base_object, ndarray, types })
    }
}

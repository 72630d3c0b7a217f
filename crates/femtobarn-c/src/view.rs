//! Containers in snapshots: schema, columns, rows and streams.

use std::ffi::{CString, c_char, c_int};
use std::ops::Range;

use femtobarn::{Result, Selection, View};
use rntuple::Array;

use crate::argument::{place, text, texts};
use crate::arrow::abi::{ArrowArray, ArrowArrayStream, ArrowSchema};
use crate::arrow::export::exported;
use crate::arrow::schema::schema_of;
use crate::arrow::stream::{NextArray, stream_of};
use crate::condition::{CCondition, FieldConditions};
use crate::federation::CSnapshot;
use crate::owned::Owned;
use crate::status::{c_text, invalid, run};

/// A container in a snapshot: `fb_view`.
pub type CView = Owned<OpenView>;

/// A view, and the definition of its class for C.
pub struct OpenView {
    view: View,
    definition: CString,
}

impl OpenView {
    fn new(view: View) -> Self {
        let definition = c_text(&view.class().to_json());
        OpenView { view, definition }
    }
}

/// Opens the container with a path such as `run7/events`.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_view_open(
    snapshot: *const CSnapshot,
    path: *const c_char,
    view: *mut *mut CView,
) -> c_int {
    // SAFETY: the caller's.
    let open = || unsafe { Owned::get(snapshot)?.view(text("path", path)?) }.map(OpenView::new);
    // SAFETY: the caller's.
    run(|| unsafe { Owned::give(view, open) })
}

/// A handle on a view for C, as one of [`fb_view_open`]: `fb_view_free` releases it.
pub fn view_for_c(view: View) -> *mut CView {
    Owned::boxed(OpenView::new(view))
}

/// Number of entries, including deleted ones; 0 for NULL.
///
/// # Safety
/// As the header says: the pointer is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_view_entries(view: *const CView) -> u64 {
    // SAFETY: the caller's.
    unsafe { Owned::get(view) }.map_or(0, |open| open.view.entries())
}

/// Number of objects: entries that are not deleted; 0 for NULL.
///
/// # Safety
/// As the header says: the pointer is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_view_objects(view: *const CView) -> u64 {
    // SAFETY: the caller's.
    unsafe { Owned::get(view) }.map_or(0, |open| open.view.live())
}

/// The class of the objects as JSON, as long as the view lives; NULL for NULL.
///
/// # Safety
/// As the header says: the pointer is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_view_definition(view: *const CView) -> *const c_char {
    // SAFETY: the caller's.
    unsafe { Owned::get(view) }.map_or(std::ptr::null(), |open| open.definition.as_ptr())
}

/// The entries behind the last one of each cluster, and the number of clusters. At most `capacity` are written.
///
/// # Safety
/// As the header says: pointers are NULL or valid, and `ends` has room for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_view_clusters(
    view: *const CView,
    ends: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: the caller's.
        let (view, count) = unsafe { (&Owned::get(view)?.view, place("count", count)?) };
        let none: [&str; 0] = [];
        let clusters = view.cluster_sizes(&view.select(&none)?)?;
        *count = clusters.len();
        if capacity > 0 && ends.is_null() {
            return Err(invalid("the argument ends is NULL"));
        }
        for (at, (entries, _)) in clusters.iter().take(capacity).enumerate() {
            // SAFETY: the caller's, since `at` is below `capacity`.
            unsafe { ends.add(at).write(entries.end) };
        }
        Ok(())
    })
}

/// # Safety
/// The paths are NULL, or as many texts as `count` says.
unsafe fn selection(view: &View, paths: *const *const c_char, count: usize) -> Result<Selection> {
    if paths.is_null() && count == 0 {
        return Ok(view.select_all());
    }
    // SAFETY: the caller's.
    view.select(&unsafe { texts("paths", paths, count) }?)
}

/// The type of columns.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_view_schema(
    view: *const CView,
    paths: *const *const c_char,
    path_count: usize,
    schema: *mut ArrowSchema,
) -> c_int {
    run(|| {
        // SAFETY: the caller's.
        let schema = unsafe { place("schema", schema) }?;
        *schema = ArrowSchema::released();
        // SAFETY: the caller's.
        let view = unsafe { &Owned::get(view)?.view };
        // SAFETY: the caller's.
        let selection = unsafe { selection(view, paths, path_count) }?;
        *schema = schema_of("", &view.read(&selection, 0..0)?);
        Ok(())
    })
}

/// Columns of the objects of a range of entries, without deleted ones and those that do not meet the conditions.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_view_read(
    view: *const CView,
    paths: *const *const c_char,
    path_count: usize,
    first: u64,
    end: u64,
    conditions: *const CCondition,
    condition_count: usize,
    array: *mut ArrowArray,
) -> c_int {
    run(|| {
        // SAFETY: the caller's.
        let array = unsafe { place("array", array) }?;
        *array = ArrowArray::released();
        // SAFETY: the caller's.
        let view = unsafe { &Owned::get(view)?.view };
        // SAFETY: the caller's.
        let conditions = unsafe { FieldConditions::of(view, conditions, condition_count) }?;
        // SAFETY: the caller's.
        let selection = unsafe { selection(view, paths, path_count) }?;
        *array = exported(read_matching(view, &selection, first..end, &conditions)?)?;
        Ok(())
    })
}

/// The columns of objects that meet conditions.
fn read_matching(
    view: &View,
    selection: &Selection,
    entries: Range<u64>,
    conditions: &FieldConditions,
) -> Result<Array> {
    if conditions.is_empty() || entries.is_empty() {
        return view.read(selection, entries);
    }
    let mut parts = vec![];
    for (candidates, matches) in conditions.matches_by_candidates(view, entries.clone())? {
        let read = view.read(selection, candidates)?;
        parts.push(read.take_runs(&matches).map_err(|error| invalid(error.to_string()))?);
    }
    if parts.is_empty() {
        return view.read(selection, entries.start..entries.start);
    }
    Array::concatenate(&parts).map_err(|error| invalid(error.to_string()))
}

/// For each entry of a range, the position of its object in the array that `fb_view_read` returns for the range without
/// conditions; -1 if it is deleted or does not meet the conditions.
///
/// # Safety
/// As the header says: pointers are NULL or valid, and `rows` has room for `end - first` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_view_rows(
    view: *const CView,
    first: u64,
    end: u64,
    conditions: *const CCondition,
    condition_count: usize,
    rows: *mut i64,
) -> c_int {
    run(|| {
        // SAFETY: the caller's.
        let view = unsafe { &Owned::get(view)?.view };
        // SAFETY: the caller's.
        let conditions = unsafe { FieldConditions::of(view, conditions, condition_count) }?;
        // This also checks the range.
        let live = view.live_runs(first..end)?;
        let count = (end - first) as usize;
        if count == 0 {
            return Ok(());
        }
        if rows.is_null() {
            return Err(invalid("the argument rows is NULL"));
        }
        // They are written before there is a reference to them, which must not show uninitialised memory.
        // SAFETY: the caller's.
        (0..count).for_each(|at| unsafe { rows.add(at).write(-1) });
        // SAFETY: the caller's; no other reference to them exists.
        let rows = unsafe { std::slice::from_raw_parts_mut(rows, count) };
        let objects: Vec<usize> =
            live.into_iter().flatten().map(|entry| (entry - first) as usize).collect();
        let all = 0..objects.len();
        let matches =
            if conditions.is_empty() { vec![all] } else { conditions.matches(view, first..end)? };
        matches.into_iter().flatten().for_each(|row| rows[objects[row]] = row as i64);
        Ok(())
    })
}

/// The columns of all objects that meet the conditions, cluster by cluster.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_view_stream(
    view: *const CView,
    paths: *const *const c_char,
    path_count: usize,
    conditions: *const CCondition,
    condition_count: usize,
    stream: *mut ArrowArrayStream,
) -> c_int {
    run(|| {
        // SAFETY: the caller's.
        let stream = unsafe { place("stream", stream) }?;
        *stream = ArrowArrayStream::released();
        // SAFETY: the caller's.
        let view = unsafe { Owned::get(view)?.view.clone() };
        // SAFETY: the caller's.
        let conditions = unsafe { FieldConditions::of(&view, conditions, condition_count) }?;
        // SAFETY: the caller's.
        let selection = unsafe { selection(&view, paths, path_count) }?;
        let empty = view.read(&selection, 0..0)?;
        let mut clusters = view.cluster_sizes(&selection)?.into_iter().peekable();
        let next: NextArray = Box::new(move || {
            while let Some((entries, _)) = clusters.peek() {
                let array = read_matching(&view, &selection, entries.clone(), &conditions)?;
                // Only after the read: a caller that tries again after an error gets this cluster, not the next one.
                clusters.next();
                if !array.is_empty() {
                    return Ok(Some(array));
                }
            }
            Ok(None)
        });
        *stream = stream_of(empty, next);
        Ok(())
    })
}

/// Releases a view.
///
/// # Safety
/// As the header says: the pointer is NULL, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_view_free(view: *mut CView) {
    // SAFETY: the caller's.
    unsafe { Owned::free(view) }
}

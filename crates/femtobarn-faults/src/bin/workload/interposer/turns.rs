//! The turns of a simulated process: its threads run one at a time, in the order that the simulation chooses, with the
//! clocks of its host.
//!
//! Invariants:
//! 1. A thread waits in the simulation, not in the kernel, for everything except the kernel's own work. It asks the
//!    kernel only whether it has to wait.
//! 2. Descriptors are real descriptors of the kernel, so reads, writes and events work as without a simulation.
//! 3. Threads that do not run in a simulation call the C library as usual.

use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use femtobarn_faults::simulation::message::{
    CLOCK_READ_NS, HostTimes, ThreadCall, ThreadCallKind, receive_answer, send_call,
};
use nix::libc::{self, c_int, c_long};
use parking_lot::Mutex;

/// The socket of the main thread: its standard input.
const MAIN_SOCKET: RawFd = 0;

thread_local! {
    /// The socket of this thread; -1 if it is not simulated.
    static SOCKET: Cell<RawFd> = const { Cell::new(-1) };
}

/// The clocks at the last answer.
static TIMES: Mutex<HostTimes> = Mutex::new(HostTimes { simulation: 0, monotonic: 0, of_day: 0 });
/// The number of times that clocks were read since the last answer.
static CLOCK_READS: AtomicU64 = AtomicU64::new(0);

/// Enters the simulation, which waits for this process's first call. Random numbers follow from `seed`.
pub(crate) fn start(seed: u64) {
    super::threads::begin(seed);
    SOCKET.set(MAIN_SOCKET);
    ask(ThreadCallKind::Yield, [0; 3], &[]);
}

/// Makes this thread a simulated thread, and waits for its turn.
pub(super) fn enter(socket: RawFd) {
    SOCKET.set(socket);
    drop(await_answer());
}

pub(super) fn is_simulated() -> bool {
    SOCKET.get() >= 0
}

/// The result of a call.
pub(super) struct Answered {
    pub(super) result: i64,
    pub(super) argument: u64,
    pub(super) file: Option<OwnedFd>,
}

/// Sends a call to the simulation, and waits until this thread may continue.
pub(super) fn ask(kind: ThreadCallKind, arguments: [u64; 3], files: &[RawFd]) -> Answered {
    tell(kind, arguments, files);
    await_answer()
}

pub(super) fn tell(kind: ThreadCallKind, arguments: [u64; 3], files: &[RawFd]) {
    let clock_reads = CLOCK_READS.swap(0, Ordering::Relaxed);
    let call = ThreadCall { kind, clock_reads, arguments };
    if send_call(SOCKET.get(), &call, files).is_err() {
        end();
    }
}

fn await_answer() -> Answered {
    let Ok((answer, file)) = receive_answer(SOCKET.get()) else { end() };
    *TIMES.lock() = answer.times;
    Answered { result: answer.result, argument: answer.argument, file }
}

/// Ends the process of a simulation that is over.
fn end() -> ! {
    // SAFETY: it does not return.
    unsafe { libc::_exit(3) }
}

/// The clocks. Each reading advances them a little.
pub(super) fn times() -> HostTimes {
    let passed = CLOCK_READS.fetch_add(1, Ordering::Relaxed) * CLOCK_READ_NS;
    let HostTimes { simulation, monotonic, of_day } = *TIMES.lock();
    let [simulation, monotonic, of_day] = [simulation, monotonic, of_day].map(|it| it + passed);
    HostTimes { simulation, monotonic, of_day }
}

/// The monotonic clock.
pub(super) fn now() -> u64 {
    times().monotonic
}

/// The function of the C library that a function of this program replaces.
pub(super) fn hidden(name: &CStr, found: &AtomicUsize) -> usize {
    let known = found.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: the name is NUL-terminated.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    assert!(address != 0, "the C library has no {name:?}");
    found.store(address, Ordering::Relaxed);
    address
}

type SystemCall =
    unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// Calls the kernel as `syscall` does.
///
/// # Safety
/// The arguments must be what the call with this number demands.
pub(super) unsafe fn kernel(number: c_long, arguments: [c_long; 6]) -> c_long {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the C library's `syscall` takes integers, which it passes on.
    let call: SystemCall = unsafe { std::mem::transmute(hidden(c"syscall", &FOUND)) };
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the caller's promise.
    unsafe { call(number, first, second, third, fourth, fifth, sixth) }
}

pub(super) fn fail(code: c_int) -> c_int {
    // SAFETY: the location is this thread's and always valid.
    unsafe { *libc::__errno_location() = code };
    -1
}

pub(super) fn errno() -> c_int {
    // SAFETY: the location is this thread's and always valid.
    unsafe { *libc::__errno_location() }
}

//! Threads: their start and end, their waits for each other, and random numbers.

use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use femtobarn_faults::random::SplitMix;
use femtobarn_faults::simulation::message::{NEVER, ThreadCallKind};
use nix::libc::{
    self, c_int, c_long, c_uint, c_void, cpu_set_t, pid_t, pthread_attr_t, pthread_key_t,
    pthread_mutex_t, pthread_t, size_t, ssize_t, timespec,
};
use parking_lot::Mutex;

use super::turns::{ask, enter, fail, hidden, is_simulated, kernel, now, tell};
use super::waits::nanoseconds;

/// The last rounds of a thread's destructors are those of this one.
const ROUNDS: usize = 3;
/// The pause before the next attempt to get a mutex.
const MUTEX_PAUSE_NS: u64 = 10_000;

/// Above the numbers that Linux gives to processes, so that no other process is mistaken for a simulated one.
const FIRST_PROCESS_ID: pid_t = 5_000_000;

static RANDOM: Mutex<SplitMix> = Mutex::new(SplitMix(0));
/// Threads that may be joined, with their numbers in the simulation.
static JOINABLE: Mutex<Vec<(pthread_t, u64)>> = Mutex::new(vec![]);
static PROCESS_ID: AtomicI32 = AtomicI32::new(0);
static END: AtomicU64 = AtomicU64::new(0);

type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

/// The arguments of a new thread.
struct Beginning {
    routine: Routine,
    argument: *mut c_void,
    socket: c_int,
}

pub(super) fn begin(seed: u64) {
    *RANDOM.lock() = SplitMix(seed);
    PROCESS_ID.store(FIRST_PROCESS_ID + (seed % 1_000_000) as pid_t, Ordering::Relaxed);
    let mut key: pthread_key_t = 0;
    // SAFETY: `key` is valid for the call, and the destructor for the life of the program.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(end_thread)) };
    assert_eq!(made, 0, "the C library has no key left");
    END.store(u64::from(key), Ordering::Relaxed);
}

/// Makes [`end_thread`] run after this thread's other destructors.
fn end_later(round: usize) {
    let key = END.load(Ordering::Relaxed) as pthread_key_t;
    // SAFETY: the key was made, and its value is a number that is never followed.
    unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(round)) };
}

unsafe extern "C" fn end_thread(round: *mut c_void) {
    let round = round.addr();
    if round < ROUNDS {
        return end_later(round + 1);
    }
    // SAFETY: there are no arguments.
    let number = unsafe { kernel(libc::SYS_gettid, [0; 6]) };
    tell(ThreadCallKind::EndThread, [number as u64, 0, 0], &[]);
}

extern "C" fn run(beginning: *mut c_void) -> *mut c_void {
    // SAFETY: it was made from a box by `pthread_create`, for this thread alone.
    let beginning = unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    enter(beginning.socket);
    end_later(1);
    (beginning.routine)(beginning.argument)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    type Create =
        unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Routine, *mut c_void) -> c_int;
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the type is that of the C library's function.
    let create: Create = unsafe { std::mem::transmute(hidden(c"pthread_create", &FOUND)) };
    if !is_simulated() {
        // SAFETY: the caller's promises hold for its arguments.
        return unsafe { create(thread, attributes, routine, argument) };
    }
    let started = ask(ThreadCallKind::StartThread, [0; 3], &[]);
    let socket = started.file.expect("a thread has a socket").into_raw_fd();
    let beginning = Box::into_raw(Box::new(Beginning { routine, argument, socket }));
    // SAFETY: the caller's promises hold for its arguments; the new thread takes the box.
    let created = unsafe { create(thread, attributes, run, beginning.cast()) };
    assert_eq!(created, 0, "a simulation needs all of its threads");
    // SAFETY: the thread was created, so its name is there.
    JOINABLE.lock().push((unsafe { *thread }, started.result as u64));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_join(thread: pthread_t, value: *mut *mut c_void) -> c_int {
    type Join = unsafe extern "C" fn(pthread_t, *mut *mut c_void) -> c_int;
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the type is that of the C library's function.
    let join: Join = unsafe { std::mem::transmute(hidden(c"pthread_join", &FOUND)) };
    if is_simulated() {
        let number = {
            let mut joinable = JOINABLE.lock();
            // The C library reuses the handles of threads: the last entry is the current one.
            let at = joinable.iter().rposition(|(name, _)| *name == thread);
            at.map(|at| joinable.remove(at).1)
        };
        if let Some(number) = number {
            ask(ThreadCallKind::Join, [number, 0, 0], &[]);
        }
    }
    // SAFETY: the caller's promises hold for its arguments.
    unsafe { join(thread, value) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    type Lock = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    if !is_simulated() {
        // SAFETY: the type is that of the C library's function.
        let lock: Lock = unsafe { std::mem::transmute(hidden(c"pthread_mutex_lock", &FOUND)) };
        // SAFETY: the caller's promise.
        return unsafe { lock(mutex) };
    }
    loop {
        // SAFETY: the caller's promise.
        match unsafe { libc::pthread_mutex_trylock(mutex) } {
            libc::EBUSY => drop(ask(ThreadCallKind::Sleep, [now() + MUTEX_PAUSE_NS, 0, 0], &[])),
            other => return other,
        }
    }
}

/// Reports two cores, on every machine.
#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getaffinity(
    process: pid_t,
    size: size_t,
    cores: *mut cpu_set_t,
) -> c_int {
    if !is_simulated() {
        let arguments = [process.into(), size as c_long, cores as c_long, 0, 0, 0];
        // SAFETY: the caller's promises hold for its arguments.
        return unsafe { kernel(libc::SYS_sched_getaffinity, arguments).min(0) as c_int };
    }
    // SAFETY: the caller promises so many bytes, at least those of one number of 64 bits.
    unsafe {
        std::ptr::write_bytes(cores.cast::<u8>(), 0, size);
        *cores.cast::<u8>() = 0b11;
    }
    0
}

/// A process number that follows from the seed, because messages contain it.
#[unsafe(no_mangle)]
extern "C" fn getpid() -> pid_t {
    if is_simulated() {
        return PROCESS_ID.load(Ordering::Relaxed);
    }
    // SAFETY: there are no arguments.
    unsafe { kernel(libc::SYS_getpid, [0; 6]) as pid_t }
}

#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    if is_simulated() {
        ask(ThreadCallKind::Yield, [0; 3], &[]);
    }
    0
}

/// The function of the C library takes any number of arguments; this one takes the most that any call of the kernel
/// has.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    let arguments = [first, second, third, fourth, fifth, sixth];
    match number {
        // SAFETY: the caller's promises hold for its arguments.
        libc::SYS_futex if is_simulated() => unsafe { futex(arguments) },
        libc::SYS_getrandom if is_simulated() => {
            // SAFETY: as above.
            unsafe { getrandom(first as *mut c_void, second as size_t, 0) as c_long }
        }
        // SAFETY: as above.
        _ => unsafe { kernel(number, arguments) },
    }
}

/// # Safety
/// The arguments must be those of a call to `futex`.
unsafe fn futex([word, operation, value, timeout, _, _]: [c_long; 6]) -> c_long {
    let flags = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
    let operation = operation as c_int & !flags;
    match operation {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            // SAFETY: the caller promises a word, which other threads may change.
            let current = unsafe { &*(word as *const AtomicU32) }.load(Ordering::SeqCst);
            if current != value as u32 {
                return c_long::from(fail(libc::EAGAIN));
            }
            // SAFETY: the caller promises a time or none.
            let time = unsafe { (timeout as *const timespec).as_ref() }.map(nanoseconds);
            let deadline = match time {
                None => NEVER,
                Some(time) if operation == libc::FUTEX_WAIT => now() + time,
                Some(time) => time,
            };
            match ask(ThreadCallKind::WaitAtAddress, [word as u64, deadline, 0], &[]).result {
                0 => c_long::from(fail(libc::ETIMEDOUT)),
                _ => 0,
            }
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            let count = u64::from(value as c_uint);
            ask(ThreadCallKind::WakeAtAddress, [word as u64, count, 0], &[]).result as c_long
        }
        other => panic!("futex operation {other} is not simulated"),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(bytes: *mut c_void, count: size_t, flags: c_uint) -> ssize_t {
    if !is_simulated() {
        let arguments = [bytes as c_long, count as c_long, c_long::from(flags), 0, 0, 0];
        // SAFETY: the caller's promises hold for its arguments.
        return unsafe { kernel(libc::SYS_getrandom, arguments) as ssize_t };
    }
    if count == 0 {
        return 0;
    }
    // SAFETY: the caller promises as many bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes.cast::<u8>(), count) };
    let mut random = RANDOM.lock();
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&random.draw().to_ne_bytes()[..part.len()]);
    }
    count as ssize_t
}

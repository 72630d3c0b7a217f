//! Clocks, sleeps, and waits for descriptors.

use std::os::fd::RawFd;

use femtobarn_faults::simulation::message::{FILES_MAX, NEVER, ThreadCallKind};
use nix::libc::{
    self, c_int, c_long, c_short, c_uint, c_void, clockid_t, epoll_event, nfds_t, pollfd, time_t,
    timespec, timeval,
};

use super::turns::{ask, errno, is_simulated, kernel, now, times};

const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn nanoseconds(time: &timespec) -> u64 {
    (time.tv_sec.max(0) as u64).saturating_mul(SECOND_NS).saturating_add(time.tv_nsec as u64)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    if !is_simulated() {
        let arguments = [c_long::from(clock), time as c_long, 0, 0, 0, 0];
        // SAFETY: the caller's promises hold for its arguments.
        return unsafe { kernel(libc::SYS_clock_gettime, arguments) as c_int };
    }
    let times = times();
    let now = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => times.of_day,
        // The clock of the simulation, which no host has: it orders events of all hosts.
        libc::CLOCK_BOOTTIME => times.simulation,
        _ => times.monotonic,
    };
    let found =
        timespec { tv_sec: (now / SECOND_NS) as time_t, tv_nsec: (now % SECOND_NS) as c_long };
    // SAFETY: the caller promises a place for the time.
    unsafe { *time = found };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int {
    if !is_simulated() {
        let arguments = [time as c_long, zone as c_long, 0, 0, 0, 0];
        // SAFETY: the caller's promises hold for its arguments.
        return unsafe { kernel(libc::SYS_gettimeofday, arguments) as c_int };
    }
    let now = times().of_day;
    let found = timeval {
        tv_sec: (now / SECOND_NS) as time_t,
        tv_usec: (now % SECOND_NS / 1000) as c_long,
    };
    // SAFETY: the caller promises a place for the time.
    unsafe { *time = found };
    0
}

fn sleep_until(deadline: u64) -> c_int {
    ask(ThreadCallKind::Sleep, [deadline, 0, 0], &[]);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    if !is_simulated() {
        let arguments = [time as c_long, left as c_long, 0, 0, 0, 0];
        // SAFETY: the caller's promises hold for its arguments.
        return unsafe { kernel(libc::SYS_nanosleep, arguments) as c_int };
    }
    // SAFETY: the caller promises a time.
    sleep_until(now().saturating_add(nanoseconds(unsafe { &*time })))
}

/// Returns an error instead of setting `errno`.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    if !is_simulated() {
        let arguments =
            [c_long::from(clock), c_long::from(flags), time as c_long, left as c_long, 0, 0];
        // SAFETY: the caller's promises hold for its arguments.
        return match unsafe { kernel(libc::SYS_clock_nanosleep, arguments) } {
            0 => 0,
            _ => errno(),
        };
    }
    // SAFETY: the caller promises a time.
    let time = nanoseconds(unsafe { &*time });
    let is_absolute = flags & libc::TIMER_ABSTIME != 0;
    sleep_until(if is_absolute { time } else { now().saturating_add(time) })
}

#[unsafe(no_mangle)]
extern "C" fn usleep(microseconds: c_uint) -> c_int {
    let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
    let time = timespec { tv_sec: time_t::from(seconds), tv_nsec: c_long::from(rest) * 1000 };
    // SAFETY: the time is valid for the call.
    unsafe { nanosleep(&raw const time, std::ptr::null_mut()) }
}

/// Waits for events of descriptors. Returns whether there are any.
pub(super) fn await_events(events: &[(RawFd, c_short)], deadline: u64) -> bool {
    assert!(events.len() <= FILES_MAX, "a simulated thread waits for few descriptors");
    let files: Vec<RawFd> = events.iter().map(|(file, _)| *file).collect();
    let wanted = |(at, (_, events)): (usize, &(RawFd, c_short))| {
        u64::from(*events as u16) << (16 * (at % 4))
    };
    let (first, second) = events.split_at(events.len().min(4));
    let [first, second] =
        [first, second].map(|part| part.iter().enumerate().map(wanted).sum::<u64>());
    ask(ThreadCallKind::Poll, [deadline, first, second], &files).result != 0
}

fn deadline_in(milliseconds: c_int) -> u64 {
    match u64::try_from(milliseconds) {
        Ok(milliseconds) => now() + milliseconds * 1_000_000,
        Err(_) => NEVER,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(files: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int {
    let look = |wait: c_int| {
        let arguments = [files as c_long, count as c_long, c_long::from(wait), 0, 0, 0];
        // SAFETY: the caller's promises hold for its arguments.
        unsafe { kernel(libc::SYS_poll, arguments) as c_int }
    };
    if !is_simulated() || milliseconds == 0 {
        return look(milliseconds);
    }
    let deadline = deadline_in(milliseconds);
    // SAFETY: the caller promises so many descriptors.
    let wanted = (0..count as usize).map(|at| unsafe { *files.add(at) });
    let wanted: Vec<_> = wanted.map(|file| (file.fd, file.events)).collect();
    loop {
        match look(0) {
            0 if await_events(&wanted, deadline) => {}
            0 => return 0,
            found => return found,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    file: c_int,
    events: *mut epoll_event,
    count: c_int,
    milliseconds: c_int,
) -> c_int {
    let look = |wait: c_int| {
        let arguments =
            [c_long::from(file), events as c_long, c_long::from(count), c_long::from(wait), 0, 0];
        // SAFETY: the caller's promises hold for its arguments.
        unsafe { kernel(libc::SYS_epoll_pwait, arguments) as c_int }
    };
    if !is_simulated() || milliseconds == 0 {
        return look(milliseconds);
    }
    let deadline = deadline_in(milliseconds);
    loop {
        match look(0) {
            0 if await_events(&[(file, libc::POLLIN)], deadline) => {}
            0 => return 0,
            found => return found,
        }
    }
}

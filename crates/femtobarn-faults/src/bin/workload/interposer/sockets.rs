//! Connections. When an internet socket connects or listens, it becomes one end of a pair of local sockets, and the
//! simulation has the other end.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use femtobarn_faults::simulation::message::{NEVER, ThreadCallKind, receive_connection};
use nix::libc::{
    self, c_int, c_long, c_short, c_void, iovec, sa_family_t, size_t, sockaddr, sockaddr_in,
    socklen_t, ssize_t, timeval,
};
use parking_lot::Mutex;

use super::turns::{ask, errno, fail, is_simulated, kernel, now};
use super::waits::await_events;
use super::watch::forget;

/// The pause before the next attempt to get a lock.
const LOCK_PAUSE_NS: u64 = 100_000;

/// An address and a port, in the byte order of this machine.
type Place = (u32, u16);

/// A socket of the simulation.
#[derive(Clone, Copy)]
struct SimulatedSocket {
    here: Place,
    there: Option<Place>,
    is_listening: bool,
}

/// The sockets of the simulation, by their descriptors.
static SOCKETS: Mutex<Vec<Option<SimulatedSocket>>> = Mutex::new(vec![]);

fn socket_of(file: c_int) -> Option<SimulatedSocket> {
    SOCKETS.lock().get(file as usize).copied().flatten()
}

fn set_socket(file: c_int, socket: Option<SimulatedSocket>) {
    let mut sockets = SOCKETS.lock();
    let at = file as usize;
    if socket.is_some() && sockets.len() <= at {
        sockets.resize(at + 1, None);
    }
    if let Some(place) = sockets.get_mut(at) {
        *place = socket;
    }
}

/// The host and port of an address; `None` if it is not an IPv4 address.
///
/// # Safety
/// `address` must point to as many bytes as `length` says.
unsafe fn place_of(address: *const sockaddr, length: socklen_t) -> Option<Place> {
    // SAFETY: the caller's promise: every address begins with its family.
    let is_internet = !address.is_null()
        && length as usize >= size_of::<sockaddr_in>()
        && unsafe { (*address).sa_family } == libc::AF_INET as sa_family_t;
    // SAFETY: the family and the length are those of such an address.
    let address = is_internet.then(|| unsafe { *address.cast::<sockaddr_in>() })?;
    Some((u32::from_be(address.sin_addr.s_addr), u16::from_be(address.sin_port)))
}

/// Writes an address, shortened to the caller's buffer.
///
/// # Safety
/// `length` must point to the number of bytes at `address`, unless both are null.
unsafe fn tell_place((host, port): Place, address: *mut sockaddr, length: *mut socklen_t) {
    if address.is_null() || length.is_null() {
        return;
    }
    // SAFETY: all zeros are a valid address.
    let mut told: sockaddr_in = unsafe { std::mem::zeroed() };
    told.sin_family = libc::AF_INET as sa_family_t;
    told.sin_port = port.to_be();
    told.sin_addr.s_addr = host.to_be();
    let size = size_of::<sockaddr_in>();
    // SAFETY: the caller's promise.
    unsafe {
        let room = size.min(*length as usize);
        std::ptr::copy_nonoverlapping((&raw const told).cast::<u8>(), address.cast(), room);
        *length = size as socklen_t;
    }
}

fn flags_of(file: c_int) -> c_int {
    // SAFETY: no memory is touched.
    unsafe { kernel(libc::SYS_fcntl, [file.into(), libc::F_GETFL.into(), 0, 0, 0, 0]) as c_int }
}

fn is_blocking(file: c_int) -> bool {
    flags_of(file) & libc::O_NONBLOCK == 0
}

/// Replaces the socket of descriptor `file` by `new`. The descriptor keeps its flags.
fn replace(file: c_int, new: &OwnedFd) {
    let (flags, new) = (flags_of(file), c_long::from(new.as_raw_fd()));
    // SAFETY: no memory is touched.
    unsafe {
        let closes = c_long::from(libc::O_CLOEXEC);
        kernel(libc::SYS_dup3, [new, file.into(), closes, 0, 0, 0]);
        let set = c_long::from(flags & libc::O_NONBLOCK);
        kernel(libc::SYS_fcntl, [file.into(), libc::F_SETFL.into(), set, 0, 0, 0]);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bind(file: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { place_of(address, length) }.filter(|_| is_simulated()) {
        Some(here) => {
            set_socket(file, Some(SimulatedSocket { here, there: None, is_listening: false }));
            0
        }
        // SAFETY: the caller's promises hold for its arguments.
        None => unsafe {
            let arguments = [file.into(), address as c_long, length.into(), 0, 0, 0];
            kernel(libc::SYS_bind, arguments) as c_int
        },
    }
}

#[unsafe(no_mangle)]
extern "C" fn listen(file: c_int, backlog: c_int) -> c_int {
    let Some(socket) = socket_of(file) else {
        // SAFETY: no memory is touched.
        return unsafe {
            kernel(libc::SYS_listen, [file.into(), backlog.into(), 0, 0, 0, 0]) as c_int
        };
    };
    let (host, port) = socket.here;
    let answered = ask(ThreadCallKind::Listen, [host.into(), port.into(), 0], &[]);
    let Some(listener) = answered.file else { return fail(-answered.result as c_int) };
    replace(file, &listener);
    set_socket(file, Some(SimulatedSocket { is_listening: true, ..socket }));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(file: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's promise.
    let there = unsafe { place_of(address, length) }.filter(|_| is_simulated());
    let Some((host, port)) = there else {
        let arguments = [file.into(), address as c_long, length.into(), 0, 0, 0];
        // SAFETY: the caller's promises hold for its arguments.
        return unsafe { kernel(libc::SYS_connect, arguments) as c_int };
    };
    let answered = ask(ThreadCallKind::Connect, [host.into(), port.into(), 0], &[]);
    let Some(connection) = answered.file else { return fail(-answered.result as c_int) };
    let waits = is_blocking(file);
    replace(file, &connection);
    let here = (answered.argument as u32, answered.result as u16);
    set_socket(file, Some(SimulatedSocket { here, there, is_listening: false }));
    if !waits {
        return fail(libc::EINPROGRESS);
    }
    // A socket becomes writable when it is connected.
    await_events(&[(file, libc::POLLOUT)], NEVER);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    file: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let Some(listener) = socket_of(file).filter(|socket| socket.is_listening) else {
        let arguments = [file.into(), address as c_long, length as c_long, flags.into(), 0, 0];
        // SAFETY: the caller's promises hold for its arguments.
        return unsafe { kernel(libc::SYS_accept4, arguments) as c_int };
    };
    loop {
        match receive_connection(file) {
            Ok((there, connection)) => {
                let accepted = connection.into_raw_fd();
                let set = c_long::from(flags & libc::O_NONBLOCK);
                // SAFETY: no memory is touched.
                unsafe {
                    kernel(libc::SYS_fcntl, [accepted.into(), libc::F_SETFL.into(), set, 0, 0, 0]);
                }
                let socket =
                    SimulatedSocket { there: Some(there), is_listening: false, ..listener };
                set_socket(accepted, Some(socket));
                // SAFETY: the caller's promise.
                unsafe { tell_place(there, address, length) };
                return accepted;
            }
            Err(error) => {
                let code = error.raw_os_error().unwrap_or(libc::ECONNABORTED);
                if code != libc::EAGAIN || !is_blocking(file) {
                    return fail(code);
                }
                await_events(&[(file, libc::POLLIN)], NEVER);
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(
    file: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let here = socket_of(file).map(|socket| socket.here);
    // SAFETY: the caller's promises hold for its arguments.
    unsafe { told(file, here, libc::SYS_getsockname, address, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(
    file: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let there = socket_of(file).and_then(|socket| socket.there);
    // SAFETY: the caller's promises hold for its arguments.
    unsafe { told(file, there, libc::SYS_getpeername, address, length) }
}

/// # Safety
/// As for [`tell_place`].
unsafe fn told(
    file: c_int,
    place: Option<Place>,
    call: c_long,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let Some(place) = place else {
        // SAFETY: the caller's promise.
        return unsafe {
            kernel(call, [file.into(), address as c_long, length as c_long, 0, 0, 0]) as c_int
        };
    };
    // SAFETY: the caller's promise.
    unsafe { tell_place(place, address, length) };
    0
}

/// Of a simulated socket, only time-outs are set; other options have no meaning for it.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    file: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    size: socklen_t,
) -> c_int {
    let is_timeout =
        level == libc::SOL_SOCKET && matches!(name, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO);
    if socket_of(file).is_some() && !is_timeout {
        return 0;
    }
    let arguments = [file.into(), level.into(), name.into(), value as c_long, size.into(), 0];
    // SAFETY: the caller's promises hold for its arguments.
    unsafe { kernel(libc::SYS_setsockopt, arguments) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(file: c_int) -> c_int {
    set_socket(file, None);
    forget(file);
    // SAFETY: the caller owns the descriptor.
    unsafe { kernel(libc::SYS_close, [file.into(), 0, 0, 0, 0, 0]) as c_int }
}

/// The function of the C library takes any number of arguments. A call that waits for a lock tries again until the lock
/// is free.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(file: c_int, command: c_int, argument: c_long) -> c_int {
    let asked = match command {
        libc::F_SETLKW if is_simulated() => libc::F_SETLK,
        libc::F_OFD_SETLKW if is_simulated() => libc::F_OFD_SETLK,
        _ => command,
    };
    let arguments = [file.into(), asked.into(), argument, 0, 0, 0];
    let done = loop {
        // SAFETY: the caller's promises hold for its arguments.
        let done = unsafe { kernel(libc::SYS_fcntl, arguments) as c_int };
        if asked == command || done >= 0 || !matches!(errno(), libc::EAGAIN | libc::EACCES) {
            break done;
        }
        ask(ThreadCallKind::Sleep, [now() + LOCK_PAUSE_NS, 0, 0], &[]);
    };
    if done >= 0 && matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        set_socket(done, socket_of(file));
    }
    done
}

/// The time at which a blocking call on a socket gives up.
fn deadline_of(file: c_int, name: c_int) -> u64 {
    let mut time = timeval { tv_sec: 0, tv_usec: 0 };
    let mut size = size_of::<timeval>() as socklen_t;
    // SAFETY: both places are valid for the call.
    unsafe {
        let level = c_long::from(libc::SOL_SOCKET);
        let (time, size) = ((&raw mut time) as c_long, (&raw mut size) as c_long);
        kernel(libc::SYS_getsockopt, [file.into(), level, name.into(), time, size, 0]);
    }
    match time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000 {
        0 => NEVER,
        wait => now() + wait,
    }
}

/// Repeats a non-blocking call until it is done or the socket's time-out is over. If the descriptor is itself
/// non-blocking, there is one attempt.
fn wait_until_done(
    file: c_int,
    (events, timeout): (c_short, c_int),
    attempt: impl Fn() -> c_long,
) -> ssize_t {
    let mut deadline = None;
    loop {
        let done = attempt();
        if done >= 0 || errno() != libc::EAGAIN || !is_blocking(file) {
            return done as ssize_t;
        }
        let deadline = *deadline.get_or_insert_with(|| deadline_of(file, timeout));
        if !await_events(&[(file, events)], deadline) {
            return fail(libc::EAGAIN) as ssize_t;
        }
    }
}

const READING: (c_short, c_int) = (libc::POLLIN, libc::SO_RCVTIMEO);
const WRITING: (c_short, c_int) = (libc::POLLOUT, libc::SO_SNDTIMEO);

/// Adds the flag of non-blocking calls, for simulated sockets.
fn without_wait(file: c_int, flags: c_int) -> c_int {
    if socket_of(file).is_some() { flags | libc::MSG_DONTWAIT } else { flags }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recv(file: c_int, bytes: *mut c_void, count: size_t, flags: c_int) -> ssize_t {
    let with = without_wait(file, flags);
    let arguments = [file.into(), bytes as c_long, count as c_long, with.into(), 0, 0];
    // SAFETY: the caller's promises hold for its arguments.
    let attempt = || unsafe { kernel(libc::SYS_recvfrom, arguments) };
    if with == flags { attempt() as ssize_t } else { wait_until_done(file, READING, attempt) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(
    file: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
) -> ssize_t {
    let with = without_wait(file, flags);
    let arguments = [file.into(), bytes as c_long, count as c_long, with.into(), 0, 0];
    // SAFETY: the caller's promises hold for its arguments.
    let attempt = || unsafe { kernel(libc::SYS_sendto, arguments) };
    if with == flags { attempt() as ssize_t } else { wait_until_done(file, WRITING, attempt) }
}

/// Writes to a simulated socket; `None` if the descriptor is not a simulated socket.
///
/// # Safety
/// The arguments must be those of a call to `writev`.
pub(super) unsafe fn write_parts(
    file: c_int,
    parts: *const iovec,
    count: c_int,
) -> Option<ssize_t> {
    socket_of(file)?;
    // SAFETY: all zeros are a valid message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.cast_mut();
    message.msg_iovlen = count as size_t;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let message = (&raw const message) as c_long;
    Some(wait_until_done(file, WRITING, || {
        // SAFETY: the message is valid for the call, and its parts are the caller's.
        unsafe { kernel(libc::SYS_sendmsg, [file.into(), message, flags.into(), 0, 0, 0]) }
    }))
}

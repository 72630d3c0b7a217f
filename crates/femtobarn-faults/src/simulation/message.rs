//! The messages between simulated threads and the simulation. Each thread has a socket for them.
//!
//! A thread sends a call and waits for the answer. Between an answer and its next call it runs, and no other thread
//! runs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};

/// The deadline of a wait without one.
pub const NEVER: u64 = u64::MAX;
/// The time that passes when a clock is read, in nanoseconds.
pub const CLOCK_READ_NS: u64 = 100;
/// The largest number of descriptors in one message.
pub const FILES_MAX: usize = 8;

const CALL_WORDS: usize = 5;
const ANSWER_WORDS: usize = 5;
const WORD_BYTES: usize = 8;
/// The kernel's header of descriptors has 16 bytes, and each descriptor 4.
const CONTROL_BYTES: usize = 16 + FILES_MAX * size_of::<RawFd>();

/// The place of descriptors that are received, aligned as the kernel demands.
#[repr(align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// The kinds of calls. Times are nanoseconds of the monotonic clock of the thread's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadCallKind {
    /// Lets other threads run first.
    Yield,
    /// Waits until a time.
    Sleep,
    /// Waits at an address until a wake-up or a deadline; answered with 1 or 0.
    WaitAtAddress,
    /// Wakes at most a given number of threads that wait at an address; answered with the number of threads that were
    /// woken.
    WakeAtAddress,
    /// Waits until a deadline for the events of the descriptors that come with it; answered with 1 or 0.
    Poll,
    /// Starts a thread; answered with its number, and its socket.
    StartThread,
    /// Ends the thread, whose number in the kernel is the argument. There is no answer.
    EndThread,
    /// Waits until a thread has ended.
    Join,
    /// Listens at a port; answered with a socket that receives connections.
    Listen,
    /// Connects to an address and a port; answered with the port of this side and a socket, or a negative error.
    Connect,
    /// Begins an operation on the disk. The argument is the number of its
    /// [`OperationKind`](crate::fault::OperationKind). The answer comes when the disk has finished: 0, the code of an
    /// error, or -1 if only a part of the operation is done.
    Disk,
}

const KINDS: [ThreadCallKind; 11] = [
    ThreadCallKind::Yield,
    ThreadCallKind::Sleep,
    ThreadCallKind::WaitAtAddress,
    ThreadCallKind::WakeAtAddress,
    ThreadCallKind::Poll,
    ThreadCallKind::StartThread,
    ThreadCallKind::EndThread,
    ThreadCallKind::Join,
    ThreadCallKind::Listen,
    ThreadCallKind::Connect,
    ThreadCallKind::Disk,
];

/// A call of a thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCall {
    /// Its kind.
    pub kind: ThreadCallKind,
    /// The number of times that the thread has read a clock since its last answer.
    pub clock_reads: u64,
    /// The arguments, whose meaning depends on `kind`.
    pub arguments: [u64; 3],
}

/// The clocks of a host, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTimes {
    /// The clock of the simulation, which never drifts and is never set.
    pub simulation: u64,
    /// The monotonic clock.
    pub monotonic: u64,
    /// The time of day, since 1970.
    pub of_day: u64,
}

/// The answer to a call: the thread continues when it receives it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallAnswer {
    /// The result.
    pub result: i64,
    /// A second result.
    pub argument: u64,
    /// The clocks.
    pub times: HostTimes,
}

/// Sends a call with descriptors.
///
/// # Errors
/// Those of the system.
pub fn send_call(socket: RawFd, call: &ThreadCall, files: &[RawFd]) -> io::Result<()> {
    let [first, second, third] = call.arguments;
    send(socket, &[call.kind as u64, call.clock_reads, first, second, third], files)
}

/// Receives a call with its descriptors; `None` if the process has ended.
///
/// # Errors
/// Errors of the system; `InvalidData` if the message is not a call.
pub fn receive_call(socket: BorrowedFd) -> io::Result<Option<(ThreadCall, Vec<OwnedFd>)>> {
    let received = receive::<CALL_WORDS>(socket.as_raw_fd(), MsgFlags::empty())?;
    let Some(([kind, clock_reads, first, second, third], files)) = received else {
        return Ok(None);
    };
    let kind = KINDS.get(kind as usize).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some((ThreadCall { kind: *kind, clock_reads, arguments: [first, second, third] }, files)))
}

/// Sends an answer with at most one descriptor.
///
/// # Errors
/// Those of the system.
pub fn send_answer(
    socket: BorrowedFd,
    answer: &CallAnswer,
    file: Option<BorrowedFd>,
) -> io::Result<()> {
    let HostTimes { simulation, monotonic, of_day } = answer.times;
    let words = [answer.result as u64, answer.argument, simulation, monotonic, of_day];
    let files: Vec<RawFd> = file.iter().map(AsRawFd::as_raw_fd).collect();
    send(socket.as_raw_fd(), &words, &files)
}

/// Receives an answer with its descriptor.
///
/// # Errors
/// Errors of the system; `UnexpectedEof` if the simulation has ended.
pub fn receive_answer(socket: RawFd) -> io::Result<(CallAnswer, Option<OwnedFd>)> {
    let received = receive::<ANSWER_WORDS>(socket, MsgFlags::empty())?;
    let ([result, argument, simulation, monotonic, of_day], files) =
        received.ok_or(io::ErrorKind::UnexpectedEof)?;
    let times = HostTimes { simulation, monotonic, of_day };
    Ok((CallAnswer { result: result as i64, argument, times }, files.into_iter().next()))
}

/// Sends a new connection to a socket that listens.
///
/// # Errors
/// Errors of the system; `EPIPE` if the socket no longer listens.
pub fn send_connection(
    listener: BorrowedFd,
    (address, port): (u32, u16),
    connection: BorrowedFd,
) -> io::Result<()> {
    let words = [u64::from(address), u64::from(port)];
    send(listener.as_raw_fd(), &words, &[connection.as_raw_fd()])
}

/// Receives a new connection and the address of its other side.
///
/// # Errors
/// Errors of the system; `EAGAIN` if there is no new connection.
pub fn receive_connection(listener: RawFd) -> io::Result<((u32, u16), OwnedFd)> {
    let received = receive::<2>(listener, MsgFlags::MSG_DONTWAIT)?;
    let ([address, port], files) = received.ok_or(io::ErrorKind::NotConnected)?;
    let connection = files.into_iter().next().ok_or(io::ErrorKind::InvalidData)?;
    Ok(((address as u32, port as u16), connection))
}

/// Sends a message with descriptors.
///
/// It frees no memory after the message is sent, when another thread may already run: see [`receive`].
fn send(socket: RawFd, words: &[u64], files: &[RawFd]) -> io::Result<()> {
    if files.len() > FILES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = [0; CALL_WORDS * WORD_BYTES];
    for (place, word) in bytes.chunks_exact_mut(WORD_BYTES).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    let mut part =
        libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: words.len() * WORD_BYTES };
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    // SAFETY: all zeros are a valid message, with nothing in it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !files.is_empty() {
        let size = size_of_val(files) as libc::c_uint;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the buffer has space for a header and `FILES_MAX` descriptors, and is aligned for a header.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as usize;
            libc::CMSG_DATA(header).copy_from_nonoverlapping(files.as_ptr().cast(), size as usize);
        }
    }
    loop {
        // SAFETY: the message and all that it points to are valid for the call.
        let sent = unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) };
        match Errno::result(sent) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop).map_err(Into::into),
        }
    }
}

/// Receives a message and its descriptors; `None` at the end of the stream.
///
/// It allocates no memory before the message is there: a new thread waits here while the thread that started it runs,
/// and the addresses that the two are given would follow from their speed.
fn receive<const WORDS: usize>(
    socket: RawFd,
    flags: MsgFlags,
) -> io::Result<Option<([u64; WORDS], Vec<OwnedFd>)>> {
    let mut bytes = [0; CALL_WORDS * WORD_BYTES];
    let (mut count, mut files) = (0, vec![]);
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    loop {
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        match recvmsg::<UnixAddr>(socket, &mut parts, Some(&mut control.0), flags) {
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(message) => {
                for received in message.cmsgs()? {
                    let ControlMessageOwned::ScmRights(descriptors) = received else { continue };
                    // SAFETY: the kernel has just opened them for this process, and nothing else knows them.
                    let own = |descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) };
                    files.extend(descriptors.into_iter().map(own));
                }
                count = count.max(message.bytes);
            }
        }
        break;
    }
    if count == 0 {
        return Ok(None);
    }
    if count != WORDS * WORD_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(WORD_BYTES)) {
        *word = u64::from_ne_bytes(bytes.try_into().map_err(io::Error::other)?);
    }
    Ok(Some((words, files)))
}

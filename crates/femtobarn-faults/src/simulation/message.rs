//! What a simulated thread and the simulation say to each other, over a socket that each thread has.
//!
//! A thread calls and waits for its answer. It runs between an answer and its next call, and no other thread does meanwhile.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};

/// The deadline of a wait without one.
pub const NEVER: u64 = u64::MAX;
/// What a clock goes on by when it is read, in nanoseconds.
pub const CLOCK_READ_NS: u64 = 100;
/// Descriptors in one message at most.
pub const FILES_MAX: usize = 8;

const CALL_WORDS: usize = 5;
const ANSWER_WORDS: usize = 5;
const WORD_BYTES: usize = 8;

/// What a thread asks for. Times are nanoseconds of the monotonic clock of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadCallKind {
    /// Others may run first.
    Yield,
    /// Waits until a time.
    Sleep,
    /// Waits at an address until a wake-up or a deadline; answered with 1 or 0.
    WaitAtAddress,
    /// Wakes so many threads that wait at an address; answered with their number.
    WakeAtAddress,
    /// Waits until a deadline for the events of the descriptors that come with it; answered with 1 or 0.
    Poll,
    /// Starts a thread; answered with its number, and its socket.
    StartThread,
    /// The thread of this kernel number ends. There is no answer.
    EndThread,
    /// Waits until a thread has ended.
    Join,
    /// Listens at a port; answered with a socket that receives connections.
    Listen,
    /// Connects to an address and a port; answered with the port of this side and a socket, or a negative error.
    Connect,
    /// Begins an operation on the disk, of the [`OperationKind`](crate::fault::OperationKind) with this number; answered when the
    /// disk has done what takes its time: with 0, with the code of an error, or with -1 if the operation is done in part.
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
    /// What it asks for.
    pub kind: ThreadCallKind,
    /// How often it has read the clock since its last answer.
    pub clock_reads: u64,
    /// What `kind` needs.
    pub arguments: [u64; 3],
}

/// The clocks of a host, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTimes {
    /// The clock of the simulation, which hosts do not have.
    pub simulation: u64,
    /// The monotonic clock.
    pub monotonic: u64,
    /// The time of day, since 1970.
    pub of_day: u64,
}

/// The answer to a call, with which its thread goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallAnswer {
    /// The outcome.
    pub result: i64,
    /// A further outcome.
    pub argument: u64,
    /// The time.
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

/// Receives a call with its descriptors; none if the process has ended.
///
/// # Errors
/// Those of the system; of kind `InvalidData` if it is no call.
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
/// Those of the system; of kind `UnexpectedEof` if the simulation has ended.
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
/// Those of the system: `EPIPE` if it listens no more.
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
/// Those of the system: `EAGAIN` if there is none.
pub fn receive_connection(listener: RawFd) -> io::Result<((u32, u16), OwnedFd)> {
    let received = receive::<2>(listener, MsgFlags::MSG_DONTWAIT)?;
    let ([address, port], files) = received.ok_or(io::ErrorKind::NotConnected)?;
    let connection = files.into_iter().next().ok_or(io::ErrorKind::InvalidData)?;
    Ok(((address as u32, port as u16), connection))
}

fn send(socket: RawFd, words: &[u64], files: &[RawFd]) -> io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let rights = [ControlMessage::ScmRights(files)];
    let rights = if files.is_empty() { &[][..] } else { &rights[..] };
    let parts = [io::IoSlice::new(&bytes)];
    loop {
        match sendmsg::<UnixAddr>(socket, &parts, rights, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop).map_err(Into::into),
        }
    }
}

/// A message and its descriptors; none at the end.
fn receive<const WORDS: usize>(
    socket: RawFd,
    flags: MsgFlags,
) -> io::Result<Option<([u64; WORDS], Vec<OwnedFd>)>> {
    let mut bytes = [0; CALL_WORDS * WORD_BYTES];
    let (mut count, mut files) = (0, vec![]);
    let mut control = cmsg_space!([RawFd; FILES_MAX]);
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    loop {
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        match recvmsg::<UnixAddr>(socket, &mut parts, Some(&mut control), flags) {
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

//! The processes and threads of a simulation, and the simulated time.
//!
//! Invariant: the next thread is drawn from all threads that can run, which are listed in the order of their numbers.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufWriter, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::libc;

use super::hosts::SimulatedHosts;
use super::isolation::use_the_same_addresses;
use super::message::{
    CLOCK_READ_NS, CallAnswer, NEVER, ThreadCall, ThreadCallKind, receive_call, send_answer,
};
use super::network::{DELAYS, SimulatedNetwork, has_events, poll_now, polled, thread_sockets};
use crate::fault::OperationKind;
use crate::random::SplitMix;

/// The longest time between two calls, in nanoseconds.
const STEP_NS_MAX: u64 = 20_000;

/// A simulation.
pub struct World {
    random: SplitMix,
    program: PathBuf,
    now: u64,
    processes: Vec<SimulatedProcess>,
    threads: Vec<SimulatedThread>,
    network: SimulatedNetwork,
    /// The hosts.
    pub hosts: SimulatedHosts,
    trace: DefaultHasher,
    /// Receives every call, with the trace so far.
    log: Option<BufWriter<File>>,
    steps: u64,
    waits: u64,
}

struct SimulatedProcess {
    child: Child,
    host: Ipv4Addr,
    status: Option<ExitStatus>,
}

struct SimulatedThread {
    process: usize,
    socket: OwnedFd,
    state: ThreadState,
}

/// The state of a thread.
enum ThreadState {
    /// The thread can continue, with this answer.
    Ready(i64, u64, Option<OwnedFd>),
    Waiting(u64, AwaitedThing),
    Ended,
}

/// The thing that a thread waits for, apart from its deadline.
enum AwaitedThing {
    /// Only the deadline; then the thread continues with this result.
    Time(i64),
    /// An address, and the number of the wait.
    Address(u64, u64),
    Events(Vec<(OwnedFd, u16)>),
    Thread(usize),
}

/// The files that receive the output of a process.
pub struct ProcessOutput<'a> {
    /// Its standard output.
    pub output: &'a Path,
    /// Its standard error.
    pub errors: &'a Path,
}

impl World {
    /// Creates a simulation whose processes run `program`.
    pub fn new(seed: u64, program: &Path) -> Self {
        let mut random = SplitMix(seed);
        let network = SimulatedNetwork::new(SplitMix(random.draw()));
        let hosts = SimulatedHosts::new(SplitMix(random.draw()));
        World {
            random,
            program: program.to_owned(),
            now: 0,
            processes: vec![],
            threads: vec![],
            network,
            hosts,
            trace: DefaultHasher::new(),
            log: None,
            steps: 0,
            waits: 0,
        }
    }

    /// From now on writes every call to a file, so that two histories can be compared.
    ///
    /// # Errors
    /// Those of the system.
    pub fn log_calls(&mut self, to: &Path) -> io::Result<()> {
        self.log = Some(BufWriter::new(File::create(to)?));
        Ok(())
    }

    /// The simulated time, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// A hash of everything that has happened so far.
    pub fn trace(&self) -> u64 {
        self.trace.finish()
    }

    /// The number of calls of threads so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Starts a process on a host; returns its number.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(
        &mut self,
        host: Ipv4Addr,
        arguments: &[&str],
        told: &ProcessOutput,
    ) -> io::Result<usize> {
        let (here, there) = thread_sockets()?;
        let open = |path: &Path| File::options().create(true).append(true).open(path);
        let mut command = Command::new(&self.program);
        let lie = || {
            use_the_same_addresses();
            Ok(())
        };
        // SAFETY: system calls are all that it does in the new process.
        unsafe { command.pre_exec(lie) };
        let child = command
            .arg("simulate")
            .arg(self.random.draw().to_string())
            .args(arguments)
            .env("MALLOC_ARENA_MAX", "1")
            .stdin(Stdio::from(there))
            .stdout(open(told.output)?)
            .stderr(open(told.errors)?)
            .spawn()?;
        let process = self.processes.len();
        self.processes.push(SimulatedProcess { child, host, status: None });
        // Until the program runs, the child may still hold copies of the sockets of this process. The command has its end.
        drop(command);
        receive_call(here.as_fd())?;
        self.add_thread(process, here);
        Ok(process)
    }

    fn add_thread(&mut self, process: usize, socket: OwnedFd) -> usize {
        let state = ThreadState::Ready(0, 0, None);
        self.threads.push(SimulatedThread { process, socket, state });
        self.threads.len() - 1
    }

    /// The exit status of a process; `None` while it runs.
    pub fn status(&self, process: usize) -> Option<ExitStatus> {
        self.processes[process].status
    }

    /// Kills a process.
    ///
    /// # Errors
    /// Those of the system.
    pub fn kill(&mut self, process: usize) -> io::Result<()> {
        if self.processes[process].status.is_none() {
            self.processes[process].child.kill()?;
            self.end_process(process)?;
        }
        Ok(())
    }

    fn end_process(&mut self, process: usize) -> io::Result<()> {
        let ended = &mut self.processes[process];
        ended.status = Some(ended.child.wait()?);
        self.network.forget_listeners(ended.host);
        let of_it = self.threads.iter_mut().filter(|thread| thread.process == process);
        of_it.for_each(|thread| thread.state = ThreadState::Ended);
        self.trace.write_u64(process as u64);
        Ok(())
    }

    /// Blocks or unblocks the direction from one host to another.
    pub fn block(&mut self, from: Ipv4Addr, to: Ipv4Addr, is_blocked: bool) {
        self.network.block(from, to, is_blocked);
    }

    /// Whether a process of a host listens at a port.
    pub fn is_listening(&self, host: Ipv4Addr, port: u16) -> bool {
        self.network.is_listening((host, port))
    }

    /// Ends all connections of a host.
    pub fn drop_connections(&mut self, host: Ipv4Addr) {
        self.network.drop_connections(host);
    }

    /// Makes all messages slower than usual, by the factor `times`.
    pub fn slow_down(&mut self, times: u64) {
        self.network.delays = DELAYS.start * times..DELAYS.end * times;
    }

    /// Lets one thread run until its next call. If no thread can run, the time advances, but not beyond `until`.
    ///
    /// # Errors Errors of the system; `Deadlock` if no thread can ever run again; `TimedOut` if a thread waits for
    /// something that is not simulated.
    pub fn step(&mut self, until: u64) -> io::Result<()> {
        self.network.carry(self.now, &mut self.trace)?;
        self.note_events()?;
        let is_ready = |thread: &SimulatedThread| matches!(thread.state, ThreadState::Ready(..));
        let ready: Vec<usize> =
            (0..self.threads.len()).filter(|at| is_ready(&self.threads[*at])).collect();
        if !ready.is_empty() {
            let next = *self.random.pick(&ready);
            return self.run(next);
        }
        let deadline = |thread: &SimulatedThread| match thread.state {
            ThreadState::Waiting(deadline, _) => Some(deadline),
            _ => None,
        };
        let deadlines = self.threads.iter().filter_map(deadline);
        let next = deadlines.chain(self.network.next_arrival(self.now)).chain([until]).min();
        match next {
            Some(next) if next > self.now && next != NEVER => {
                self.now = next;
                Ok(())
            }
            _ => Err(io::ErrorKind::Deadlock.into()),
        }
    }

    /// Marks threads as ready whose events have occurred or whose deadlines have passed.
    fn note_events(&mut self) -> io::Result<()> {
        let (mut asked, mut of) = (vec![], vec![]);
        for (at, thread) in self.threads.iter().enumerate() {
            if let ThreadState::Waiting(_, AwaitedThing::Events(events)) = &thread.state {
                of.extend(events.iter().map(|_| at));
                asked.extend(events.iter().map(|(file, events)| polled(file.as_fd(), *events)));
            }
        }
        poll_now(&mut asked)?;
        let found = of.into_iter().zip(&asked).filter(|(_, polled)| has_events(polled));
        let found: Vec<usize> = found.map(|(at, _)| at).collect();
        drop(asked);
        for at in found {
            self.threads[at].state = ThreadState::Ready(1, 0, None);
        }
        for thread in &mut self.threads {
            let ThreadState::Waiting(deadline, thing) = &thread.state else { continue };
            if *deadline <= self.now {
                let result = if let AwaitedThing::Time(result) = thing { *result } else { 0 };
                thread.state = ThreadState::Ready(result, 0, None);
            }
        }
        Ok(())
    }

    /// Answers a thread, and handles its next call.
    fn run(&mut self, number: usize) -> io::Result<()> {
        self.steps += 1;
        let thread = &mut self.threads[number];
        let process = thread.process;
        let ThreadState::Ready(result, argument, file) =
            std::mem::replace(&mut thread.state, ThreadState::Ended)
        else {
            return Ok(());
        };
        let host = self.processes[process].host;
        let answer = CallAnswer { result, argument, times: self.hosts.times(host, self.now) };
        let called = send_answer(thread.socket.as_fd(), &answer, file.as_ref().map(AsFd::as_fd))
            .and_then(|()| receive_call(thread.socket.as_fd()));
        drop(file);
        let called = match called {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) => {
                None
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let text = format!("thread {number} of process {process} waits outside");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            other => other?,
        };
        let Some((call, files)) = called else { return self.end_process(process) };
        let read = self.hosts.when(host, call.clock_reads * CLOCK_READ_NS);
        self.now += read + 1 + self.random.below(STEP_NS_MAX);
        self.note(number, &call)?;
        let state = self.handle(number, &call, files)?;
        self.threads[number].state = state;
        // The new thread can run only after the caller has created it; the caller's next call comes after that.
        if call.kind == ThreadCallKind::StartThread { self.run(number) } else { Ok(()) }
    }

    /// Adds a call to the trace and the log. Addresses are left out of the trace: the place of memory does not matter.
    fn note(&mut self, number: usize, call: &ThreadCall) -> io::Result<()> {
        let mut words = vec![number as u64, call.kind as u64, self.now];
        match call.kind {
            ThreadCallKind::WaitAtAddress | ThreadCallKind::WakeAtAddress => {
                words.push(call.arguments[1])
            }
            ThreadCallKind::EndThread => {}
            _ => words.extend(call.arguments),
        }
        words.into_iter().for_each(|word| self.trace.write_u64(word));
        if let Some(log) = &mut self.log {
            let trace = self.trace.finish();
            writeln!(log, "{} {number} {:?} {:x?} {trace:x}", self.now, call.kind, call.arguments)?;
        }
        Ok(())
    }

    /// Executes a call. Returns the state of its thread afterwards.
    fn handle(
        &mut self,
        number: usize,
        call: &ThreadCall,
        files: Vec<OwnedFd>,
    ) -> io::Result<ThreadState> {
        let process = self.threads[number].process;
        let host = self.processes[process].host;
        let [first, second, third] = call.arguments;
        let ready = |result| ThreadState::Ready(result, 0, None);
        let waiting = ThreadState::Waiting;
        let place = || (Ipv4Addr::from(first as u32), second as u16);
        Ok(match call.kind {
            ThreadCallKind::Yield => ready(0),
            ThreadCallKind::Sleep => waiting(self.hosts.when(host, first), AwaitedThing::Time(0)),
            ThreadCallKind::Disk => {
                let kind = OperationKind::from_number(first).ok_or(io::ErrorKind::InvalidData)?;
                match self.hosts.operate(host, kind) {
                    (0, code) => ready(code),
                    (time, code) => ThreadState::Waiting(self.now + time, AwaitedThing::Time(code)),
                }
            }
            ThreadCallKind::WaitAtAddress => {
                self.waits += 1;
                let deadline = self.hosts.when(host, second);
                waiting(deadline, AwaitedThing::Address(first, self.waits))
            }
            ThreadCallKind::WakeAtAddress => ready(self.wake(process, first, second)),
            ThreadCallKind::Poll => {
                let events = |at: usize| [second, third][at / 4] >> (16 * (at % 4));
                let events = files.into_iter().enumerate().map(|(at, it)| (it, events(at) as u16));
                waiting(self.hosts.when(host, first), AwaitedThing::Events(events.collect()))
            }
            ThreadCallKind::StartThread => {
                let (here, there) = thread_sockets()?;
                let started = self.add_thread(process, here);
                ThreadState::Ready(started as i64, 0, Some(there))
            }
            ThreadCallKind::EndThread => {
                self.await_end(process, first);
                let awaits = |thread: &SimulatedThread| {
                    matches!(&thread.state,
                        ThreadState::Waiting(_, AwaitedThing::Thread(awaited)) if *awaited == number)
                };
                let waiting = self.threads.iter_mut().filter(|thread| awaits(thread));
                waiting.for_each(|thread| thread.state = ready(0));
                ThreadState::Ended
            }
            ThreadCallKind::Join => match self.threads[first as usize].state {
                ThreadState::Ended => ready(0),
                _ => waiting(NEVER, AwaitedThing::Thread(first as usize)),
            },
            ThreadCallKind::Listen => match self.network.listen(place().0, place().1)? {
                Some(socket) => ThreadState::Ready(0, 0, Some(socket)),
                None => ready(-i64::from(libc::EADDRINUSE)),
            },
            ThreadCallKind::Connect => match self.network.connect((self.now, host), place())? {
                Some((socket, port)) => {
                    ThreadState::Ready(port.into(), u32::from(host).into(), Some(socket))
                }
                None => ready(-i64::from(libc::ECONNREFUSED)),
            },
        })
    }

    /// Wakes at most `count` threads of a process that wait at an address; threads that have waited longest come first.
    fn wake(&mut self, process: usize, address: u64, count: u64) -> i64 {
        let mut waiting: Vec<(u64, usize)> = vec![];
        for (at, thread) in self.threads.iter().enumerate() {
            if let ThreadState::Waiting(_, AwaitedThing::Address(of, wait)) = thread.state
                && (thread.process, of) == (process, address)
            {
                waiting.push((wait, at));
            }
        }
        waiting.sort_unstable();
        waiting.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        for (_, at) in &waiting {
            self.threads[*at].state = ThreadState::Ready(1, 0, None);
        }
        waiting.len() as i64
    }

    /// Waits until the kernel has ended a thread, so that the memory that it frees is available to the next thread.
    fn await_end(&self, process: usize, thread: u64) {
        let id = self.processes[process].child.id();
        let place = format!("/proc/{id}/task/{thread}");
        while Path::new(&place).exists() {
            std::thread::yield_now();
        }
    }
}

/// Ends all processes, so that no process outlives its simulation.
impl Drop for World {
    fn drop(&mut self) {
        for process in &mut self.processes {
            if process.status.is_none() {
                // The process may already have ended.
                drop(process.child.kill());
                drop(process.child.wait());
            }
        }
    }
}

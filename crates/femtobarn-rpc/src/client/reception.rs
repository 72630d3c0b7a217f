//! Chooses the thread that reads a session's direct connection: one of the threads that wait for an answer reads for
//! all of them. So a lone caller reads its answer itself, and no other thread wakes.
//!
//! Invariant: while threads wait and the session has a direct connection, one of them reads it, or was woken to read
//! it.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use femtobarn_catalog::{clock, interrupts};
use tokio::sync::oneshot;
use tonic::Status;

use super::direct::DirectConnection;
use super::ledger::SessionEnded;
use super::session::RemoteSession;
use crate::turns::turn_bytes;
use crate::v1::call::Of;
use crate::v1::reply::Of as Replied;
use crate::v1::{Call, ClientTurn, Hello, Welcome};

/// The pause between two looks whether another thread has read a closed connection to its end.
const END_PAUSE: Duration = Duration::from_millis(1);

/// The reading of a session's turns.
#[derive(Debug, Default)]
pub(super) struct Reception {
    /// `None` while the session is broken, or its turns use gRPC.
    connection: Option<Arc<DirectConnection>>,
    is_read: bool,
    /// Threads that wait while another one reads.
    waiting: Vec<Thread>,
}

/// Wakes a thread whose answer has arrived.
struct WaitingThread(Thread);

impl Wake for WaitingThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Reception {
    /// Wakes one waiting thread if the session has a connection that no thread reads.
    fn pass_on(&mut self) {
        if !self.is_read
            && self.connection.is_some()
            && let Some(next) = self.waiting.pop()
        {
            next.unpark();
        }
    }
}

impl RemoteSession {
    /// The session's direct connection, if it has one.
    pub(super) fn direct(&self) -> Option<Arc<DirectConnection>> {
        self.reception.lock().connection.clone()
    }

    /// Opens the session on a direct connection, which callers do not use yet.
    ///
    /// # Errors
    /// The [`Status`] with which the server ends it, or a temporary one.
    pub(super) fn greet(
        &self,
        connection: &DirectConnection,
        hello: Hello,
    ) -> std::result::Result<Welcome, Status> {
        let lost = |error: std::io::Error| Status::unavailable(error.to_string());
        // The server takes the claimed locks again before it answers, so the limit is the client's patience.
        connection.set_timeout(self.patience()).map_err(lost)?;
        let first = ClientTurn { hello: Some(hello), ..ClientTurn::default() };
        let first = turn_bytes(&first).map_err(|error| Status::out_of_range(error.to_string()))?;
        connection.send(&first, &connection.begin_to_send()).map_err(lost)?;
        let first = connection
            .receive()
            .map_err(|error| connection.end().unwrap_or_else(|| lost(error)))?;
        first.welcome.ok_or_else(|| Status::unknown("the server sent no welcome"))
    }

    /// Makes a connection that of the session, for all callers.
    pub(super) fn use_directly(&self, connection: &Arc<DirectConnection>) {
        let mut reception = self.reception.lock();
        reception.connection = Some(Arc::clone(connection));
        reception.pass_on();
    }

    /// Gives up a connection. Operations without an outcome are sent again when the session is open again.
    pub(super) fn lose(&self, connection: &Arc<DirectConnection>) {
        connection.lose();
        let mut reception = self.reception.lock();
        let is_current = |it: &mut Arc<DirectConnection>| Arc::ptr_eq(it, connection);
        // A thread may notice the loss late, when the session is open again on another connection. The connection and
        // the link change under one lock, so that the session is not opened in between.
        if reception.connection.take_if(is_current).is_some() {
            self.note_broken();
        }
    }

    /// Sends the queued operations on a direct connection.
    pub(super) fn send_queued(&self, connection: &Arc<DirectConnection>) {
        self.send_directly(connection, vec![]);
    }

    /// Sends the queued operations, and then `bytes` of further turns.
    fn send_directly(&self, connection: &Arc<DirectConnection>, bytes: Vec<u8>) {
        // The connection of a forked child is its parent's.
        if !self.is_of_this_process() {
            return;
        }
        let sending = connection.begin_to_send();
        let mut turns = vec![];
        loop {
            let operations = {
                let mut ledger = self.ledger();
                if connection.is_lost() {
                    return;
                }
                ledger.next_operations()
            };
            if operations.is_empty() {
                break;
            }
            let turn = ClientTurn { operations, ..ClientTurn::default() };
            turns.extend(turn_bytes(&turn).expect("operations are short"));
        }
        turns.extend(bytes);
        if !turns.is_empty() && connection.send(&turns, &sending).is_err() {
            drop(sending);
            self.lose(connection);
        }
    }

    /// Makes a call on a direct connection, and waits for its reply, at most for `patience` if that is given.
    ///
    /// # Errors
    /// The call's [`Status`]; a temporary one if the connection is lost, or the time is over, before the reply arrives.
    pub(super) fn call_directly(
        &self,
        connection: &Arc<DirectConnection>,
        of: Of,
        patience: Option<Duration>,
    ) -> std::result::Result<Replied, Status> {
        let (number, replied) = connection.begin_call();
        let turn =
            ClientTurn { calls: vec![Call { number, of: Some(of) }], ..ClientTurn::default() };
        let bytes = turn_bytes(&turn).map_err(|error| Status::out_of_range(error.to_string()))?;
        self.send_directly(connection, bytes);
        let deadline = patience.map(|patience| clock::now() + patience);
        match self.await_answer(replied, deadline).and_then(|reply| reply.of) {
            Some(Replied::Failed(status)) => Err(status.into()),
            Some(reply) => Ok(reply),
            None if is_over(deadline) => Err(Status::unavailable("it does not answer")),
            None if interrupts::is_interrupted() => {
                Err(Status::cancelled("the wait was interrupted"))
            }
            None => Err(closed()),
        }
    }

    /// Ends the session on a direct connection. The server closes the connection when it has ended the session.
    pub(super) fn say_goodbye(&self, connection: &Arc<DirectConnection>) {
        let goodbye = ClientTurn { goodbye: true, ..ClientTurn::default() };
        self.send_directly(connection, turn_bytes(&goodbye).expect("the turn is short"));
    }

    /// Waits for an answer, and reads the direct connection if no other thread does. `None` if the sender of the answer
    /// is dropped, the caller ends the wait ([`interrupts`]), or the deadline has passed. The thread that reads checks
    /// the deadline after each turn; turns arrive at least as often as the session is kept alive.
    pub(super) fn await_answer<T>(
        &self,
        mut answer: oneshot::Receiver<T>,
        deadline: Option<Instant>,
    ) -> Option<T> {
        let thread = std::thread::current();
        let waker = Waker::from(Arc::new(WaitingThread(thread.clone())));
        let mut context = Context::from_waker(&waker);
        let mut answered = || match Pin::new(&mut answer).poll(&mut context) {
            Poll::Ready(answer) => Some(answer.ok()),
            Poll::Pending => (is_over(deadline) || interrupts::is_interrupted()).then_some(None),
        };
        loop {
            if let Some(answer) = answered() {
                return answer;
            }
            let mut reception = self.reception.lock();
            let connection = reception.connection.clone().filter(|_| !reception.is_read);
            reception.is_read |= connection.is_some();
            reception.waiting.extend(connection.is_none().then(|| thread.clone()));
            drop(reception);
            let ended = match connection {
                Some(connection) => {
                    let ended = self.read_until(&connection, &mut answered);
                    self.reception.lock().is_read = false;
                    ended
                }
                None => {
                    let left = deadline.map(|it| it.saturating_duration_since(clock::now()));
                    let until_asked = interrupts::are_heeded().then_some(interrupts::INTERVAL);
                    let left = left.into_iter().chain(until_asked).min();
                    left.map_or_else(std::thread::park, std::thread::park_timeout);
                    self.reception.lock().waiting.retain(|it| it.id() != thread.id());
                    answered()
                }
            };
            self.reception.lock().pass_on();
            if let Some(answer) = ended {
                return answer;
            }
        }
    }

    /// Reads turns until `ended` returns something or the connection is lost.
    fn read_until<T>(
        &self,
        connection: &Arc<DirectConnection>,
        mut ended: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            if let Some(ended) = ended() {
                return Some(ended);
            }
            match self.receive_turn(connection) {
                // Nothing was read.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.lose(connection);
                    return ended();
                }
                Ok(()) => {}
            }
        }
    }

    fn receive_turn(&self, connection: &DirectConnection) -> std::io::Result<()> {
        let turn = connection.receive()?;
        let mut ledger = self.ledger();
        if connection.is_lost() {
            return Err(std::io::ErrorKind::NotConnected.into());
        }
        ledger.settle_all(turn.outcomes).map_err(|SessionEnded| ErrorKind::NotConnected.into())
    }

    /// Keeps the session alive on a direct connection until that is lost, and returns why it was lost.
    pub(super) fn keep_alive(
        &self,
        connection: &Arc<DirectConnection>,
        silence: Duration,
    ) -> Status {
        let empty = turn_bytes(&ClientTurn::default()).expect("the turn is short");
        while !connection.is_lost() {
            let is_closed = connection.is_closed_within(silence / 3);
            let received = connection.received();
            if !is_closed {
                self.send_directly(connection, empty.clone());
            }
            let is_idle = {
                let mut reception = self.reception.lock();
                !std::mem::replace(&mut reception.is_read, true)
            };
            if is_idle {
                // Turns that the server has sent before it closed the connection count as signs of life.
                let has_come = || !is_closed && connection.received() > received;
                self.read_until(connection, || has_come().then_some(()));
                let mut reception = self.reception.lock();
                reception.is_read = false;
                reception.pass_on();
            } else if is_closed {
                // The thread that reads will notice the end itself.
                std::thread::sleep(END_PAUSE);
            }
        }
        self.lose(connection);
        connection.end().unwrap_or_else(closed)
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| clock::now() >= deadline)
}

fn closed() -> Status {
    Status::unavailable("the server closed the connection")
}

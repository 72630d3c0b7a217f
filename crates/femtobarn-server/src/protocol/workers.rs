//! Threads that serve connections: one for each core, each with its own connections.
//!
//! 1. A connection stays on its thread. So a request wakes no other thread, as work stealing would: that takes longer
//!    than a small read, or a row of a catalogue.
//! 2. A new connection is assigned to the thread with the fewest connections.
//! 3. A thread yields to others after every few requests.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use super::time_slice::TimeSlice;

/// Sockets whose requests a thread handles before it yields: with 64, the slowest hundredth of answers to 32 sessions
/// takes twice as long.
const SOCKETS_IN_TURN: usize = 8;

/// How long blocking calls may continue when the threads are stopped.
const STOPPING: Duration = Duration::from_secs(1);

/// The threads.
pub struct Workers {
    workers: Vec<Worker>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Worker {
    handle: Handle,
    connections: Arc<AtomicUsize>,
    stop: Arc<Notify>,
}

/// Counts a connection of a thread for as long as it lives.
struct ConnectionCount(Arc<AtomicUsize>);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// Starts `count` threads, each with a pool of up to `blocking` further threads for blocking calls.
    ///
    /// # Errors
    /// The errors of the operating system, if it cannot start a thread.
    pub fn start(name: &str, count: usize, blocking: usize) -> io::Result<Self> {
        let (mut workers, mut threads) = (vec![], vec![]);
        for _ in 0..count {
            let slice = Arc::new(TimeSlice::default());
            let of_loop = Arc::clone(&slice);
            let runtime = Builder::new_current_thread()
                .max_io_events_per_tick(SOCKETS_IN_TURN)
                .on_thread_park(move || of_loop.make_way())
                .max_blocking_threads(blocking)
                .thread_name(format!("{name}-io"))
                .enable_all()
                .build()?;
            let stop = Arc::new(Notify::new());
            let connections = Arc::new(AtomicUsize::new(0));
            workers.push(Worker {
                handle: runtime.handle().clone(),
                connections,
                stop: Arc::clone(&stop),
            });
            let thread = std::thread::Builder::new().name(name.to_owned());
            threads.push(thread.spawn(move || run(runtime, &slice, &stop))?);
        }
        Ok(Workers { workers, threads: Mutex::new(threads) })
    }

    /// Hands a connection to the thread with the fewest connections.
    ///
    /// # Errors
    /// The errors of the operating system, if it cannot detach the socket; `NotConnected` if there are no threads.
    pub fn serve<F>(
        &self,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stream = stream.into_std()?;
        let fewest = self.workers.iter().min_by_key(|w| w.connections.load(Ordering::Relaxed));
        let worker = fewest.ok_or(io::ErrorKind::NotConnected)?;
        worker.connections.fetch_add(1, Ordering::Relaxed);
        let counted = ConnectionCount(Arc::clone(&worker.connections));
        worker.handle.spawn(async move {
            let _counted = counted;
            match TcpStream::from_std(stream) {
                Ok(stream) => serve(stream).await,
                Err(error) => tracing::debug!(%error, "connection lost"),
            }
        });
        Ok(())
    }

    /// Runs a task on the first thread. A lone client's connection is there, too, so a task that it waits for wakes no
    /// other thread.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(worker) = self.workers.first() {
            worker.handle.spawn(task);
        }
    }

    /// Ends all connections and threads.
    pub fn stop(&self) {
        self.workers.iter().for_each(|worker| worker.stop.notify_one());
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The thread has ended, even if it panicked.
            drop(thread.join());
        }
    }
}

fn run(runtime: Runtime, slice: &TimeSlice, stop: &Notify) {
    slice.shorten();
    runtime.block_on(stop.notified());
    runtime.shutdown_timeout(STOPPING);
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    /// Gives the workers a connection that never ends; returns the client's end, and the thread that serves it.
    fn connected(workers: &Workers) -> (std::net::TcpStream, ThreadId) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("the listener is bound");
        let client = std::net::TcpStream::connect(address).expect("the listener accepts clients");
        let (stream, _) = listener.accept().expect("a client came");
        stream.set_nonblocking(true).expect("sockets can be non-blocking");
        let (tell, told) = mpsc::channel();
        let runtime = Builder::new_current_thread().enable_all().build().expect("threads");
        let _entered = runtime.enter();
        let stream = TcpStream::from_std(stream).expect("the socket is non-blocking");
        let serve = move |stream: TcpStream| async move {
            tell.send(std::thread::current().id()).expect("the test waits for the id");
            std::future::pending::<()>().await;
            drop(stream);
        };
        workers.serve(stream, serve).expect("the workers run");
        (client, told.recv().expect("the connection is served"))
    }

    #[test]
    fn connections_are_balanced_over_threads_and_end_with_them() {
        let workers = Workers::start("test", 2, 1).expect("threads");
        let clients: Vec<_> = (0..4).map(|_| connected(&workers)).collect();
        let on_first = clients.iter().filter(|(_, thread)| *thread == clients[0].1).count();
        assert_eq!(on_first, 2);
        workers.stop();
        for (mut client, _) in clients {
            assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)), "the connection is closed");
        }
        let counts = workers.workers.iter().map(|w| w.connections.load(Ordering::Relaxed));
        assert_eq!(counts.sum::<usize>(), 0);
    }
}

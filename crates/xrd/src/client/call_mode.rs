//! Whether callers are threads, which block, or tasks, which await.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// Whether callers block or await.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallMode {
    /// Callers are threads: socket calls block.
    Thread,
    /// Callers are tasks of a tokio runtime.
    Task,
}

impl CallMode {
    pub(super) async fn sleep(self, duration: Duration) {
        match self {
            CallMode::Thread => std::thread::sleep(duration),
            CallMode::Task => tokio::time::sleep(duration).await,
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: RefCell<Waker> =
        RefCell::new(Arc::new(Unpark(std::thread::current())).into());
}

/// Runs a future of [`CallMode::Thread`]: it blocks in the socket, or is pending until another thread wakes it.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = WAKER.with_borrow(Waker::clone);
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Runs a future of [`CallMode::Thread`] that is never pending, since it only waits in the socket.
pub(super) fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a blocking future is ready when it is first polled"),
    }
}

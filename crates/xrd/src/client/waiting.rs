//! How callers wait: threads or tasks.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// Who waits for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// Threads: calls block.
    Thread,
    /// Tasks of a tokio runtime.
    Task,
}

impl Waiter {
    /// Lets time pass.
    pub async fn sleep(self, duration: Duration) {
        match self {
            Waiter::Thread => std::thread::sleep(duration),
            Waiter::Task => tokio::time::sleep(duration).await,
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

/// Runs a future whose waiting is for other threads, or blocks.
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

/// Runs a future that blocks rather than waits.
pub(super) fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the future blocks, so it is ready at once"),
    }
}

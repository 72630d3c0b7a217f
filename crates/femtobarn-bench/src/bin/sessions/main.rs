//! Many sessions with one server, each of which sends its next request as soon as the last one is answered.
//!
//! ```text
//! sessions HOST:PORT WORK PLACE SESSIONS IDLE SECONDS PID
//! ```
//!
//! WORK on the file PLACE: `read-BYTES` or `pgread-BYTES` at random multiples of that size, `readv-COUNTxBYTES`, `open`
//! (open, stat by handle, close), `stat`, or `redirect` (an open that must be redirected). WORK on the federation PLACE: `lock-COUNT`, which locks and unlocks that
//! many containers. IDLE further sessions log in, send nothing, and send a ping at the end, which must be answered. PID
//! is the server's process.
//!
//! Prints one JSON object: answered items and bytes, wall time, the server's CPU time in it, its memory at the end and
//! its peak, its threads, and the median and the 99 % quantile of the time of an answer.

mod connection;
mod locks;
mod process;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use femtobarn_bench::{Outcome, wait_for_others};
use tokio::sync::{Barrier, watch};
use xrd::request::Ping;

use connection::Connection;
use work::{Session, Work};

/// The answers to one session, or to several: counts, and the time of each answer.
#[derive(Default)]
struct Tally {
    items: u64,
    bytes: u64,
    micros: Vec<u32>,
}

struct Plan {
    address: String,
    work: Work,
    place: String,
    sessions: usize,
    idle: usize,
    seconds: Duration,
    server_pid: u32,
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, work, place, sessions, idle, seconds, server_pid] = &arguments[..] else {
        return Err("sessions HOST:PORT WORK PLACE SESSIONS IDLE SECONDS PID".into());
    };
    let plan = Plan {
        address: address.clone(),
        work: work.parse()?,
        place: place.clone(),
        sessions: sessions.parse()?,
        idle: idle.parse()?,
        seconds: Duration::from_secs_f64(seconds.parse()?),
        server_pid: server_pid.parse()?,
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(Arc::new(plan)))
}

/// Every session passes the barrier twice: when it is logged in, and when the driver has started all load generators.
async fn run(plan: Arc<Plan>) -> Outcome {
    let begin = Arc::new(Barrier::new(plan.sessions + plan.idle + 1));
    let over = Arc::new(AtomicBool::new(false));
    let (end, ended) = watch::channel(());
    let idle: Vec<_> = (0..plan.idle)
        .map(|_| tokio::spawn(stay_idle(Arc::clone(&plan), Arc::clone(&begin), ended.clone())))
        .collect();
    let busy: Vec<_> = (0..plan.sessions as u64)
        .map(|number| (number, Arc::clone(&plan), Arc::clone(&begin), Arc::clone(&over)))
        .map(|(number, plan, begin, over)| tokio::spawn(ask(plan, number, begin, over)))
        .collect();
    begin.wait().await;
    wait_for_others();
    begin.wait().await;
    let (cpu, started) = (process::cpu_seconds(plan.server_pid)?, Instant::now());
    tokio::time::sleep(plan.seconds).await;
    let state = process::state(plan.server_pid)?;
    over.store(true, Ordering::Relaxed);
    let mut all = Tally::default();
    for session in busy {
        let done = session.await??;
        all.items += done.items;
        all.bytes += done.bytes;
        all.micros.extend(done.micros);
    }
    let (wall, cpu) =
        (started.elapsed().as_secs_f64(), process::cpu_seconds(plan.server_pid)? - cpu);
    drop(end);
    for session in idle {
        session.await??;
    }
    print(all, wall, cpu, &state);
    Ok(())
}

fn print(mut done: Tally, wall: f64, cpu: f64, server: &process::State) {
    let micros = &mut done.micros;
    micros.sort_unstable();
    let quantile =
        |part: f64| micros.get(((micros.len() as f64 - 1.0) * part) as usize).copied().unwrap_or(0);
    println!(
        "{{\"items\": {}, \"bytes\": {}, \"wall_s\": {wall:.6}, \"cpu_s\": {cpu:.6}, \"check\": 0, \
         \"p50_us\": {}, \"p99_us\": {}, \"memory_kb\": {}, \"highest_kb\": {}, \"threads\": {}}}",
        done.items,
        done.bytes,
        quantile(0.5),
        quantile(0.99),
        server.memory_kb,
        server.highest_kb,
        server.threads
    );
}

/// A session that sends requests until `over`.
async fn ask(
    plan: Arc<Plan>,
    number: u64,
    begin: Arc<Barrier>,
    over: Arc<AtomicBool>,
) -> Outcome<Tally> {
    // A session that failed to log in passes the barrier, too; without it the other sessions would wait for ever.
    let session = Session::open(plan.work, &plan.address, &plan.place, number).await;
    begin.wait().await;
    begin.wait().await;
    let mut session = session?;
    let mut done = Tally::default();
    while !over.load(Ordering::Relaxed) {
        let started = Instant::now();
        let answered = session.ask().await?;
        done.micros.push(started.elapsed().as_micros() as u32);
        done.items += answered.items;
        done.bytes += answered.bytes;
    }
    Ok(done)
}

/// A session that sends nothing until the busy sessions have ended, and takes no CPU time from them.
async fn stay_idle(
    plan: Arc<Plan>,
    begin: Arc<Barrier>,
    mut ended: watch::Receiver<()>,
) -> Outcome {
    let connection = Connection::open(&plan.address).await;
    begin.wait().await;
    begin.wait().await;
    let mut connection = connection?;
    // Nothing is sent; `changed` fails when `run` drops the sender at the end.
    while ended.changed().await.is_ok() {}
    connection.ask(Ping.into()).await?;
    Ok(())
}

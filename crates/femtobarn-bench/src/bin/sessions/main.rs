//! Many sessions with one `root://` server, each asking again as soon as it was answered.
//!
//! ```text
//! sessions HOST:PORT WORK PATH SESSIONS SECONDS SERVER
//! ```
//!
//! WORK is `read-BYTES` or `pgread-BYTES` at random multiples of that size, `readv-COUNTxBYTES`, `open`
//! (open, stat by handle, close), `stat`, or `idle`, `idle-open` (nothing at all, with a file open).
//! SERVER is the server's process. Prints one JSON object: what was done, the server's CPU seconds meanwhile,
//! its memory at the end and at its highest, its threads, and how long answers took.

mod connection;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use femtobarn_bench::Outcome;
use tokio::sync::Barrier;
use xrd::request::{Close, Open, PgRead, Read, ReadV, Request, Stat, Target};
use xrd::response::{Answer, OpenAnswer, StatLine};
use xrd::segment::Segment;
use xrd::{FileHandle, Location, flags::OpenOptions};

use connection::Connection;

#[derive(Clone, Copy, Debug)]
enum Work {
    Read(u32),
    PgRead(u32),
    ReadV { count: u64, bytes: u32 },
    Open,
    Stat,
    Idle { is_open: bool },
}

/// What one session did.
#[derive(Default)]
struct Done {
    bytes: u64,
    micros: Vec<u32>,
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, work, path, sessions, seconds, server] = &arguments[..] else {
        return Err("sessions HOST:PORT WORK PATH SESSIONS SECONDS SERVER".into());
    };
    let plan = Plan {
        address: address.clone(),
        work: work.parse()?,
        path: path.clone(),
        seconds: Duration::from_secs_f64(seconds.parse()?),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(Arc::new(plan), sessions.parse()?, server.parse()?))
}

struct Plan {
    address: String,
    work: Work,
    path: String,
    seconds: Duration,
}

async fn run(plan: Arc<Plan>, sessions: usize, server: u32) -> Outcome {
    let (begin, over) = (Arc::new(Barrier::new(sessions + 1)), Arc::new(AtomicBool::new(false)));
    let mut running = vec![];
    for number in 0..sessions {
        let (plan, begin, over) = (Arc::clone(&plan), Arc::clone(&begin), Arc::clone(&over));
        running.push(tokio::spawn(async move { one(&plan, number as u64, &begin, &over).await }));
    }
    begin.wait().await;
    let (cpu, started) = (server::cpu_seconds(server)?, Instant::now());
    tokio::time::sleep(plan.seconds).await;
    let memory = server::memory(server)?;
    over.store(true, Ordering::Relaxed);
    let (mut bytes, mut micros) = (0, vec![]);
    for session in running {
        let done = session.await??;
        bytes += done.bytes;
        micros.extend(done.micros);
    }
    let (wall, cpu) = (started.elapsed().as_secs_f64(), server::cpu_seconds(server)? - cpu);
    micros.sort_unstable();
    let at =
        |part: f64| micros.get(((micros.len() as f64 - 1.0) * part) as usize).copied().unwrap_or(0);
    println!(
        "{{\"items\": {}, \"bytes\": {bytes}, \"wall_s\": {wall:.6}, \"cpu_s\": {cpu:.6}, \"check\": 0, \
         \"p50_us\": {}, \"p99_us\": {}, \"memory_kb\": {}, \"highest_kb\": {}, \"threads\": {}}}",
        micros.len(),
        at(0.5),
        at(0.99),
        memory.now_kb,
        memory.highest_kb,
        memory.threads
    );
    Ok(())
}

async fn one(plan: &Plan, number: u64, begin: &Barrier, over: &AtomicBool) -> Outcome<Done> {
    let mut connection = Connection::open(&plan.address).await?;
    let needs_file = !matches!(plan.work, Work::Open | Work::Stat | Work::Idle { is_open: false });
    let mut file = FileHandle::default();
    let mut size = 0;
    if needs_file {
        let answer = OpenAnswer::decode(&connection.ask(open(&plan.path)?).await?.body)?;
        file = answer.handle;
        size = answer.stat.map_or(0, |stat| stat.size);
    }
    begin.wait().await;
    let mut done = Done::default();
    // Each session has random numbers of its own: the steps of a linear congruential generator.
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 20
    };
    while !over.load(Ordering::Relaxed) {
        if let Work::Idle { .. } = plan.work {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        let started = Instant::now();
        done.bytes += ask(&mut connection, plan, file, size, &mut random).await?;
        done.micros.push(started.elapsed().as_micros() as u32);
    }
    Ok(done)
}

/// Asks once; returns the bytes of data that came.
async fn ask(
    connection: &mut Connection,
    plan: &Plan,
    file: FileHandle,
    size: u64,
    random: &mut impl FnMut() -> u64,
) -> Outcome<u64> {
    let mut piece = |bytes: u32| {
        let pieces = (size / u64::from(bytes)).max(1);
        Segment { handle: file, length: bytes, offset: random() % pieces * u64::from(bytes) }
    };
    let request: Request = match plan.work {
        Work::Read(bytes) => Read { segment: piece(bytes), arguments: None }.into(),
        Work::PgRead(bytes) => PgRead { segment: piece(bytes), path: None, flags: None }.into(),
        Work::ReadV { count, bytes } => {
            // Neighbours, as readers of columns ask for them.
            let first = piece(bytes).offset.min(size.saturating_sub(count * u64::from(bytes)));
            let at =
                |n| Segment { handle: file, length: bytes, offset: first + n * u64::from(bytes) };
            ReadV { path: Default::default(), segments: (0..count).map(at).collect() }.into()
        }
        Work::Stat => stat(Target::Location(Location::new(plan.path.clone())?)),
        Work::Open => {
            let file = OpenAnswer::decode(&connection.ask(open(&plan.path)?).await?.body)?.handle;
            StatLine::decode(&connection.ask(stat(Target::Handle(file))).await?.body)?;
            connection.ask(Close { handle: file }.into()).await?;
            return Ok(0);
        }
        Work::Idle { .. } => return Ok(0),
    };
    Ok(connection.ask(request).await?.bytes)
}

fn open(path: &str) -> Outcome<Request> {
    Ok(Open {
        mode: Default::default(),
        options: OpenOptions::READ | OpenOptions::RETURN_STAT,
        template_options: Default::default(),
        template: Default::default(),
        location: Location::new(path.to_owned())?,
    }
    .into())
}

fn stat(target: Target) -> Request {
    Stat { options: Default::default(), wants: Default::default(), target }.into()
}

impl std::str::FromStr for Work {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, size) = text.split_once('-').unwrap_or((text, ""));
        Ok(match (kind, size) {
            ("open", "") => Work::Open,
            ("stat", "") => Work::Stat,
            ("idle", "") => Work::Idle { is_open: false },
            ("idle", "open") => Work::Idle { is_open: true },
            ("read", bytes) => Work::Read(bytes.parse()?),
            ("pgread", bytes) => Work::PgRead(bytes.parse()?),
            ("readv", size) => {
                let (count, bytes) = size.split_once('x').ok_or("readv-COUNTxBYTES")?;
                Work::ReadV { count: count.parse()?, bytes: bytes.parse()? }
            }
            _ => return Err(format!("there is no work {text}").into()),
        })
    }
}

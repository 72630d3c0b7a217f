//! How many commits a second the catalogue takes, next to what the disk allows.
//!
//! ```text
//! cargo run --release -p femtobarn-catalog --example commit_speed -- [seconds] [folder]
//! ```
//!
//! The disk's limit is measured first and last in the same folder: one process that appends 4 KiB,
//! or writes 4 KiB over what is there, and calls fdatasync. Then 1, 4 and 16 processes commit as
//! fast as they can, each to a container of its own, and 16 threads of one process, whose commits
//! share durable writes. `max/min` is the ratio of the most to the least commits of one committer.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use femtobarn_catalog::{
    Catalog, Commit, ContainerId, DatabaseId, DatabaseState, EnvelopeRange, NewContainer,
    NewDatabase, NewVersion,
};
use uuid::Uuid;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Time for all processes to start before they commit.
const START_DELAY: Duration = Duration::from_millis(700);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "commit") {
        return child(&arguments[1..]);
    }
    let seconds: f64 = arguments.first().map_or(Ok(3.0), |word| word.parse())?;
    let parent = arguments.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(parent)?;
    let time = Duration::from_secs_f64(seconds);
    let disk = print_disk(folder.path(), time)?;
    println!("{:<28}{:>11}{:>9}{:>9}", "committers", "commits/s", "of disk", "max/min");
    for processes in [1, 4, 16] {
        let counts = processes_commit(folder.path(), processes, time)?;
        print_row(&format!("{processes} processes"), &counts, time, disk);
    }
    let counts = threads_commit(folder.path(), 16, time)?;
    print_row("1 process, 16 threads", &counts, time, disk);
    print_disk(folder.path(), time)?;
    Ok(())
}

fn print_row(who: &str, counts: &[u64], time: Duration, disk: f64) {
    let rate = counts.iter().sum::<u64>() as f64 / time.as_secs_f64();
    let (least, most) = (counts.iter().min(), counts.iter().max());
    let ratio = *most.unwrap_or(&0) as f64 / *least.unwrap_or(&0) as f64;
    println!("{who:<28}{rate:>11.0}{:>9.2}{ratio:>9.2}", rate / disk);
}

/// The disk's rate of appending and of overwriting; the better one is the limit.
fn print_disk(folder: &Path, time: Duration) -> Outcome<f64> {
    let append = syncs_per_second(&folder.join("append"), time, u64::MAX)?;
    let overwrite = syncs_per_second(&folder.join("overwrite"), time, 256)?;
    println!("fdatasync: {append:.0}/s appending, {overwrite:.0}/s overwriting");
    Ok(append.max(overwrite))
}

fn syncs_per_second(path: &Path, time: Duration, blocks: u64) -> Outcome<f64> {
    let file = File::create(path)?;
    let block = [0x5a; 4096];
    if blocks < u64::MAX {
        (0..blocks).try_for_each(|number| file.write_all_at(&block, number * 4096))?;
        file.sync_all()?;
    }
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < time {
        file.write_all_at(&block, (count % blocks) * 4096)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

fn processes_commit(folder: &Path, processes: u32, time: Duration) -> Outcome<Vec<u64>> {
    let federation = folder.join(format!("{processes}-processes"));
    let catalog = Catalog::create(&federation, "speed")?;
    prepare(&catalog, processes)?;
    let start = SystemTime::now() + START_DELAY;
    let start_us = start.duration_since(UNIX_EPOCH)?.as_micros();
    let spawn = |container: u32| {
        Command::new(std::env::current_exe()?)
            .arg("commit")
            .arg(&federation)
            .args([container.to_string(), start_us.to_string(), time.as_secs_f64().to_string()])
            .stdout(Stdio::piped())
            .spawn()
    };
    let children = (1..=processes).map(spawn).collect::<Result<Vec<_>, _>>()?;
    let mut counts = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        counts.push(String::from_utf8(output.stdout)?.trim().parse()?);
    }
    Ok(counts)
}

fn child(arguments: &[String]) -> Outcome<()> {
    let [folder, container, start_us, seconds] = arguments else {
        return Err("commit FOLDER CONTAINER START SECONDS".into());
    };
    let catalog = Catalog::open(Path::new(folder))?;
    catalog.head()?;
    let start = UNIX_EPOCH + Duration::from_micros(start_us.parse()?);
    std::thread::sleep(start.duration_since(SystemTime::now()).unwrap_or_default());
    let time = Duration::from_secs_f64(seconds.parse()?);
    println!("{}", commit_for(&catalog, ContainerId(container.parse()?), time)?);
    Ok(())
}

fn threads_commit(folder: &Path, threads: u32, time: Duration) -> Outcome<Vec<u64>> {
    let catalog = Catalog::create(&folder.join("threads"), "speed")?;
    prepare(&catalog, threads)?;
    let catalog = &catalog;
    std::thread::scope(|scope| {
        let commit = |container| scope.spawn(move || commit_for(catalog, container, time));
        let running: Vec<_> = (1..=threads).map(ContainerId).map(commit).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        let counts = joined.map(|result| Ok(result.map_err(|_| "a thread panicked")??));
        counts.collect()
    })
}

fn prepare(catalog: &Catalog, containers: u32) -> Outcome<()> {
    let database = catalog.reserve_database()?;
    let new_containers = catalog.reserve_containers(containers)?.into_iter().map(|id| {
        let (class, name) = ("Event".into(), format!("events_{id}"));
        NewContainer { database, id, name, class, class_version: 1, options: "{}".into() }
    });
    catalog.commit(Commit {
        new_databases: vec![NewDatabase {
            id: database,
            uuid: Uuid::new_v4(),
            name: "speed".into(),
            path: "databases/speed.root".into(),
            state: DatabaseState::Open,
        }],
        new_containers: new_containers.collect(),
        ..Commit::default()
    })?;
    Ok(())
}

fn commit_for(
    catalog: &Catalog,
    container: ContainerId,
    time: Duration,
) -> femtobarn_catalog::Result<u64> {
    let started = Instant::now();
    let mut base = None;
    let mut count = 0;
    while started.elapsed() < time {
        let version = NewVersion {
            database: DatabaseId(1),
            container,
            base,
            header: EnvelopeRange { offset: 100, size: 500, length: 500 },
            footer: EnvelopeRange { offset: 1 << 30, size: 800, length: 800 },
            entries: count,
            bytes: count * 1000,
        };
        base = Some(catalog.commit(Commit {
            transaction: Uuid::new_v4(),
            message: "speed".into(),
            versions: vec![version],
            ..Commit::default()
        })?);
        count += 1;
    }
    Ok(count)
}

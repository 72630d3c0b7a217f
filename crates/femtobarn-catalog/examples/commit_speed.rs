//! Commits a second of the catalogue, next to the limit of the disk.
//!
//! ```text
//! cargo run --release -p femtobarn-catalog --example commit_speed -- [seconds] [folder] [URL of PostgreSQL]
//! ```
//!
//! One, 4 and 16 processes commit as fast as they can, each to a container of its own; then 16
//! threads of one process, whose commits share durable writes. `max/min` is the ratio of the most
//! to the least commits of one committer. The last rows show that neither a commit nor a look-up
//! gets slower as more is committed. With a URL the catalogues are in that database, in schemas that
//! stay there.
//!
//! The disk's limit is measured in the same folder, right before and right after each row, since
//! a shared disk changes from one second to the next: one process that appends 4 KiB and calls
//! fdatasync, and one that overwrites 4 KiB.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use femtobarn_catalog::{
    BlobRange, Commit, ContainerId, Csn, DatabaseId, DatabaseState, EnvelopeRange, LocalCatalogue,
    NewContainer, NewDatabase, NewVersion,
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
    let url = arguments.get(2).map(String::as_str);
    let time = Duration::from_secs_f64(seconds);
    println!(
        "{:<28}{:>10}{:>9}{:>15}{:>15}{:>11}",
        "committers", "commits/s", "max/min", "append+sync/s", "overwrite/s", "of append"
    );
    for processes in [1, 4, 16] {
        print_row(folder.path(), time, &format!("{processes} processes"), || {
            processes_commit(folder.path(), processes, time, url)
        })?;
    }
    let catalog = create(&folder.path().join("threads"), url)?;
    prepare(&catalog, 16)?;
    print_row(folder.path(), time, "1 process, 16 threads", || threads_commit(&catalog, 16, time))?;
    let old = format!("1 process, after {} commits", catalog.head()?);
    print_row(folder.path(), time, &old, || threads_commit(&catalog, 1, time))?;
    print_look_ups(&catalog, time)
}

fn print_look_ups(catalog: &LocalCatalogue, time: Duration) -> Outcome<()> {
    let (started, mut count) = (Instant::now(), 0);
    let head = catalog.head()?;
    while started.elapsed() < time {
        let container = ContainerId(1 + count % 16);
        let at = Csn(1 + u64::from(count).wrapping_mul(0x9e37_79b9) % head.0);
        std::hint::black_box(catalog.version(DatabaseId(1), container, at)?);
        count += 1;
    }
    let rate = f64::from(count) / started.elapsed().as_secs_f64();
    println!("look-ups of a version at any of {head} commits, one thread: {rate:.0}/s");
    Ok(())
}

fn print_row(
    folder: &Path,
    time: Duration,
    who: &str,
    commit: impl FnOnce() -> Outcome<Vec<u64>>,
) -> Outcome<()> {
    let before = disk_rates(folder, time / 4)?;
    let counts = commit()?;
    let after = disk_rates(folder, time / 4)?;
    let (append, overwrite) = ((before.0 + after.0) / 2.0, (before.1 + after.1) / 2.0);
    let rate = counts.iter().sum::<u64>() as f64 / time.as_secs_f64();
    let (least, most) = (counts.iter().min(), counts.iter().max());
    let ratio = *most.unwrap_or(&0) as f64 / *least.unwrap_or(&0) as f64;
    let share = rate / append;
    println!("{who:<28}{rate:>10.0}{ratio:>9.2}{append:>15.0}{overwrite:>15.0}{share:>11.2}");
    Ok(())
}

/// Durable writes a second: appending, and overwriting.
fn disk_rates(folder: &Path, time: Duration) -> Outcome<(f64, f64)> {
    let append = syncs_per_second(&folder.join("append"), time, u64::MAX)?;
    Ok((append, syncs_per_second(&folder.join("overwrite"), time, 256)?))
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

fn create(folder: &Path, url: Option<&str>) -> Outcome<LocalCatalogue> {
    Ok(match url {
        Some(url) => LocalCatalogue::create_in_postgres(folder, "speed", url)?,
        None => LocalCatalogue::create(folder, "speed")?,
    })
}

fn processes_commit(
    folder: &Path,
    processes: u32,
    time: Duration,
    url: Option<&str>,
) -> Outcome<Vec<u64>> {
    let federation = folder.join(format!("{processes}-processes"));
    let catalog = create(&federation, url)?;
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
    let catalog = LocalCatalogue::open(Path::new(folder))?;
    catalog.head()?;
    let start = UNIX_EPOCH + Duration::from_micros(start_us.parse()?);
    std::thread::sleep(start.duration_since(SystemTime::now()).unwrap_or_default());
    let time = Duration::from_secs_f64(seconds.parse()?);
    println!("{}", commit_for(&catalog, ContainerId(container.parse()?), time)?);
    Ok(())
}

fn threads_commit(catalog: &LocalCatalogue, threads: u32, time: Duration) -> Outcome<Vec<u64>> {
    std::thread::scope(|scope| {
        let commit = |container| scope.spawn(move || commit_for(catalog, container, time));
        let running: Vec<_> = (1..=threads).map(ContainerId).map(commit).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        let counts = joined.map(|result| Ok(result.map_err(|_| "a thread panicked")??));
        counts.collect()
    })
}

fn prepare(catalog: &LocalCatalogue, containers: u32) -> Outcome<()> {
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
    catalog: &LocalCatalogue,
    container: ContainerId,
    time: Duration,
) -> femtobarn_catalog::Result<u64> {
    let started = Instant::now();
    let base = catalog.version(DatabaseId(1), container, Csn::MAX)?;
    let mut base = base.map(|row| row.csn);
    let mut count = 0;
    while started.elapsed() < time {
        let version = NewVersion {
            database: DatabaseId(1),
            container,
            base,
            header: EnvelopeRange { offset: 100, size: 500, length: 500 },
            footer: EnvelopeRange { offset: 1 << 30, size: 800, length: 800 },
            annex: BlobRange::default(),
            record: BlobRange::default(),
            class_version: 1,
            entries: count,
            deleted: 0,
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

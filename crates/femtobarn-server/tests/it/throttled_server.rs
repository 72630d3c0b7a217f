//! A whole server with simulated slow disks.

use femtobarn_server::Server;
use femtobarn_server::config::{Allowed, Config};
use tempfile::TempDir;
use xrd::flags::OpenOptions;

use crate::metrics::get;
use crate::xroot::{Peer, read, to_make, wait_until, write};

/// A server of a folder with two simulated disks of these properties.
fn serving(throttle: &str) -> (Server, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    for disk in ["disk0", "disk1"] {
        std::fs::create_dir(folder.path().join(disk)).unwrap();
    }
    let text = format!(
        "address = '127.0.0.1'\nport = 0\n[[export]]\nfolder = {:?}\nname = '/slow'\n\
         throttle = {{ disks = ['disk0', 'disk1'], {throttle} }}",
        folder.path()
    );
    let mut config = Config::from_toml(&text).unwrap();
    config.auth.anonymous = Allowed::All;
    (Server::start(config).unwrap(), folder)
}

#[test]
fn a_long_read_is_one_operation_of_its_disk_in_the_metrics() {
    let (server, folder) = serving("bytes_per_second = 1_000_000_000, seeks_per_second = 1000");
    const BYTES: u32 = 8 << 20;
    std::fs::write(folder.path().join("disk0/file"), vec![7; BYTES as usize]).unwrap();
    let mut peer = Peer::logged_in(server.address());
    let file = peer.open("/slow/disk0/file", OpenOptions::READ);
    assert_eq!(peer.read(file, 0, BYTES).len(), BYTES as usize);
    let disks = server.status().disks;
    let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["/slow/disk0", "/slow/disk1"]);
    assert_eq!((disks[0].seeks, disks[0].bytes_read), (1, u64::from(BYTES)));
    assert_eq!((disks[0].bytes_written, disks[0].queue_seconds), (0, 0.0));
    assert!((disks[0].seek_seconds - 0.001).abs() < 1e-9, "{:?}", disks[0]);
    let busy = f64::from(BYTES) / 1e9 + 0.001;
    assert!((disks[0].busy_seconds - busy).abs() < 1e-6, "{:?}", disks[0]);
    assert_eq!((disks[1].seeks, disks[1].bytes_read), (0, 0));
    let metrics = get(server.address(), "/metrics");
    for line in [
        "# TYPE femtobarn_disk_seeks_total counter\n".to_owned(),
        "femtobarn_disk_seeks_total{disk=\"/slow/disk0\"} 1\n".to_owned(),
        format!("femtobarn_disk_read_bytes_total{{disk=\"/slow/disk0\"}} {BYTES}\n"),
        "femtobarn_disk_seeks_total{disk=\"/slow/disk1\"} 0\n".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

/// The reads that wait for one disk outnumber the server's threads for blocking calls.
#[test]
fn waits_for_one_disk_do_not_delay_another() {
    // A block takes a quarter of an hour.
    let slowness = "bytes_per_second = 64, seeks_per_second = 0, write_behind_seconds = 1e6";
    let (server, folder) = serving(slowness);
    std::fs::write(folder.path().join("disk0/file"), vec![7; 64 << 20]).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    let waiting = 3 * cores * 8;
    let mut peers = vec![];
    for number in 0..3 * cores {
        let mut peer = Peer::logged_in(server.address());
        let file = peer.open("/slow/disk0/file", OpenOptions::READ);
        for index in 0..8 {
            peer.send(read(file, (number * 8 + index) % 1000 * (64 << 10), 1000), &[]);
        }
        peers.push(peer);
    }
    wait_until("a queue", || {
        server.status().disks[0].queue_seconds > 1000.0 * (waiting.min(1000) - 1) as f64
    });
    let mut peer = Peer::logged_in(server.address());
    let file = peer.open("/slow/disk1/file", to_make());
    peer.ask(write(file, 0, b"in memory"), b"in memory");
    assert_eq!(peer.read(file, 0, 9), "in memory");
}

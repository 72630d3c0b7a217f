//! `/metrics`: the server's numbers in the text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use crate::status::{DiskStatus, Status};

/// The content type that goes with it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// All numbers of a status, one metric each. Single sessions and files are not told: their names would
/// be new metrics without end.
pub fn text(status: &Status) -> String {
    let totals = &status.totals;
    let counters = [
        ("connections_total", "Connections that were accepted", totals.connections),
        ("requests_total", "Requests of root:// clients", totals.requests),
        ("errors_total", "Requests that were refused", totals.errors),
        ("read_bytes_total", "Bytes read by clients", totals.bytes_read),
        ("written_bytes_total", "Bytes written by clients", totals.bytes_written),
        ("syncs_total", "Syncs that clients asked for", totals.syncs),
        ("syncs_eliminated_total", "Syncs that were not needed", totals.syncs_eliminated),
        ("files_reused_total", "Opens that found the file open", totals.files_reused),
        ("deadlocks_total", "Deadlocks that were found", totals.deadlocks),
        ("commits_total", "Commits of remote federations", totals.commits),
    ];
    let gauges = [
        ("up_seconds", "Seconds since the server started", status.up_seconds),
        ("draining", "1 while the server is about to stop", u64::from(status.is_draining)),
        ("connections", "Open connections", totals.open_connections),
        ("sessions", "Open sessions", totals.open_sessions),
        ("files", "Open files", totals.open_files),
        ("locks_held", "Locks that are held", totals.locks_held),
        ("locks_waited", "Locks that somebody waits for", totals.locks_waited),
    ];
    let mut text = String::new();
    let kinds = counters.map(|m| ("counter", m)).into_iter().chain(gauges.map(|m| ("gauge", m)));
    for (kind, (name, help, value)) in kinds {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "# HELP femtobarn_{name} {help}.\n# TYPE femtobarn_{name} {kind}\nfemtobarn_{name} {value}\n"
        );
    }
    add_disks(&mut text, &status.disks);
    text
}

/// What names a metric of disks, its kind, what it is, and its value.
type OfDisk = (&'static str, &'static str, &'static str, fn(&DiskStatus) -> f64);

fn add_disks(text: &mut String, disks: &[DiskStatus]) {
    let metrics: [OfDisk; 6] = [
        ("busy_seconds_total", "counter", "Seconds for which a disk was busy", |d| d.busy_seconds),
        ("seek_seconds_total", "counter", "Of these, seconds with seeks", |d| d.seek_seconds),
        ("seeks_total", "counter", "Seeks", |d| d.seeks as f64),
        ("read_bytes_total", "counter", "Bytes that a disk read", |d| d.bytes_read as f64),
        ("written_bytes_total", "counter", "Bytes that it wrote", |d| d.bytes_written as f64),
        ("queue_seconds", "gauge", "Seconds of work that it still has to do", |d| d.queue_seconds),
    ];
    for (name, kind, help, value) in metrics.into_iter().filter(|_| !disks.is_empty()) {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "# HELP femtobarn_disk_{name} {help}.\n# TYPE femtobarn_disk_{name} {kind}\n"
        );
        for disk in disks {
            let label = disk.name.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = writeln!(text, "femtobarn_disk_{name}{{disk=\"{label}\"}} {}", value(disk));
        }
    }
}

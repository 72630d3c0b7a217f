//! `/metrics`: the server's status in the text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use crate::logical::latency::BOUNDS_US;
use crate::status::{
    CacheStatus, DiskStatus, ExportStatus, FederationStatus, FollowerStatus, InPlaceStatus,
    LatencyStatus, ProtocolStatus, RecallStatus, ServerStatus, StoreStatus,
};

/// The content type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// The metrics of a status. Single sessions and files have none, since their number is not bounded.
pub(super) fn text(status: &ServerStatus) -> String {
    let totals = &status.totals;
    let counters = [
        ("connections_total", "Connections that were accepted", totals.connections),
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
    let _ = write!(
        text,
        "# HELP process_resident_memory_bytes Memory of the server's process.\n\
         # TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes {}\n",
        status.memory_bytes
    );
    add_requests(&mut text, &status.protocols);
    let exports = &status.exports;
    add_rows(&mut text, "export", &EXPORTS, exports, |export| [("export", &export.name)]);
    let federations = &status.federations;
    add_rows(&mut text, "federation", &FEDERATIONS, federations, |each| [("export", &each.name)]);
    add_rows(&mut text, "disk", &DISKS, &status.disks, |disk| [("disk", &disk.name)]);
    add_rows(&mut text, "cache", &CACHES, &status.caches, |cache| [("export", &cache.name)]);
    add_rows(&mut text, "recall", &RECALLS, &status.recalls, |recall| [("export", &recall.name)]);
    add_rows(&mut text, "store", &STORES, &status.stores, |store| {
        [("export", &store.federation), ("store", &store.name)]
    });
    add_rows(&mut text, "in_place", &IN_PLACE, &status.in_place, |read| [("export", &read.name)]);
    add_rows(&mut text, "follower", &FOLLOWERS, &status.followers, |follower| {
        [("export", &follower.federation), ("follower", &follower.name)]
    });
    add_latencies(&mut text, &status.latencies);
    text
}

/// A metric's name, kind, help text and value.
type Metric<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

const EXPORTS: [Metric<ExportStatus>; 2] = [
    ("total_bytes", "gauge", "Bytes of the file system of an export", |e| e.total_bytes as f64),
    ("free_bytes", "gauge", "Bytes of the file system of an export that can be written", |e| {
        e.free_bytes as f64
    }),
];

const RECALLS: [Metric<RecallStatus>; 9] = [
    ("waiting", "gauge", "Recalls from stores that wait or are carried out", |it| {
        it.waiting as f64
    }),
    ("waiting_bytes", "gauge", "Bytes of recalls that wait", |it| it.waiting_bytes as f64),
    ("done_total", "counter", "Recalls that brought a file back", |it| it.done as f64),
    ("bytes_total", "counter", "Bytes that were brought back", |it| it.bytes as f64),
    ("failed_total", "counter", "Recalls that failed", |it| it.failed as f64),
    ("estimate_errors_seconds_total", "counter", "Seconds between estimated and real ends", |it| {
        it.estimate_errors_seconds
    }),
    ("evictions_waiting", "gauge", "Evictions for clients that wait or are carried out", |it| {
        it.evictions_waiting as f64
    }),
    ("evictions_done_total", "counter", "Evictions for clients that removed a file", |it| {
        it.evictions_done as f64
    }),
    (
        "evictions_failed_total",
        "counter",
        "Evictions for clients that were refused or failed",
        |it| it.evictions_failed as f64,
    ),
];

const STORES: [Metric<StoreStatus>; 1] = [(
    "stalled_seconds",
    "gauge",
    "Seconds for which recalls from a store have waited and none has ended",
    |it| it.stalled_seconds,
)];

const IN_PLACE: [Metric<InPlaceStatus>; 3] = [
    ("read_bytes_total", "counter", "Bytes that clients read in stores", |it| it.read_bytes as f64),
    ("fetched_bytes_total", "counter", "Bytes that stores were asked for", |it| {
        it.fetched_bytes as f64
    }),
    (
        "left_copies_total",
        "counter",
        "Copies that were left because they could not be read",
        |it| it.left_copies as f64,
    ),
];

const CACHES: [Metric<CacheStatus>; 8] = [
    ("used_bytes", "gauge", "Bytes that a cache takes of its disks", |it| it.used_bytes as f64),
    ("limit_bytes", "gauge", "Bytes that a cache may take of its disks", |it| {
        it.limit_bytes as f64
    }),
    ("read_bytes_total", "counter", "Bytes that were read through a cache", |it| {
        it.read_bytes as f64
    }),
    ("fetched_bytes_total", "counter", "Bytes that were fetched from the origin", |it| {
        it.fetched_bytes as f64
    }),
    ("evicted_bytes_total", "counter", "Bytes of files that were removed to make room", |it| {
        it.evicted_bytes as f64
    }),
    ("damaged_pages_total", "counter", "Pages that were found damaged on the disk", |it| {
        it.damaged_pages as f64
    }),
    ("failures_total", "counter", "How often a disk refused to keep or give pages", |it| {
        it.failures as f64
    }),
    ("failed_disks", "gauge", "Disks that failed and are not used any more", |it| {
        it.failed_disks().count() as f64
    }),
];

const FOLLOWERS: [Metric<FollowerStatus>; 3] = [
    ("commit", "gauge", "Newest commit of a copy of a federation", |it| it.at as f64),
    ("commits_behind", "gauge", "Commits that the copy does not have", |it| it.behind as f64),
    ("silent_seconds", "gauge", "Seconds since the copy asked for commits", |it| it.silent_seconds),
];

const FEDERATIONS: [Metric<FederationStatus>; 7] = [
    ("newest_commit", "gauge", "Number of the newest commit", |f| f.head as f64),
    ("sessions", "gauge", "Open sessions of remote clients", |f| f.sessions as f64),
    ("locks_held", "gauge", "Locks that are held", |f| f.locks_held as f64),
    ("locks_waited", "gauge", "Locks that somebody waits for", |f| f.locks_waited as f64),
    ("deadlocks_total", "counter", "Deadlocks that were found", |f| f.deadlocks as f64),
    ("commits_total", "counter", "Commits of remote clients", |f| f.commits as f64),
    ("messages_total", "counter", "Messages of remote clients to the catalogue", |f| {
        f.messages as f64
    }),
];

const DISKS: [Metric<DiskStatus>; 6] = [
    ("busy_seconds_total", "counter", "Seconds for which a disk was busy", |d| d.busy_seconds),
    ("seek_seconds_total", "counter", "Seconds for which a disk was seeking", |d| d.seek_seconds),
    ("seeks_total", "counter", "Seeks", |d| d.seeks as f64),
    ("read_bytes_total", "counter", "Bytes that a disk read", |d| d.bytes_read as f64),
    ("written_bytes_total", "counter", "Bytes that a disk wrote", |d| d.bytes_written as f64),
    ("queue_seconds", "gauge", "Seconds of work that a disk still has to do", |d| d.queue_seconds),
];

/// Adds metrics with a value for each row; the labels distinguish the rows.
fn add_rows<T, const LABELS: usize>(
    text: &mut String,
    family: &str,
    metrics: &[Metric<T>],
    rows: &[T],
    labels_of: impl Fn(&T) -> [(&'static str, &String); LABELS],
) {
    for (name, kind, help, value) in metrics.iter().filter(|_| !rows.is_empty()) {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "# HELP femtobarn_{family}_{name} {help}.\n# TYPE femtobarn_{family}_{name} {kind}\n"
        );
        for row in rows {
            let labels = labels_of(row).map(|(label, of)| format!("{label}=\"{}\"", escaped(of)));
            let (labels, value) = (labels.join(","), value(row));
            let _ = writeln!(text, "femtobarn_{family}_{name}{{{labels}}} {value}");
        }
    }
}

fn add_requests(text: &mut String, protocols: &[ProtocolStatus]) {
    text.push_str(
        "# HELP femtobarn_requests_total Requests of clients, by protocol.\n\
         # TYPE femtobarn_requests_total counter\n",
    );
    for ProtocolStatus { name, requests, .. } in protocols {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "femtobarn_requests_total{{protocol=\"{name}\"}} {requests}");
    }
    text.push_str(
        "# HELP femtobarn_errors_total Requests that were refused or failed.\n\
         # TYPE femtobarn_errors_total counter\n",
    );
    for (name, (kind, count)) in
        protocols.iter().flat_map(|it| it.errors.iter().map(|error| (it.name, error)))
    {
        let labels = format!("protocol=\"{name}\",kind=\"{kind}\"");
        let _ = writeln!(text, "femtobarn_errors_total{{{labels}}} {count}");
    }
}

fn add_latencies(text: &mut String, rows: &[LatencyStatus]) {
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "# HELP femtobarn_request_seconds How long requests took; reads from memory count, and add nothing to the sum.\n\
         # TYPE femtobarn_request_seconds histogram\n"
    );
    for LatencyStatus { export, kind, buckets, sum_seconds } in rows {
        let labels = format!("export=\"{}\",kind=\"{kind}\"", escaped(export));
        let mut count = 0;
        let bounds = BOUNDS_US.iter().map(|us| (*us as f64 / 1e6).to_string());
        for (bucket, bound) in buckets.iter().zip(bounds.chain(["+Inf".to_owned()])) {
            count += bucket;
            let _ = writeln!(
                text,
                "femtobarn_request_seconds_bucket{{{labels},le=\"{bound}\"}} {count}"
            );
        }
        let _ = write!(
            text,
            "femtobarn_request_seconds_sum{{{labels}}} {sum_seconds}\n\
             femtobarn_request_seconds_count{{{labels}}} {count}\n"
        );
    }
}

/// A name as a label's value, escaped.
fn escaped(name: &str) -> String {
    name.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
